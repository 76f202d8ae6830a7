//! A network before a server: it passes on, holds everything up, or cuts connections in the middle
//! of what comes back.

use std::{
    collections::{HashMap, VecDeque},
    fs::File,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    os::{
        fd::OwnedFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use rustix::net::{Shutdown, shutdown};
use tempfile::TempDir;

/// One end of a connection, whatever its address is like.
type End = File;

#[derive(Debug, Default)]
struct State {
    /// After so many bytes of answers the next connections end.
    cuts: VecDeque<usize>,
    /// Nothing is answered.
    silent: bool,
    /// Everybody is answered this.
    says: Option<String>,
    /// Connections that have not ended, by when they came.
    open: HashMap<u64, End>,
    came: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Cutter {
    address: String,
    state: Arc<Mutex<State>>,
    /// Of its socket, where it has one.
    _folder: Option<TempDir>,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cutter {
    /// Before a server at `127.0.0.1:PORT`; listens at such an address too.
    pub fn before(server: &str) -> Cutter {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let server = server.to_owned();
        let accept = move || listener.accept().map(|(client, _)| end(client));
        let connect = move || TcpStream::connect(&server).map(end);
        Cutter {
            address: address.to_string(),
            state: passing(accept, connect),
            _folder: None,
        }
    }

    /// Before a server at a Unix socket; listens at another one.
    pub fn before_socket(server: &Path) -> Cutter {
        let folder = TempDir::with_prefix("mc").expect("a temporary folder");
        let place = folder.path().join("socket");
        let listener = UnixListener::bind(&place).expect("a socket");
        let server = server.to_owned();
        let accept = move || listener.accept().map(|(client, _)| end(client));
        let connect = move || UnixStream::connect(&server).map(end);
        Cutter {
            address: place.display().to_string(),
            state: passing(accept, connect),
            _folder: Some(folder),
        }
    }

    /// `127.0.0.1:PORT`, or the socket's path.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The next connections are cut, each after so many bytes of answers.
    pub fn cut_after(&self, bytes: impl IntoIterator<Item = usize>) {
        locked(&self.state).cuts.extend(bytes);
    }

    /// How many of them are to be cut yet.
    pub fn cuts_left(&self) -> usize {
        locked(&self.state).cuts.len()
    }

    /// Whether whoever comes from now on hears nothing.
    pub fn silent(&self, on: bool) {
        locked(&self.state).silent = on;
    }

    /// Whoever comes from now on gets this answer and no other, or with none the server's.
    pub fn says(&self, answer: Option<&str>) {
        locked(&self.state).says = answer.map(str::to_owned);
    }

    /// Ends all connections that are open.
    pub fn cut_all(&self) {
        for (_, open) in locked(&self.state).open.drain() {
            // Those that have ended by themselves are no fault.
            let _ = shutdown(&open, Shutdown::Both);
        }
    }
}

fn end(socket: impl Into<OwnedFd>) -> End {
    File::from(socket.into())
}

/// Passes on whoever comes, each by threads of its own.
fn passing(
    accept: impl FnMut() -> io::Result<End> + Send + 'static,
    connect: impl Fn() -> io::Result<End> + Send + Sync + 'static,
) -> Arc<Mutex<State>> {
    let state = Arc::<Mutex<State>>::default();
    let (shared, connect) = (state.clone(), Arc::new(connect));
    thread::spawn(move || {
        for client in std::iter::repeat_with(accept).flatten() {
            let (shared, connect) = (shared.clone(), connect.clone());
            thread::spawn(move || noted(client, &*connect, &shared));
        }
    });
    state
}

/// A connection that has ended is not kept: there are thousands.
fn noted(client: End, connect: &impl Fn() -> io::Result<End>, state: &Mutex<State>) {
    let Ok(kept) = client.try_clone() else { return };
    let number = {
        let mut state = locked(state);
        state.came += 1;
        let number = state.came;
        state.open.insert(number, kept);
        number
    };
    connection(client, connect, state);
    locked(state).open.remove(&number);
}

fn connection(client: End, connect: &impl Fn() -> io::Result<End>, state: &Mutex<State>) {
    let (silent, says, cut) = {
        let mut state = locked(state);
        let cut = match state.silent {
            true => None,
            false => state.cuts.pop_front(),
        };
        (state.silent, state.says.clone(), cut)
    };
    if let Some(says) = says {
        answer(&client, &says);
        return;
    }
    if silent {
        // Until the other side gives up.
        let _ = std::io::copy(&mut &client, &mut std::io::sink());
        return;
    }
    let Ok(server) = connect() else {
        return;
    };
    let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    thread::spawn(move || pass(&from, &to, None));
    pass(&server, &client, cut);
}

/// Hears the other side out, so that it hears us.
fn answer(mut client: &End, says: &str) {
    let mut bytes = [0; 4096];
    if !matches!(client.read(&mut bytes), Ok(came) if came > 0) {
        return;
    }
    let _ = client.write_all(says.as_bytes());
    let _ = shutdown(client, Shutdown::Write);
    let _ = std::io::copy(&mut client, &mut std::io::sink());
}

/// Passes on until one of both ends or so many bytes have come; then neither goes on.
fn pass(mut from: &End, mut to: &End, most: Option<usize>) {
    let mut left = most.unwrap_or(usize::MAX);
    let mut bytes = [0; 4096];
    while left > 0 {
        let most = bytes.len().min(left);
        match from.read(&mut bytes[..most]) {
            Ok(0) | Err(_) => break,
            Ok(came) => {
                if to.write_all(&bytes[..came]).is_err() {
                    break;
                }
                left -= came;
            }
        }
    }
    let _ = shutdown(from, Shutdown::Both);
    let _ = shutdown(to, Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_connection_that_has_ended_is_not_kept() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let cutter = Cutter::before(&server.local_addr().expect("an address").to_string());
        let mut said = String::new();
        for _ in 0..3 {
            let mut client = TcpStream::connect(cutter.address()).expect("it listens");
            let (mut served, _) = server.accept().expect("it is passed on");
            served.write_all(b"word ").expect("it is open");
            drop(served);
            client.read_to_string(&mut said).expect("it is passed on");
        }
        assert_eq!(said, "word word word ");
        let deadline = Instant::now() + Duration::from_secs(10);
        while !locked(&cutter.state).open.is_empty() {
            assert!(Instant::now() < deadline, "{:?}", cutter.state);
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(locked(&cutter.state).came, 3);
    }
}
