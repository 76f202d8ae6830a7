//! What a child with the agent's user does for `Put` and `Get`.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Read, Write, stdin, stdout};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use mayfly_init::protocol::{Get, Put};
use rustix::fs::{Mode, OFlags, open};

/// Copies standard input to the file.
pub(crate) fn put(order: &Put) -> Result<(), String> {
    let path = &order.path;
    let failed = |error: io::Error| format!("{path} cannot be written: {error}.");
    if let Some(folder) = Path::new(path).parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(folder)
            .map_err(failed)?;
    }
    let mode = order.mode & 0o777;
    // Not blocking, so that a fifo is refused instead of waited for.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NONBLOCK;
    let file = open(
        path.as_str(),
        flags | OFlags::CLOEXEC,
        Mode::from_raw_mode(mode),
    );
    let mut file = File::from(file.map_err(|error| failed(error.into()))?);
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(format!("{path} is not a regular file."));
    }
    let copied = copy(&mut stdin_file().map_err(failed)?, &mut file, order.size).map_err(failed)?;
    if copied != order.size {
        let size = order.size;
        let more = if copied > size { "more" } else { "fewer" };
        return Err(format!("{path} was promised {size} bytes, {more} came."));
    }
    file.set_permissions(Permissions::from_mode(mode))
        .map_err(failed)
}

/// Copies the file to standard output.
pub(crate) fn get(order: &Get) -> Result<(), String> {
    let path = &order.path;
    let failed = |error: io::Error| format!("{path} cannot be read: {error}.");
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = match open(path.as_str(), flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::LOOP) => {
            return Err(format!("{path} is a link, links are not followed."));
        }
        Err(rustix::io::Errno::NOENT) => return Err(format!("{path} does not exist.")),
        Err(error) => return Err(failed(error.into())),
    };
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(format!("{path} is not a regular file."));
    }
    let long = || format!("{path} is longer than {} bytes.", order.cap);
    if found.len() > order.cap {
        return Err(long());
    }
    let mut out = File::from(stdout().as_fd().try_clone_to_owned().map_err(failed)?);
    if copy(&mut file, &mut out, order.cap).map_err(failed)? > order.cap {
        return Err(long());
    }
    Ok(())
}

fn stdin_file() -> io::Result<File> {
    stdin().as_fd().try_clone_to_owned().map(File::from)
}

/// Copies at most `most` bytes and looks for one more, which is counted but not copied.
fn copy(from: &mut File, to: &mut File, most: u64) -> io::Result<u64> {
    let copied = io::copy(&mut Read::by_ref(from).take(most), to)?;
    to.flush()?;
    if copied < most {
        return Ok(copied);
    }
    let mut one = [0];
    loop {
        match from.read(&mut one) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(|more| copied + more as u64),
        }
    }
}
