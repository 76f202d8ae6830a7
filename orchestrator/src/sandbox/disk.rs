//! How much disk a sandbox takes, looked at from outside while it runs.
//!
//! The upper is only read by handles, never through the mount. Files that are deleted and still
//! held open are in no folder, so they are looked for in the sandbox's processes.

mod open;

use std::{collections::HashSet, io, path::Path};

use rustix::fs::{FileType, statvfs};

pub use open::{DeletedUse, deleted_open};

pub use super::walk::LEVELS;

use super::walk;

/// What an upper folder takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// Bytes of blocks, holes not counted.
    pub bytes: u64,
    /// Files and folders; a file with several names is one.
    pub inodes: u64,
}

/// Bytes and inodes of a tree that branches on more than [`LEVELS`] levels: more than any cap, and
/// small enough to be added up.
pub const TOO_DEEP: u64 = 1 << 60;

/// Adds up a folder, itself not counted. A tree may be deep, but one that branches on more than
/// [`LEVELS`] levels is over every cap: each level costs a handle, and no ordinary program makes one.
pub fn usage(upper: &Path) -> io::Result<DiskUse> {
    let mut total = DiskUse::default();
    let mut linked = HashSet::new();
    let walked = walk::walk(walk::root(upper)?, |entry| {
        let stat = entry.stat;
        let folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if !folder && stat.st_nlink > 1 && !linked.insert((stat.st_dev, stat.st_ino)) {
            return Ok(());
        }
        total.bytes = total.bytes.saturating_add(stat.st_blocks as u64 * 512);
        total.inodes += 1;
        Ok(())
    });
    match walked {
        Err(error) if error.kind() == io::ErrorKind::InvalidFilename => Ok(DiskUse {
            bytes: TOO_DEEP,
            inodes: TOO_DEEP,
        }),
        walked => walked.map(|()| total),
    }
}

/// Bytes and inodes that are free on the file system of `path`.
pub fn free(path: &Path) -> io::Result<(u64, u64)> {
    let found = statvfs(path)?;
    Ok((
        found.f_bavail.saturating_mul(found.f_frsize),
        found.f_favail,
    ))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn links_count_once_and_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/f"), vec![1; 100_000]).unwrap();
        fs::hard_link(root.join("a/b/f"), root.join("twin")).unwrap();
        let before = usage(root).unwrap();
        assert_eq!(before.inodes, 3);
        assert!((100_000..200_000).contains(&before.bytes), "{before:?}");
        symlink("/usr", root.join("out")).unwrap();
        symlink("/", root.join("a/loop")).unwrap();
        assert_eq!(usage(root).unwrap().inodes, 5);
        assert!(usage(&root.join("out")).is_err());
    }

    #[test]
    fn deep_is_counted_and_deep_with_branches_is_over_every_cap() {
        use rustix::fs::{Mode, OFlags, mkdirat, openat};

        let nest = |levels: usize, branches: bool| {
            let dir = tempfile::tempdir().unwrap();
            let mut at = walk::root(dir.path()).unwrap();
            for level in 0..levels {
                // The order of names in a folder is the file system's.
                let name = format!("{level:0>250}");
                mkdirat(&at, &*name, Mode::RWXU).unwrap();
                if branches {
                    mkdirat(&at, format!("a{level}"), Mode::RWXU).unwrap();
                    mkdirat(&at, format!("z{level}"), Mode::RWXU).unwrap();
                }
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                at = openat(&at, &*name, flags, Mode::empty()).unwrap();
            }
            (usage(dir.path()).unwrap(), dir)
        };
        assert_eq!(nest(300, false).0.inodes, 300);
        assert_eq!(nest(100, true).0.inodes, 300);
        assert_eq!(nest(300, true).0.bytes, TOO_DEEP);
    }

    #[test]
    fn a_hole_takes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = fs::File::create(dir.path().join("big")).unwrap();
        file.set_len(5 << 30).unwrap();
        assert!(usage(dir.path()).unwrap().bytes < 1 << 20);
    }
}
