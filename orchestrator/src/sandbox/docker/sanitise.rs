//! Takes out of a base what no agent may start with: devices, setuid bits, file capabilities, and
//! overlay's own marks, which would reach into other layers.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, fchmod, flistxattr, fremovexattr, openat, unlinkat,
};
use rustix::io::Errno;

use crate::sandbox::walk::{self, Entry};

/// More would not be read.
const MOST_NOTES: usize = 20;
/// Bytes of attribute names of an ordinary file.
const FEW_NAMES: usize = 256;
/// The kernel's own limit (XATTR_LIST_MAX).
const MOST_NAMES: usize = 65_536;

/// Cleans everything below `root` and the root itself; tells what was done.
pub(super) fn sanitise(root: &Path, notes: &mut Vec<String>) -> io::Result<()> {
    let handle = walk::root(root)?;
    clean_marks(&handle)?;
    walk::walk(&handle, |entry| {
        if let Some(done) = clean(&entry)? {
            if notes.len() < MOST_NOTES {
                let name = entry.name.to_string_lossy();
                notes.push(format!("{}: …/{name}: {done}", root.display()));
            } else if notes.len() == MOST_NOTES {
                notes.push("and more of the kind".to_owned());
            }
        }
        Ok(())
    })
}

fn clean(entry: &Entry<'_>) -> io::Result<Option<&'static str>> {
    let kind = FileType::from_raw_mode(entry.stat.st_mode);
    match kind {
        FileType::Directory => {
            let marked = clean_marks(open(entry, OFlags::DIRECTORY)?)?;
            Ok(marked.then_some("marks of an overlay removed"))
        }
        FileType::RegularFile => {
            let file = open(entry, OFlags::NONBLOCK)?;
            let mode = Mode::from_raw_mode(entry.stat.st_mode);
            let raised = Mode::SUID | Mode::SGID;
            if mode.intersects(raised) {
                fchmod(&file, mode.difference(raised))?;
                clean_marks(file)?;
                return Ok(Some("setuid or setgid taken away"));
            }
            Ok(clean_marks(file)?.then_some("capabilities or marks of an overlay removed"))
        }
        FileType::Symlink => Ok(None),
        _ => {
            unlinkat(entry.folder, entry.name, AtFlags::empty())?;
            Ok(Some("device, fifo or socket removed"))
        }
    }
}

fn open(entry: &Entry<'_>, kind: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | kind;
    Ok(openat(entry.folder, entry.name, flags, Mode::empty())?)
}

/// Removes file capabilities and every `trusted.*`; true where there was one.
fn clean_marks(file: impl AsFd) -> io::Result<bool> {
    let mut names = vec![0; FEW_NAMES];
    let size = match flistxattr(&file, names.as_mut_slice()) {
        Err(Errno::RANGE) => {
            names.resize(MOST_NAMES, 0);
            flistxattr(&file, names.as_mut_slice())?
        }
        size => size?,
    };
    let mut found = false;
    for name in names[..size].split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else {
            continue;
        };
        let bytes = name.to_bytes();
        if bytes == b"security.capability"
            || bytes.starts_with(b"trusted.")
            || bytes.starts_with(b"user.overlay.")
        {
            fremovexattr(&file, name)?;
            found = true;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use rustix::fs::{CWD, XattrFlags, mknodat, setxattr};

    use super::*;

    #[test]
    fn nothing_raised_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/su"), "x").unwrap();
        fs::set_permissions(root.join("d/su"), fs::Permissions::from_mode(0o6755)).unwrap();
        mknodat(
            CWD,
            root.join("d/dev"),
            FileType::CharacterDevice,
            Mode::RUSR,
            rustix::fs::makedev(1, 3),
        )
        .unwrap();
        mknodat(CWD, root.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        symlink("/etc/passwd", root.join("link")).unwrap();
        setxattr(
            root.join("d"),
            "trusted.overlay.opaque",
            b"y",
            XattrFlags::empty(),
        )
        .unwrap();

        let mut notes = Vec::new();
        sanitise(root, &mut notes).unwrap();
        assert_eq!(notes.len(), 4, "{notes:?}");
        assert_eq!(
            fs::metadata(root.join("d/su"))
                .unwrap()
                .permissions()
                .mode()
                & 0o7777,
            0o755
        );
        assert!(!root.join("d/dev").exists() && !root.join("pipe").exists());
        assert!(root.join("link").is_symlink());
        sanitise(root, &mut notes).unwrap();
        assert_eq!(notes.len(), 4, "{notes:?}");
    }
}
