//! Looks into states: what changed, what lies where, how they came from each other.

use std::{
    ffi::{OsStr, OsString},
    io::{self, IsTerminal, Write, stdout},
    os::unix::ffi::OsStrExt,
    sync::Mutex,
};

use crate::{
    cli::Context,
    client::files::{Passed, Span},
    door,
    exit::{Exit, Failure},
    render,
};

/// Where relative paths begin.
const WORK: &[u8] = b"/work";
/// In place of a tick: the state as it is now.
const HEAD: &str = "head";

/// How a difference is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    Lines,
    Stat,
    Names,
}

pub(crate) async fn diff(
    context: &Context,
    agent: &str,
    from: Option<&str>,
    to: Option<&str>,
    shown: Shown,
) -> Result<Exit, Failure> {
    let (config, screen) = (&context.loaded.config, context.screen);
    let span = Span { from, to };
    if shown == Shown::Lines && !screen.json {
        let patch = door::through(config, async |client| Ok(client.patch(agent, span).await?));
        let patch = patch.await?;
        match stdout().is_terminal() {
            _ if patch.is_empty() => screen.notice("nothing changed"),
            true => screen.answer(&render::painted(&patch, screen)),
            false => write_all(&patch)?,
        }
        return Ok(Exit::Ok);
    }
    let text = shown == Shown::Lines;
    let view = door::through(config, async |client| {
        Ok(client.diff(agent, span, text).await?)
    });
    screen.show(&view.await?, |view, screen| match shown {
        Shown::Names => render::names(view),
        _ => render::diff(view, screen),
    });
    Ok(Exit::Ok)
}

pub(crate) async fn files(
    context: &Context,
    agent: &str,
    tick: Option<String>,
    path: Option<OsString>,
    recursive: bool,
) -> Result<Exit, Failure> {
    let (config, screen) = (&context.loaded.config, context.screen);
    // `files AGENT PATH` is plain where it cannot be a tick.
    let (tick, path) = match (tick, path) {
        (Some(path), None) if path.contains('/') => (None, Some(path.into())),
        other => other,
    };
    let tick = tick.filter(|tick| tick != HEAD);
    let path = absolute(path.as_deref());
    let view = door::through(config, async |client| {
        let files = client.files(agent, tick.as_deref(), &path, recursive);
        Ok(files.await?)
    });
    let view = view.await?;
    screen.show(&view, render::listing);
    Ok(Exit::Ok)
}

pub(crate) async fn cat(
    context: &Context,
    agent: &str,
    tick: &str,
    path: &OsStr,
) -> Result<Exit, Failure> {
    let path = absolute(Some(path));
    let tick = Some(tick).filter(|tick| *tick != HEAD);
    let terminal = stdout().is_terminal();
    let out = Mutex::new(match terminal {
        true => Out::Terminal(Vec::new()),
        false => Out::Raw,
    });
    let passed = door::through(&context.loaded.config, async |client| {
        let mut begun = false;
        // No one else takes it: the work is done once at a time.
        let mut out = std::mem::replace(&mut *out.lock().expect("not poisoned"), Out::Raw);
        let passed = client.cat(agent, tick, &path, &mut out, &mut begun).await;
        passed.map_err(|error| Failure {
            // What was written cannot be taken back.
            server_gone: !begun && matches!(error, crate::client::ClientError::Gone { .. }),
            ..Failure::from(error)
        })
    });
    match passed.await? {
        Passed::Whole | Passed::Unwanted => {
            let _ = stdout().lock().flush();
            Ok(Exit::Ok)
        }
        Passed::Other(view) => {
            let name = render::quoted(&path);
            let told = match &view.entry.target {
                Some(target) => format!(
                    "{name} is a link to {}, and links are not followed",
                    render::quoted(target.as_bytes())
                ),
                None => format!("{name} is a folder: mayfly agent files shows what is in it"),
            };
            Err(Failure::new(Exit::Refused, told))
        }
    }
}

pub(crate) async fn graph(context: &Context, agent: &str) -> Result<Exit, Failure> {
    let graph = door::through(&context.loaded.config, async |client| {
        Ok(client.graph(agent).await?)
    });
    context.screen.show(&graph.await?, render::graph);
    Ok(Exit::Ok)
}

fn absolute(path: Option<&OsStr>) -> Vec<u8> {
    match path.map(OsStr::as_bytes) {
        None => WORK.to_vec(),
        Some(path) if path.starts_with(b"/") => path.to_vec(),
        Some(path) => [WORK, path].join(&b'/'),
    }
}

fn write_all(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let told = format!("standard output cannot be written: {error}");
            Err(Failure::new(Exit::Internal, told))
        }
        _ => Ok(()),
    }
}

/// Standard output; on a terminal nothing in a file can steer it.
enum Out {
    Raw,
    /// The beginning of a character whose end is still to come.
    Terminal(Vec<u8>),
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Out::Raw => stdout().lock().write_all(bytes)?,
            Out::Terminal(rest) => {
                rest.extend_from_slice(bytes);
                let whole = match std::str::from_utf8(rest) {
                    Err(error) if error.error_len().is_none() => error.valid_up_to(),
                    _ => rest.len(),
                };
                let text = String::from_utf8_lossy(&rest[..whole]).into_owned();
                rest.drain(..whole);
                stdout()
                    .lock()
                    .write_all(render::printable(&text).as_bytes())?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        stdout().lock().flush()
    }
}
