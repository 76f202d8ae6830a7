//! `mayfly serve`.

use std::{
    io::{IsTerminal as _, stdout},
    path::Path,
    time::Duration,
};

use mayfly_orchestrator::{service::Begin, worker::host_disk::HostDisk};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::{
    cli::Context,
    data_dir::{self, DataDir, DataDirError, Purpose},
    door::{self, Signals},
    exit::{Exit, Failure},
    hooks,
    http::Server,
    page::Links,
    wire::{self, Running},
};

/// Requests under way and standing tasks may take so long to end.
const GRACE: Duration = Duration::from_secs(10);

pub(crate) async fn run(context: Context, simulate: bool) -> Result<Exit, Failure> {
    without_core_dumps();
    let mut signals = Signals::new()?;
    let config = &context.loaded.config;
    let role = config.serve.role;
    if !simulate && role.has_engine() {
        door::root()?;
    }
    let held = tokio::select! {
        held = hold(&config.data_dir) => held,
        () = signals.next() => return Ok(Exit::Ok),
    };
    let held = held.map_err(|error| Failure::new(Exit::DataDir, error))?;
    serve(&context, held, simulate, &mut signals).await
}

/// A command that is at work in the data dir is waited for, another server is not.
async fn hold(path: &Path) -> Result<DataDir, DataDirError> {
    let mut waiting = false;
    loop {
        match DataDir::hold(path, Purpose::Serve) {
            Err(error @ DataDirError::InUse { .. }) if error.passes() => {
                if !waiting {
                    tracing::info!("{error}; waiting for its end");
                }
                waiting = true;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            held => return held,
        }
    }
}

async fn serve(
    context: &Context,
    held: DataDir,
    simulate: bool,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let config = &context.loaded.config;
    let path = held.path().to_owned();
    HostDisk::new(path.clone(), config.disk).make_room();
    // Both are open before anything is started: a taken port is told at once, and commands that
    // come early wait for their answer.
    // A worker is asked on its socket only: people ask the bot.
    let listen = match config.serve.role.has_chats() {
        true => &config.http.listen,
        false => "off",
    };
    let server = open(&path, listen).await?;
    let requests = match config.takes_requests() {
        false => None,
        true => Some(open_hooks(&config.hooks.listen).await?),
    };
    let started = tokio::select! {
        started = wire::start(config, held, simulate, Begin::AtOnce) => started,
        () = signals.next() => return Ok(Exit::Ok),
    };
    let running = started.map_err(|error| Failure::new(error.exit(), error))?;
    let line = listens(server.address(), &path);
    let links = server.links();
    if let Some(requests) = requests {
        let (hooks, inbox) = (running.hooks.clone(), running.inbox.clone());
        let lines = requests.start(hooks, inbox, &running.supervisor);
        lines.iter().for_each(|line| context.screen.answer(line));
    }
    // Dropped before `running`, and with it the lock.
    let _socket = server.start(running.commands.clone(), &running.supervisor);
    context.screen.answer(&line);
    tell_paired(&running).await;
    if let Some(links) = links {
        context.screen.answer(&page(&links, stdout().is_terminal()));
    }
    let fault = tokio::select! {
        fault = running.supervisor.fault() => Some(fault),
        () = signals.next() => None,
    };
    come_to_rest(&running, fault.is_none(), signals).await;
    match fault {
        None => Ok(Exit::Ok),
        Some(fault) => Err(Failure::new(Exit::Internal, fault)),
    }
}

/// Whom no configuration names, and who may speak all the same.
async fn tell_paired(running: &Running) {
    match running.commands.paired().await {
        Ok(paired) if paired.is_empty() => {}
        Ok(paired) => tracing::info!(
            "{} may speak since they were paired: mayfly pair list",
            paired.len()
        ),
        Err(error) => tracing::warn!(%error, "who is paired cannot be read"),
    }
}

async fn open(path: &Path, listen: &str) -> Result<Server, Failure> {
    let on_socket = Server::on_socket(path);
    let on_socket = on_socket.map_err(|error| Failure::new(Exit::DataDir, error))?;
    let both = on_socket.and_tcp(listen, path).await;
    both.map_err(|error| Failure::new(Exit::Configuration, error))
}

async fn open_hooks(listen: &str) -> Result<hooks::Listener, Failure> {
    let open = hooks::Listener::open(listen).await;
    open.map_err(|error| Failure::new(Exit::Configuration, error))
}

fn listens(tcp: Option<std::net::SocketAddr>, data_dir: &Path) -> String {
    let socket = data_dir::socket(data_dir);
    let socket = socket.display();
    match tcp {
        Some(address) => format!("mayfly listens on http://{address} and {socket}"),
        None => format!("mayfly listens on {socket}"),
    }
}

/// Only whoever sees the terminal started the server; a log may be read by others, and kept.
fn page(links: &Links, is_terminal: bool) -> String {
    match is_terminal {
        true => format!("the page, once within ten minutes: {}", links.make().link),
        false => "the page: mayfly page prints a link to it".to_owned(),
    }
}

/// Ticks end first, then what answers about them. A second signal does not wait.
async fn come_to_rest(running: &Running, drain: bool, signals: &mut Signals) {
    let rest = async {
        if drain {
            tracing::info!("running ticks may end; a second signal does not wait for them");
            if !running.drain().await {
                return;
            }
        }
        if !running.supervisor.stop(GRACE).await {
            tracing::warn!("not everything ended within {} s", GRACE.as_secs());
            return;
        }
        running.leave().await;
    };
    tokio::select! {
        () = rest => {}
        () = signals.next() => Exit::Interrupted.now(),
    }
}

/// A dump would hold tokens and chats.
fn without_core_dumps() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::warn!(%error, "core dumps could not be switched off");
    }
}
