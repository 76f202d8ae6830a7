//! The WebSocket side of a fake platform, on a port of its own.

use std::{net::SocketAddr, sync::Arc};

use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::{WebSocketStream, tungstenite};
use tokio_util::sync::DropGuard;

use super::on_a_thread;

/// One connection.
pub type Socket = WebSocketStream<TcpStream>;

/// A platform that is dialled.
pub trait Dialled: Send + Sync + 'static {
    /// Speaks to one client until either side has had enough. `path` holds the query too. May be
    /// dropped at any `await`, which cuts the connection.
    fn speak(self: Arc<Self>, socket: Socket, path: String) -> impl Future<Output = ()> + Send;
}

/// Sockets that are being served; they end with this.
#[derive(Debug)]
pub struct Sockets {
    address: SocketAddr,
    _stop: DropGuard,
}

impl Sockets {
    /// Serves on a free port of loopback, on a thread of its own.
    pub fn start<P: Dialled>(platform: Arc<P>) -> Self {
        let (address, stop) = on_a_thread(|listener| accept(listener, platform));
        Sockets {
            address,
            _stop: stop,
        }
    }

    /// `ws://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("ws://{}", self.address)
    }
}

#[allow(clippy::disallowed_methods, clippy::result_large_err)]
async fn accept<P: Dialled>(listener: TcpListener, platform: Arc<P>) {
    while let Ok((stream, _)) = listener.accept().await {
        let platform = platform.clone();
        tokio::spawn(async move {
            let mut path = String::new();
            let read = |request: &tungstenite::handshake::server::Request, response| {
                path = request.uri().to_string();
                Ok(response)
            };
            if let Ok(socket) = tokio_tungstenite::accept_hdr_async(stream, read).await {
                platform.speak(socket, path).await;
            }
        });
    }
}
