//! Walks a folder that somebody else may be changing, by handles only: no link is followed, no
//! mount is crossed, nothing but folders is opened.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    rc::Rc,
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

/// How many folders with children still to visit are held open at once. Trees of any depth pass
/// unless they branch on more levels than this.
pub const LEVELS: usize = 128;

/// Calls `visit` for everything below `root`, a folder before what is in it. What vanishes
/// meanwhile is passed over; a tree that branches on more than [`LEVELS`] levels is an error.
pub(super) fn walk(
    root: impl AsFd,
    mut visit: impl FnMut(Entry<'_>) -> io::Result<()>,
) -> io::Result<()> {
    // Children of one folder lie together and share its handle, so paths may be of any length.
    let mut pending: Vec<(Option<Rc<OwnedFd>>, CString)> = vec![(None, CString::from(c"."))];
    let mut held = 0;
    while let Some((parent, name)) = pending.pop() {
        let opened = match &parent {
            Some(parent) => open(parent.as_fd(), &name)?,
            None => open(root.as_fd(), &name)?,
        };
        if parent.is_some_and(|parent| Rc::into_inner(parent).is_some()) {
            held -= 1;
        }
        let Some(folder) = opened.map(Rc::new) else {
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
                pending.push((Some(folder.clone()), name.to_owned()));
            }
            visit(Entry {
                folder: folder.as_fd(),
                name,
                stat,
            })?;
        }
        held += usize::from(Rc::strong_count(&folder) > 1);
        if held > LEVELS {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
    }
    Ok(())
}

fn open(folder: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match openat2(folder, name, flags, Mode::empty(), resolve) {
        Ok(folder) => Ok(Some(folder)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
