//! Walks a folder that somebody else may be changing, by handles only: no link is followed, no
//! mount is crossed, nothing but folders is opened.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, openat2, statat},
    io::Errno,
};

/// One entry below the root.
pub(super) struct Entry<'a> {
    /// Its folder, open.
    pub(super) folder: BorrowedFd<'a>,
    /// Its name there.
    pub(super) name: &'a CStr,
    /// Itself; of a link, the link.
    pub(super) stat: Stat,
}

/// Opens the root of a walk. Its own path is trusted, its last part may be no link.
pub(super) fn root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// Calls `visit` for everything below `root`, a folder before what is in it. What vanishes
/// meanwhile is passed over; a tree deeper than a path can be is an error.
pub(super) fn walk(
    root: impl AsFd,
    mut visit: impl FnMut(Entry<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let mut pending = vec![CString::from(c".")];
    while let Some(path) = pending.pop() {
        let Some(folder) = open(root.as_fd(), &path)? else {
            continue;
        };
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let stat = match statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            };
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                pending.push(join(&path, name));
            }
            visit(Entry {
                folder: folder.as_fd(),
                name,
                stat,
            })?;
        }
    }
    Ok(())
}

fn open(root: BorrowedFd<'_>, path: &CStr) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match openat2(root, path, flags, Mode::empty(), resolve) {
        Ok(folder) => Ok(Some(folder)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn join(path: &CStr, name: &CStr) -> CString {
    let mut bytes = path.to_bytes().to_vec();
    bytes.push(b'/');
    bytes.extend_from_slice(name.to_bytes());
    CString::new(bytes).expect("names have no NUL")
}
