//! The sandbox's only way out. Default is deny, and so far there is nothing but the default: each
//! request is answered 403 with one line, so that a program sees a reason and not a hang.

use std::{fs::Permissions, io, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use mayfly_init::arguments::GATEWAY;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::supervise::Supervisor;

const REFUSAL: &[u8] = b"HTTP/1.1 403 Forbidden\r\ncontent-type: text/plain\r\n\
content-length: 53\r\nconnection: close\r\n\r\nmayfly: this agent has no grant to reach the network\n";
/// A client that sends no request is let go.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest request head that is read before the answer.
const HEAD: usize = 16 << 10;

/// One tick's way out; closed when dropped.
#[derive(Debug)]
pub struct Session {
    _open: DropGuard,
}

impl Session {
    /// Listens on the tick's gateway socket. Only uid 0 with init's process id is answered.
    pub fn open(
        sockets: &Path,
        init_pid: Option<u32>,
        supervisor: &Supervisor,
    ) -> io::Result<Session> {
        let path = sockets.join(GATEWAY);
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let closed = CancellationToken::new();
        let (until, tasks) = (closed.clone(), supervisor.clone());
        supervisor.task("gateway", async move {
            let _ = until
                .run_until_cancelled(serve(listener, init_pid, tasks, until.clone()))
                .await;
        });
        Ok(Session {
            _open: closed.drop_guard(),
        })
    }
}

async fn serve(
    listener: UnixListener,
    init_pid: Option<u32>,
    tasks: Supervisor,
    until: CancellationToken,
) {
    while let Ok((stream, _)) = listener.accept().await {
        if !is_init(&stream, init_pid) {
            tracing::warn!("a stranger connected to a gateway socket");
            continue;
        }
        let until = until.clone();
        tasks.task("gateway request", async move {
            let _ = until
                .run_until_cancelled(tokio::time::timeout(PATIENCE, refuse(stream)))
                .await;
        });
    }
}

fn is_init(stream: &UnixStream, init_pid: Option<u32>) -> bool {
    let Ok(peer) = stream.peer_cred() else {
        return false;
    };
    let same = init_pid.is_none_or(|pid| peer.pid() == i32::try_from(pid).ok());
    peer.uid() == 0 && same
}

async fn refuse(mut stream: UnixStream) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < HEAD {
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
    }
    stream.write_all(REFUSAL).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_tells_its_true_length() {
        let text = std::str::from_utf8(REFUSAL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("content-length: {}", body.len())),
            "{}",
            body.len()
        );
    }
}
