//! Every call that changes a file. Tests can make the n-th one fail, which is what a crash looks
//! like to the next run: nothing cleans up after an error.

use std::{os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{self, AtFlags, FileType, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags},
    io::Result,
};

/// Whether a stored file may get one more name at all.
pub(super) fn may_link() -> Result<()> {
    fault::link()
}

pub(super) fn make_path(path: &Path) -> Result<()> {
    fault::step()?;
    fs::mkdir(path, Mode::RWXU)
}

pub(super) fn rename_path(from: &Path, to: &Path) -> Result<()> {
    fault::step()?;
    fs::rename(from, to)
}

pub(super) fn make_dir(dir: &OwnedFd, name: &[u8], mode: u32) -> Result<()> {
    fault::step()?;
    fs::mkdirat(dir, name, Mode::from_raw_mode(mode))
}

/// A whiteout: a character device 0/0.
pub(super) fn white_out(dir: &OwnedFd, name: &[u8]) -> Result<()> {
    fault::step()?;
    fs::mknodat(dir, name, FileType::CharacterDevice, Mode::empty(), 0)
}

pub(super) fn link(from: (&OwnedFd, &[u8]), to: (&OwnedFd, &[u8])) -> Result<()> {
    fault::step()?;
    fs::linkat(from.0, from.1, to.0, to.1, AtFlags::empty())
}

pub(super) fn symlink(target: &[u8], dir: &OwnedFd, name: &[u8]) -> Result<()> {
    fault::step()?;
    fs::symlinkat(target, dir, name)
}

pub(super) fn rename(from: (&OwnedFd, &[u8]), to: (&OwnedFd, &[u8])) -> Result<()> {
    fault::step()?;
    fs::renameat(from.0, from.1, to.0, to.1)
}

pub(super) fn unlink(dir: &OwnedFd, name: &[u8]) -> Result<()> {
    fault::step()?;
    fs::unlinkat(dir, name, AtFlags::empty())
}

pub(super) fn remove_dir(dir: &OwnedFd, name: &[u8]) -> Result<()> {
    fault::step()?;
    fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}

/// `path` is not followed where it is a link.
pub(super) fn set_xattr(path: &[u8], name: &[u8], value: &[u8]) -> Result<()> {
    fault::step()?;
    fs::lsetxattr(path, name, value, XattrFlags::empty())
}

/// `path` is not followed where it is a link.
pub(super) fn remove_xattr(path: &[u8], name: &[u8]) -> Result<()> {
    fault::step()?;
    fs::lremovexattr(path, name)
}

/// Of a regular file or folder only.
pub(super) fn set_mode(dir: &OwnedFd, name: &[u8], mode: u32) -> Result<()> {
    fault::step()?;
    let mode = Mode::from_raw_mode(mode & 0o7777);
    fs::chmodat(dir, name, mode, AtFlags::empty())
}

pub(super) fn set_owner(dir: &OwnedFd, name: &[u8], uid: u32, gid: u32) -> Result<()> {
    fault::step()?;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
}

/// Sets the mtime and leaves the atime.
pub(super) fn set_mtime(dir: &OwnedFd, name: &[u8], mtime: Timespec) -> Result<()> {
    fault::step()?;
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: mtime,
    };
    fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)
}

#[cfg(not(test))]
mod fault {
    use rustix::io::Result;

    #[inline(always)]
    pub(super) fn step() -> Result<()> {
        Ok(())
    }

    #[inline(always)]
    pub(super) fn link() -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod fault {
    //! Failures on order, per thread.
    use std::cell::Cell;

    use rustix::io::{Errno, Result};

    thread_local! {
        /// How many more changes succeed.
        pub(crate) static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
        /// Whether a stored file gets no further name.
        pub(crate) static NO_LINKS: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn step() -> Result<()> {
        match LEFT.get() {
            Some(0) => Err(Errno::IO),
            left => {
                LEFT.set(left.map(|left| left - 1));
                Ok(())
            }
        }
    }

    pub(crate) fn link() -> Result<()> {
        if NO_LINKS.get() {
            Err(Errno::MLINK)
        } else {
            Ok(())
        }
    }
}
