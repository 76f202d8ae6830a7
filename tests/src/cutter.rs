//! A network before a platform: it passes on, holds everything up, or cuts connections in the middle
//! of what comes back.

use std::{
    collections::VecDeque,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

#[derive(Debug, Default)]
struct State {
    /// After so many bytes of answers the next connections end.
    cuts: VecDeque<usize>,
    /// Nothing is answered.
    silent: bool,
    /// Everybody is answered this.
    says: Option<String>,
    open: Vec<TcpStream>,
}

/// See the module.
#[derive(Debug)]
pub struct Cutter {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cutter {
    /// Before a server at `127.0.0.1:PORT`.
    pub fn before(server: &str) -> Cutter {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let state = Arc::<Mutex<State>>::default();
        let (shared, server) = (state.clone(), server.to_owned());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (shared, server) = (shared.clone(), server.clone());
                thread::spawn(move || connection(client, &server, &shared));
            }
        });
        Cutter { address, state }
    }

    /// `127.0.0.1:PORT`
    pub fn address(&self) -> String {
        self.address.to_string()
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
        for open in locked(&self.state).open.drain(..) {
            // Those that have ended by themselves are no fault.
            let _ = open.shutdown(Shutdown::Both);
        }
    }
}

fn connection(client: TcpStream, server: &str, state: &Mutex<State>) {
    let Ok(kept) = client.try_clone() else { return };
    let (silent, says, cut) = {
        let mut state = locked(state);
        state.open.push(kept);
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
    let Ok(server) = TcpStream::connect(server) else {
        return;
    };
    let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    thread::spawn(move || pass(&from, &to, None));
    pass(&server, &client, cut);
}

/// Hears the other side out, so that it hears us.
fn answer(mut client: &TcpStream, says: &str) {
    let mut bytes = [0; 4096];
    if !matches!(client.read(&mut bytes), Ok(came) if came > 0) {
        return;
    }
    let _ = client.write_all(says.as_bytes());
    let _ = client.shutdown(Shutdown::Write);
    let _ = std::io::copy(&mut client, &mut std::io::sink());
}

/// Passes on until one of both ends or so many bytes have come; then neither goes on.
fn pass(mut from: &TcpStream, mut to: &TcpStream, most: Option<usize>) {
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
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
