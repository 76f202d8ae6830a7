//! The API, on a unix socket in the data dir and on TCP.
//!
//! Whoever can open the socket is the owner and needs no token. Loopback is not authentication:
//! TCP wants the token of the data dir, except for the two health paths and the page, which has its
//! own sign-in.

mod blobs;
mod body;
mod document;
mod events;
mod files;
mod gate;
mod listen;
mod owner;
mod patience;
mod portable;
mod problem;
mod routes;
mod serve;
pub mod wire;

use std::{path::Path, sync::Arc};

use axum::middleware;
use mayfly_orchestrator::{command::Commands, supervise::Supervisor};
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;

pub(crate) use blobs::{Numbered, fetched, receive};
pub(crate) use body::{LIMIT as BODY_LIMIT, whole};
use document::Door;
pub(crate) use files::unescaped;
pub(crate) use gate::{Gate, same_origin, text};
pub(crate) use listen::tcp;
pub use listen::{ListenError, SocketFile, read_or_make_token};
pub use owner::{BackupBody, LayersBody};
pub use portable::{ExportBody, ImportBody};
pub use problem::Problem;
pub(crate) use routes::Asked;
pub(crate) use serve::{BODY as BODY_TIME, serve};

use crate::page;

/// What every handler may use.
#[derive(Clone)]
pub(crate) struct Api {
    commands: Commands,
    /// Cancelled when waits should end.
    stopping: CancellationToken,
    /// None without a TCP listener.
    links: Option<page::Links>,
}

/// Listeners that are open; nothing is answered before [`Server::start`].
#[derive(Debug)]
pub struct Server {
    unix: UnixListener,
    file: SocketFile,
    tcp: Option<Tcp>,
}

#[derive(Debug)]
struct Tcp {
    listener: TcpListener,
    gate: Arc<Gate>,
    sign_in: Arc<page::SignIn>,
}

impl Server {
    /// Opens the socket of a held data dir.
    pub fn on_socket(data_dir: &Path) -> Result<Self, ListenError> {
        let (unix, file) = listen::unix(data_dir)?;
        Ok(Server {
            unix,
            file,
            tcp: None,
        })
    }

    /// Also opens the TCP listener, unless it is `off`.
    pub async fn and_tcp(mut self, listen: &str, data_dir: &Path) -> Result<Self, ListenError> {
        let token = read_or_make_token(data_dir)?;
        if listen != "off" {
            let listener = listen::tcp(listen, "http.listen").await?;
            let address = listener.local_addr().map_err(ListenError::Address)?;
            self.tcp = Some(Tcp {
                listener,
                gate: Arc::new(Gate::new(token, address)),
                sign_in: Arc::default(),
            });
        }
        Ok(self)
    }

    /// Where it listens beside the socket.
    pub fn address(&self) -> Option<std::net::SocketAddr> {
        self.tcp.as_ref().map(|tcp| tcp.gate.listen())
    }

    /// What makes links to the page.
    pub(crate) fn links(&self) -> Option<page::Links> {
        self.tcp.as_ref().map(|tcp| page::Links {
            sign_in: tcp.sign_in.clone(),
            listen: tcp.gate.listen(),
        })
    }

    /// Answers until the supervisor stops; requests under way are finished first. The caller keeps
    /// the socket's name for as long as it holds the data dir.
    pub fn start(self, commands: Commands, supervisor: &Supervisor) -> SocketFile {
        let api = Api {
            commands: commands.clone(),
            stopping: supervisor.stopping(),
            links: self.links(),
        };
        let every = routes::described()
            .merge(events::described())
            .merge(blobs::described())
            .merge(portable::described());
        let plain = every
            .clone()
            .merge(owner::described())
            .merge(portable::owner())
            .served(api.clone(), Door::Owner);
        let unix = serve(self.unix, routes::finished(plain), supervisor.clone());
        supervisor.standing("http on the socket", unix);
        if let Some(tcp) = self.tcp {
            let checked = middleware::from_fn_with_state(tcp.gate.clone(), gate::check);
            let gated = routes::finished(every.served(api, Door::Token)).layer(checked);
            let both = gated.merge(page::router(
                commands,
                tcp.gate,
                tcp.sign_in,
                supervisor.stopping(),
            ));
            let tcp = serve(tcp.listener, both, supervisor.clone());
            supervisor.standing("http on tcp", tcp);
        }
        self.file
    }
}
