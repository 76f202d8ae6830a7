//! How a command reaches the service: through the server that runs, or by being one for a moment.
//!
//! Both ways go over the same socket, so a verb cannot tell them apart.

use std::{io, time::Duration};

use mayfly_orchestrator::{service::Begin, worker::host_disk::HostDisk};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    client::Client,
    config::Config,
    data_dir::{self, DataDir, DataDirError, Purpose},
    exit::{Exit, Failure},
    http::{Server, SocketFile},
    wire::{self, Running},
};

/// How long a server that is just starting or ending may hold the lock without answering.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a server that went away is waited for: its manager starts it again.
const BACK: Duration = Duration::from_secs(10);
/// So often a command begins again because the server it talked to ended.
const AGAIN: u32 = 3;

/// Does a command's work, and what it started in passing is brought to rest.
///
/// `work` may be called again when the server went away: its writes carry idempotency keys.
pub(crate) async fn through<T>(
    config: &Config,
    work: impl AsyncFn(&Client) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut signals = Signals::new()?;
    let mut left = AGAIN;
    let mut back = Duration::ZERO;
    loop {
        let opened = tokio::select! {
            opened = Door::open(config, back) => opened,
            () = signals.next() => Err(interrupted()),
        };
        let door = opened?;
        let done = tokio::select! {
            done = work(&door.client) => done,
            () = signals.next() => Err(interrupted()),
        };
        let ours = door.own.is_some();
        if ours && matches!(&done, Err(failure) if failure.exit == Exit::Interrupted) {
            tracing::warn!("running ticks may end; a second signal does not wait for them");
        }
        tokio::select! {
            () = door.close() => {}
            () = signals.next() => Exit::Interrupted.now(),
        }
        match done {
            Err(failure) if failure.server_gone && !ours && left > 0 => {
                left -= 1;
                back = BACK;
                tracing::warn!("the server went away: waiting for it to come back");
            }
            done => return done,
        }
    }
}

fn interrupted() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted")
}

struct Door {
    client: Client,
    own: Option<Own>,
}

impl Door {
    /// A server that went away has the time `back` before the command is one itself.
    async fn open(config: &Config, back: Duration) -> Result<Self, Failure> {
        let path = &config.data_dir;
        data_dir::check_path(path).map_err(fault)?;
        let client = Client::new(data_dir::socket(path));
        let since = tokio::time::Instant::now();
        loop {
            match client.probe().await {
                Ok(()) => return Ok(Door { client, own: None }),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(fault(DataDirError::NoPermission(path.clone())));
                }
                Err(_) => {}
            }
            if since.elapsed() < back {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            if config.serve.role.has_engine() {
                root()?;
            }
            match DataDir::hold(path, Purpose::Command) {
                Ok(held) => {
                    let own = Some(serve(config, held).await?);
                    return Ok(Door { client, own });
                }
                Err(DataDirError::InUse { .. }) if since.elapsed() < back + PATIENCE => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error @ DataDirError::InUse { .. }) => {
                    let sentence = format!("no server answers, and {error}");
                    return Err(Failure::new(Exit::DataDir, sentence));
                }
                Err(error) => return Err(fault(error)),
            }
        }
    }

    async fn close(self) {
        if let Some(Own { running, .. }) = &self.own {
            running.drain().await;
            running.supervisor.stop(Duration::from_secs(10)).await;
            running.leave().await;
        }
    }
}

/// The name goes before the lock does.
struct Own {
    _socket: SocketFile,
    running: Running,
}

/// The service without its TCP listener, and without ticks until a message is sent.
async fn serve(config: &Config, held: DataDir) -> Result<Own, Failure> {
    let path = held.path().to_owned();
    HostDisk::new(path.clone(), config.disk).make_room();
    let started = wire::start(config, held, false, Begin::WithAMessage).await;
    let running = started.map_err(|error| Failure::new(error.exit(), error))?;
    let server = Server::on_socket(&path);
    let server = server.map_err(|error| Failure::new(Exit::DataDir, error))?;
    let socket = server.start(running.commands.clone(), &running.supervisor);
    Ok(Own {
        _socket: socket,
        running,
    })
}

/// Whoever runs agents mounts their files and keeps the files' owners.
pub(crate) fn root() -> Result<(), Failure> {
    let me = rustix::process::geteuid();
    match me.is_root() {
        true => Ok(()),
        false => Err(Failure::new(
            Exit::NotRoot,
            format!(
                "no server answers, and user id {} cannot run agents: run mayfly as root, for \
                 example with sudo",
                me.as_raw()
            ),
        )),
    }
}

fn fault(error: DataDirError) -> Failure {
    Failure::new(Exit::DataDir, error)
}

/// SIGINT and SIGTERM.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::new(Exit::Internal, error));
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
