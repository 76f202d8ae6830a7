//! What overlayfs and we write beside a file's content: kinds, marks, attributes.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::{
    fs::{FileType, Stat, Timespec, fgetxattr, fstat, lgetxattr, llistxattr},
    io::{Errno, Result},
};

use super::ops;

pub(super) const OPAQUE: &[u8] = b"trusted.overlay.opaque";
pub(super) const REDIRECT: &[u8] = b"trusted.overlay.redirect";
pub(super) const METACOPY: &[u8] = b"trusted.overlay.metacopy";
pub(super) const CAPABILITY: &[u8] = b"security.capability";
/// The mtime a folder had before a seal changed it, until the seal has put it back.
pub(super) const MTIME: &[u8] = b"trusted.mayfly.mtime";

/// The system's limits: of one value, of all names of one file.
const VALUE_MAX: usize = 65536;
const NAMES_MAX: usize = 65536;

pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

pub(super) fn is_dir(stat: &Stat) -> bool {
    kind(stat) == FileType::Directory
}

pub(super) fn is_regular(stat: &Stat) -> bool {
    kind(stat) == FileType::RegularFile
}

pub(super) fn is_whiteout(stat: &Stat) -> bool {
    kind(stat) == FileType::CharacterDevice && stat.st_rdev == 0
}

pub(super) fn mtime(stat: &Stat) -> Timespec {
    Timespec {
        tv_sec: stat.st_mtime,
        tv_nsec: stat.st_mtime_nsec as _,
    }
}

/// Opaque hides what lies below. The value `x` (whiteouts as xattrs) does not.
pub(super) fn is_opaque(dir: &OwnedFd) -> Result<bool> {
    let mut value = [0; 1];
    match fgetxattr(dir, OPAQUE, &mut value[..]) {
        Ok(len) => Ok(len == 1 && value[0] == b'y'),
        Err(Errno::NODATA | Errno::RANGE) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A short mark on a folder.
pub(super) fn mark(dir: &OwnedFd, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut value = [0; 4096];
    match fgetxattr(dir, name, &mut value[..]) {
        Ok(len) => Ok(Some(value[..len].to_vec())),
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(error),
    }
}

/// How the xattr calls, which know no `at` form, reach `name` in `dir`; never longer than a name.
pub(super) fn through(dir: &OwnedFd, name: &[u8]) -> Vec<u8> {
    let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    path
}

/// The names of all xattrs at `path`.
pub(super) fn names(path: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut small = [0; 512];
    let list = match llistxattr(path, &mut small[..]) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Ok(len) => small[..len].to_vec(),
        Err(Errno::RANGE) => {
            let mut large = vec![0; NAMES_MAX];
            let len = llistxattr(path, &mut large[..])?;
            large.truncate(len);
            large
        }
        Err(error) => return Err(error),
    };
    let names = list
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    Ok(names.map(<[u8]>::to_vec).collect())
}

/// The xattrs that belong to the user: `user.*` and access lists, sorted.
pub(super) fn users(path: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    for name in names(path)? {
        if name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_") {
            let mut value = vec![0; VALUE_MAX];
            let len = lgetxattr(path, &name[..], &mut value[..])?;
            value.truncate(len);
            found.push((name, value));
        }
    }
    found.sort();
    Ok(found)
}

/// Gives `name` in `to` the user's xattrs, owner and mode of `from`; not the mtime.
pub(super) fn copy(from: &OwnedFd, to: &OwnedFd, name: &[u8]) -> Result<Stat> {
    let stat = fstat(from)?;
    let target = through(to, name);
    for (xattr, value) in users(&through(from, b"."))? {
        ops::set_xattr(&target, &xattr, &value)?;
    }
    ops::set_owner(to, name, stat.st_uid, stat.st_gid)?;
    ops::set_mode(to, name, stat.st_mode)?;
    Ok(stat)
}

/// An mtime as the value of [`MTIME`].
pub(super) fn to_mark(mtime: Timespec) -> Vec<u8> {
    format!("{}.{}", mtime.tv_sec, mtime.tv_nsec).into_bytes()
}

pub(super) fn from_mark(value: &[u8]) -> Option<Timespec> {
    let (seconds, nanos) = std::str::from_utf8(value).ok()?.split_once('.')?;
    Some(Timespec {
        tv_sec: seconds.parse().ok()?,
        tv_nsec: nanos.parse().ok()?,
    })
}
