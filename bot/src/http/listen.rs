//! Opens the listeners and keeps the token.

use std::{
    fs::{DirBuilder, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rand::RngCore;
use tokio::net::{TcpListener, UnixListener};

use crate::data_dir;

/// Why nobody can be answered.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error(
        "{address} is taken by another program: stop it, or set {key} in mayfly.toml \
         (MAYFLY__{}) to a free one, for example 127.0.0.1:8081",
        .key.to_uppercase().replace('.', "__")
    )]
    Taken { address: String, key: &'static str },
    #[error(
        "cannot listen on {address}: {source}: set {key} in mayfly.toml to an address of this host"
    )]
    Tcp {
        address: String,
        key: &'static str,
        source: io::Error,
    },
    #[error("the listener's own address cannot be read: {0}")]
    Address(io::Error),
    #[error("cannot make {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} holds no token: remove the file, a new one is made at the next start", .0.display())]
    BadToken(PathBuf),
}

/// The socket appears under its name when it already is 0600; one left by a dead process is
/// replaced. The caller holds the data dir's lock.
pub(super) fn unix(data_dir: &Path) -> Result<(UnixListener, SocketFile), ListenError> {
    let path = data_dir::socket(data_dir);
    let aside = data_dir.join(".socket");
    let listen = || {
        let _ = std::fs::remove_dir_all(&aside);
        DirBuilder::new().mode(0o700).create(&aside)?;
        let made = aside.join("s");
        let listener = UnixListener::bind(&made)?;
        std::fs::set_permissions(&made, Permissions::from_mode(0o600))?;
        let inode = std::fs::metadata(&made)?.ino();
        std::fs::rename(&made, &path)?;
        let file = SocketFile {
            path: path.clone(),
            inode,
        };
        std::fs::remove_dir(&aside)?;
        Ok((listener, file))
    };
    listen().map_err(|source| ListenError::File {
        path: path.clone(),
        source,
    })
}

/// The socket's name; gone when this is dropped, unless it is another server's by then.
#[derive(Debug)]
#[must_use = "commands find the server by it"]
pub struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = std::fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| found.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// `key` is where the address is configured.
pub(crate) async fn tcp(address: &str, key: &'static str) -> Result<TcpListener, ListenError> {
    let listening = TcpListener::bind(address).await;
    let address = address.to_owned();
    listening.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::Taken { address, key },
        _ => ListenError::Tcp {
            address,
            key,
            source,
        },
    })
}

/// The token of a data dir, made at its first start: 32 random bytes in hexadecimal.
pub fn read_or_make_token(data_dir: &Path) -> Result<String, ListenError> {
    let path = data_dir::token(data_dir);
    let file = |source| ListenError::File {
        path: path.clone(),
        source,
    };
    match std::fs::read_to_string(&path) {
        Ok(text) if text.trim().len() < 32 => Err(ListenError::BadToken(path)),
        Ok(text) => {
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(file)?;
            Ok(text.trim().to_owned())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => make_token(&path).map_err(file),
        Err(error) => Err(file(error)),
    }
}

/// Whole or not at all: written aside, then renamed.
fn make_token(path: &Path) -> io::Result<String> {
    let mut random = [0; 32];
    rand::rng().fill_bytes(&mut random);
    let token = hex::encode(random);
    let aside = path.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&aside)?;
    writeln!(file, "{token}")?;
    file.sync_all()?;
    std::fs::rename(&aside, path)?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_made_once_and_only_its_owner_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let made = read_or_make_token(dir.path()).unwrap();
        assert_eq!(made.len(), 64);
        let path = dir.path().join("token");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(read_or_make_token(dir.path()).unwrap(), made);
        assert_eq!(mode(), 0o600);
        std::fs::write(&path, "\n").unwrap();
        let refused = read_or_make_token(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("remove the file"), "{refused}");
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_taken_port_is_one_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let path = data_dir::socket(dir.path());
        let (_dead, stale) = unix(dir.path()).unwrap();
        let (_listener, held) = unix(dir.path()).unwrap();
        drop(stale);
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        drop(held);
        assert!(!path.exists());
        let first = tcp("127.0.0.1:0", "http.listen").await.unwrap();
        let address = first.local_addr().unwrap().to_string();
        let refused = tcp(&address, "http.listen").await.unwrap_err().to_string();
        assert!(
            refused.starts_with(&format!("{address} is taken")),
            "{refused}"
        );
        assert!(refused.contains("http.listen"));
    }
}
