//! What the fakes of the platforms share: a server on a port of its own, faults on demand, and a log
//! of what was called.

pub mod requests;
pub mod socket;

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    http::request::Parts,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// What goes wrong with one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It is not done, and the connection is cut.
    Cut,
    /// It is done, and the connection is cut before the answer.
    Lost,
    /// It is done, and the answer comes only after this time.
    Slow(Duration),
    /// It is done only after this time, whether or not the client still waits.
    Late(Duration),
    /// It is not done: too many requests, with the seconds to wait.
    TooMany(u32),
    /// It is not done, with this status and body.
    Refused(u16, String),
}

/// A call as it came.
pub type Call = Request<Bytes>;
/// What is answered.
pub type Answer = Response<Full<Bytes>>;

/// One platform.
pub trait Platform: Send + Sync + 'static {
    /// What the call is named in faults and log.
    fn name_of(&self, parts: &Parts) -> String;
    /// Does it.
    fn act(self: Arc<Self>, call: Call) -> impl Future<Output = Answer> + Send;
    /// Refuses it in the platform's way, with the seconds to wait.
    fn too_many(&self, seconds: u32) -> Answer;
}

/// Faults that wait for their calls, and the calls so far.
#[derive(Debug, Default)]
struct Book {
    faults: Mutex<HashMap<String, VecDeque<Fault>>>,
    calls: Mutex<Vec<(Instant, String)>>,
    /// Answers with success, by the name of their call; the first so many.
    answers: Mutex<Vec<(String, Value)>>,
}

/// Answers that are kept to be looked at.
const KEPT: usize = 500;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A platform that is being served; its end is the server's.
#[derive(Debug)]
pub struct Served<P> {
    /// Its state.
    pub platform: Arc<P>,
    address: SocketAddr,
    book: Arc<Book>,
    _stop: DropGuard,
}

impl<P: Platform> Served<P> {
    /// Serves on a free port of loopback, on a thread of its own.
    pub fn start(platform: P) -> Self {
        let (platform, book) = (Arc::new(platform), Arc::new(Book::default()));
        let (serving, log) = (platform.clone(), book.clone());
        let (address, stop) = on_a_thread(|listener| accept(listener, serving, log));
        Served {
            platform,
            address,
            book,
            _stop: stop,
        }
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next calls of this name go wrong so, one after the other.
    pub fn fault(&self, name: &str, faults: impl IntoIterator<Item = Fault>) {
        let mut waiting = locked(&self.book.faults);
        waiting.entry(name.to_owned()).or_default().extend(faults);
    }

    /// What was answered to calls that succeeded, each as `answer.NAME`.
    pub fn answered(&self) -> Vec<(String, Value)> {
        locked(&self.book.answers).clone()
    }

    /// When calls of this name came.
    pub fn calls(&self, name: &str) -> Vec<Instant> {
        let calls = locked(&self.book.calls);
        let ours = calls.iter().filter(|(_, called)| called == name);
        ours.map(|(at, _)| *at).collect()
    }
}

/// Serves on a free port of loopback, on a thread of its own, as long as the guard is there.
fn on_a_thread<F: Future<Output = ()>>(
    serve: impl FnOnce(TcpListener) -> F + Send + 'static,
) -> (SocketAddr, DropGuard) {
    let stop = CancellationToken::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("it can be set");
    let address = listener.local_addr().expect("it has an address");
    let stopping = stop.clone();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).expect("a listener");
            stopping.run_until_cancelled(serve(listener)).await;
        });
    });
    (address, stop.drop_guard())
}

/// Does this on a thread of its own, as long as the guard is there.
pub(crate) fn background(work: impl Future<Output = ()> + Send + 'static) -> DropGuard {
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(stopping.run_until_cancelled(work));
    });
    stop.drop_guard()
}

#[allow(clippy::disallowed_methods)]
async fn accept<P: Platform>(listener: TcpListener, platform: Arc<P>, book: Arc<Book>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let (platform, book) = (platform.clone(), book.clone());
        tokio::spawn(async move {
            let answer = service_fn(move |request: Request<Incoming>| {
                called(request, platform.clone(), book.clone())
            });
            // An error of ours is how a connection is cut.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}

/// The connection is to be cut.
#[derive(Debug)]
struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut on demand")
    }
}

impl std::error::Error for Cut {}

#[allow(clippy::disallowed_methods)]
async fn called<P: Platform>(
    request: Request<Incoming>,
    platform: Arc<P>,
    book: Arc<Book>,
) -> Result<Answer, Cut> {
    let (parts, body) = request.into_parts();
    let name = platform.name_of(&parts);
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    locked(&book.calls).push((Instant::now(), name.clone()));
    let fault = locked(&book.faults)
        .get_mut(&name)
        .and_then(VecDeque::pop_front);
    let call = Request::from_parts(parts, body);
    match fault {
        None => {
            let answer = platform.act(call).await;
            keep(&book, &name, &answer).await;
            Ok(answer)
        }
        Some(Fault::Cut) => Err(Cut),
        Some(Fault::Lost) => {
            platform.act(call).await;
            Err(Cut)
        }
        Some(Fault::Slow(pause)) => {
            let answer = platform.act(call).await;
            tokio::time::sleep(pause).await;
            Ok(answer)
        }
        Some(Fault::Late(pause)) => {
            let later = tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                platform.act(call).await
            });
            later.await.map_err(|_| Cut)
        }
        Some(Fault::TooMany(seconds)) => Ok(platform.too_many(seconds)),
        Some(Fault::Refused(status, body)) => Ok(json(status, body)),
    }
}

async fn keep(book: &Book, name: &str, answer: &Answer) {
    if answer.status() != 200 || locked(&book.answers).len() >= KEPT {
        return;
    }
    let Ok(body) = answer.body().clone().collect().await;
    if let Ok(value) = serde_json::from_slice(&body.to_bytes()) {
        locked(&book.answers).push((format!("answer.{name}"), value));
    }
}

/// An answer of this status with a JSON body.
pub fn json(status: u16, body: impl Into<Bytes>) -> Answer {
    let answer = Response::builder()
        .status(status)
        .header("content-type", "application/json");
    answer
        .body(Full::new(body.into()))
        .expect("a status and a body")
}

/// Looks again until `seen` finds something; fails after `patience` with what was wanted.
pub fn wait_for<T>(patience: Duration, wanted: &str, mut seen: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = seen() {
            return found;
        }
        assert!(
            Instant::now() < deadline,
            "not within {patience:?}: {wanted}"
        );
        thread::sleep(Duration::from_millis(10));
    }
}
