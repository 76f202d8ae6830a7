//! A front before a real engine: it answers some requests itself, holds others up, and passes the
//! rest on. What an engine does wrong once a year is said here on demand.

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use tempfile::TempDir;

/// One request, as the engine would see it.
#[derive(Debug, Clone)]
pub struct Request {
    /// For example `DELETE`.
    pub method: String,
    /// Without the version: `/containers/NAME/start`.
    pub path: String,
}

impl Request {
    /// The container that is asked to start.
    pub fn starts(&self) -> bool {
        self.method == "POST" && self.path.ends_with("/start")
    }

    /// A container is to be removed.
    pub fn removes_container(&self) -> bool {
        self.method == "DELETE" && self.path.starts_with("/containers/")
    }
}

/// What the front does with a request.
#[derive(Debug, Clone)]
pub enum Act {
    /// The engine answers.
    Pass,
    /// The front answers with this status and message, and the engine hears nothing of it.
    Answer(u16, &'static str),
    /// The front reports progress so often, with this pause, as an engine that pulls.
    Progress(u32, Duration),
}

type Rule = dyn Fn(&Request) -> Act + Send + Sync;

/// See the module.
pub struct Front {
    folder: TempDir,
    heard: Arc<Mutex<Vec<Request>>>,
}

impl Front {
    /// Before the usual engine. The rule may block: its request waits so long.
    pub fn new(rule: impl Fn(&Request) -> Act + Send + Sync + 'static) -> Front {
        Front::cutting(None, rule)
    }

    /// As a client with a read time-out: a connection on which nothing came for so long is cut.
    pub fn cutting(
        quiet: Option<Duration>,
        rule: impl Fn(&Request) -> Act + Send + Sync + 'static,
    ) -> Front {
        let folder = tempfile::Builder::new()
            .prefix("mf")
            .tempdir()
            .expect("a temporary folder");
        let listener = UnixListener::bind(folder.path().join("engine")).expect("a socket");
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (log, rule): (_, Arc<Rule>) = (heard.clone(), Arc::new(rule));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (log, rule) = (log.clone(), rule.clone());
                thread::spawn(move || serve(client, quiet, &log, &*rule));
            }
        });
        Front { folder, heard }
    }

    /// As in `DOCKER_HOST`.
    pub fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// All requests so far.
    pub fn heard(&self) -> Vec<Request> {
        self.heard.lock().expect("a log").clone()
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("engine")
    }
}

/// One request per connection: both sides are told to close after it.
fn serve(mut client: UnixStream, quiet: Option<Duration>, log: &Mutex<Vec<Request>>, rule: &Rule) {
    let Ok(Some((request, bytes))) = read(&mut client) else {
        return;
    };
    log.lock().expect("a log").push(request.clone());
    let done = match rule(&request) {
        Act::Pass => pass(&mut client, &bytes, quiet),
        Act::Answer(status, message) => answer(&mut client, status, message),
        Act::Progress(times, pause) => progress(&mut client, times, pause),
    };
    // A client that went away is its own business.
    let _ = done.and_then(|()| client.shutdown(Shutdown::Both));
}

fn read(client: &mut UnixStream) -> io::Result<Option<(Request, Vec<u8>)>> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if !more(client, &mut bytes)? {
            return Ok(None);
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let mut lines = text.lines();
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (
        first.next().unwrap_or_default(),
        first.next().unwrap_or_default(),
    );
    let path = target.split('?').next().unwrap_or_default();
    let path = match path.strip_prefix("/v1.").and_then(|rest| rest.find('/')) {
        Some(at) => &path["/v1.".len() + at..],
        None => path,
    };
    let request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
    };
    let length: usize = lines
        .clone()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(0, |(_, value)| value.trim().parse().unwrap_or(0));
    while bytes.len() < head + length {
        if !more(client, &mut bytes)? {
            return Ok(None);
        }
    }
    let kept = lines
        .filter(|line| !line.to_ascii_lowercase().starts_with("connection:") && !line.is_empty());
    let mut rewritten = format!("{method} {target} HTTP/1.1\r\nconnection: close\r\n");
    kept.for_each(|line| rewritten.push_str(&format!("{line}\r\n")));
    rewritten.push_str("\r\n");
    let mut whole = rewritten.into_bytes();
    whole.extend_from_slice(&bytes[head..]);
    Ok(Some((request, whole)))
}

fn more(stream: &mut UnixStream, bytes: &mut Vec<u8>) -> io::Result<bool> {
    let mut buffer = [0; 64 << 10];
    let count = stream.read(&mut buffer)?;
    bytes.extend_from_slice(&buffer[..count]);
    Ok(count > 0)
}

fn pass(client: &mut UnixStream, request: &[u8], quiet: Option<Duration>) -> io::Result<()> {
    let mut engine = UnixStream::connect(Path::new("/var/run/docker.sock"))?;
    engine.set_read_timeout(quiet)?;
    engine.write_all(request)?;
    io::copy(&mut engine, client).map(drop)
}

fn answer(client: &mut UnixStream, status: u16, message: &str) -> io::Result<()> {
    let body = format!(r#"{{"message":"{message}"}}"#);
    write!(
        client,
        "HTTP/1.1 {status} scripted\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn progress(client: &mut UnixStream, times: u32, pause: Duration) -> io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
    client.write_all(head.as_bytes())?;
    for _ in 0..times {
        thread::sleep(pause);
        client.write_all(b"{\"status\":\"Downloading\"}\r\n")?;
    }
    Ok(())
}
