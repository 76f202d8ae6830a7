//! The folder of a sandbox's two sockets: root's alone, mounted read-only into the sandbox.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
};

use mayfly_init::arguments::CONTROL;
use tokio::net::UnixListener;

use super::ControlError;

/// Makes the folder, if it is missing, so that only root enters it (mode 0700).
pub fn make_sockets_dir(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
}

/// Listens on a socket of this name in the folder, root's alone (mode 0600).
pub fn listen(folder: &Path, name: &str) -> io::Result<UnixListener> {
    let path = folder.join(name);
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Listens for init's one connection.
pub(super) fn listen_control(folder: &Path) -> io::Result<UnixListener> {
    make_sockets_dir(folder)?;
    listen(folder, CONTROL)
}

/// Whether whoever connected is root and the process `init` as this host counts.
pub fn check_peer(stream: &tokio::net::UnixStream, init: u32) -> Result<(), ControlError> {
    let peer = stream.peer_cred()?;
    match (peer.uid(), peer.pid()) {
        (0, Some(pid)) if pid as u32 == init => Ok(()),
        (_, None | Some(0)) => Err(ControlError::Stranger(
            "its process is in no namespace of ours; a worker in a container needs pid: host"
                .to_owned(),
        )),
        (uid, Some(pid)) => Err(ControlError::Stranger(format!(
            "process {pid} of user {uid} instead of process {init} of user 0"
        ))),
    }
}
