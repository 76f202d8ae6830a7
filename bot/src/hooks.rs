//! Requests of chat platforms, on a listener of their own: it is for the internet, has no other path,
//! and takes only what a platform has signed.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::StreamExt as _;
use mayfly_adapters::hook::{Answer, Hook};
use mayfly_domain::Inbox;
use mayfly_orchestrator::supervise::Supervisor;
use tokio::{
    net::TcpListener,
    sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError},
};

use crate::http::{ListenError, Problem, serve, tcp, whole};

/// Largest body: Slack tells of an edited message of 40,000 characters with both its texts.
const LIMIT: usize = 2 << 20;
/// Bytes of bodies that are held at once, of all requests: only Slack's signature tells whose they
/// are, and that needs all of a body.
const ROOM: usize = 32 << 20;
/// Seconds after which it may be tried again, where there is no room.
const AGAIN: &str = "1";
/// Until a body is whole; the platforms wait no longer for their answer.
const BODY: Duration = Duration::from_secs(5);
/// Least time between two lines about what is refused.
const LINE: Duration = Duration::from_secs(1);
/// Before the platform's name.
const PREFIX: &str = "/hooks/";

/// Open, and answers nobody before [`Listener::start`].
#[derive(Debug)]
pub(crate) struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    pub(crate) async fn open(listen: &str) -> Result<Listener, ListenError> {
        let listener = tcp(listen, "hooks.listen").await?;
        let address = listener.local_addr().map_err(ListenError::Address)?;
        Ok(Listener { listener, address })
    }

    /// Answers until the supervisor stops. Returns a line for each path that is served.
    pub(crate) fn start(
        self,
        hooks: Vec<Arc<dyn Hook>>,
        inbox: Arc<dyn Inbox>,
        supervisor: &Supervisor,
    ) -> Vec<String> {
        let line = |hook: &Arc<dyn Hook>| {
            let platform = hook.platform();
            format!(
                "requests of {platform} come to http://{}{PREFIX}{platform}",
                self.address
            )
        };
        let lines = hooks.iter().map(line).collect();
        let served = serve(self.listener, router(hooks, inbox), supervisor.clone());
        supervisor.standing("requests of platforms", served);
        lines
    }
}

/// One handler and no route: what it does not know by name is nothing.
fn router(hooks: Vec<Arc<dyn Hook>>, inbox: Arc<dyn Inbox>) -> Router {
    let by_platform = |hook: Arc<dyn Hook>| (hook.platform(), hook);
    Router::new().fallback(answer).with_state(Hooks {
        hooks: Arc::new(hooks.into_iter().map(by_platform).collect()),
        inbox,
        room: Arc::new(Semaphore::new(ROOM)),
        refused: Arc::default(),
    })
}

#[derive(Clone)]
struct Hooks {
    hooks: Arc<BTreeMap<&'static str, Arc<dyn Hook>>>,
    inbox: Arc<dyn Inbox>,
    room: Arc<Semaphore>,
    refused: Arc<Mutex<Count>>,
}

/// What was refused since the latest line.
#[derive(Default)]
struct Count {
    refused: u64,
    told: Option<Instant>,
}

async fn answer(State(hooks): State<Hooks>, request: Request) -> Response {
    let path = request.uri().path().strip_prefix(PREFIX);
    let Some(hook) = path.and_then(|name| hooks.hooks.get(name)).cloned() else {
        return Problem::new("not-found", "there is no such path").into_response();
    };
    if request.method() != Method::POST {
        let problem = Problem::new("no-method", "events come by POST");
        return ([(header::ALLOW, "POST")], problem).into_response();
    }
    match hooks.received(hook.as_ref(), request).await {
        Ok(answer) => answer,
        Err(problem) => {
            hooks.count(hook.platform(), problem.status, &problem.detail);
            told(problem)
        }
    }
}

fn told(problem: Problem) -> Response {
    match problem.status == StatusCode::SERVICE_UNAVAILABLE {
        true => ([(header::RETRY_AFTER, AGAIN)], problem).into_response(),
        false => problem.into_response(),
    }
}

impl Hooks {
    async fn received(&self, hook: &dyn Hook, request: Request) -> Result<Response, Problem> {
        let (parts, body) = request.into_parts();
        let too_large = || {
            let told = format!("the body has more than {LIMIT} bytes, which no event has");
            Problem::new("too-large", told)
        };
        let unauthorized = |refused| Problem::new("unauthorized", refused);
        hook.admits(&parts.headers).map_err(unauthorized)?;
        let held = Held::new(&self.room);
        let body = whole(&parts.headers, held.count(body), LIMIT, BODY, too_large).await;
        if held.full() {
            hook.turned_away();
            let told = "too much is being received at once: send it again";
            return Err(Problem::new("unavailable", told));
        }
        let body = body?;
        let answer = hook.receive(&parts.headers, &body, self.inbox.as_ref());
        match answer.await {
            Answer::Taken => Ok(StatusCode::OK.into_response()),
            Answer::Text(text) => Ok(text.into_response()),
            Answer::Refused(refused) => Err(unauthorized(refused)),
            Answer::Malformed => Err(Problem::new("invalid", "the body is no event")),
            Answer::Later(why) => {
                let problem = Problem::new("unavailable", "it is not stored: send it again");
                self.count(hook.platform(), problem.status, &why);
                Ok(told(problem))
            }
        }
    }

    /// At most one line a second, with how many it stands for.
    fn count(&self, platform: &str, status: u16, why: &str) {
        let mut count = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        count.refused += 1;
        if count.told.is_some_and(|told| told.elapsed() < LINE) {
            return;
        }
        let requests = std::mem::take(&mut count.refused);
        count.told = Some(Instant::now());
        tracing::warn!(platform, requests, status, why, "requests are refused");
    }
}

/// The room that one body takes, until it is dropped.
struct Held(Arc<Mutex<Room>>);

struct Room {
    left: Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
    full: bool,
}

impl Held {
    fn new(left: &Arc<Semaphore>) -> Held {
        Held(Arc::new(Mutex::new(Room {
            left: left.clone(),
            taken: None,
            full: false,
        })))
    }

    /// The same body; it breaks off where there is no room for what comes.
    fn count(&self, body: Body) -> Body {
        let room = self.0.clone();
        Body::from_stream(body.into_data_stream().map(move |chunk| {
            let chunk = chunk?;
            let mut room = room.lock().unwrap_or_else(PoisonError::into_inner);
            room.take(chunk.len()).map_err(axum::Error::new)?;
            Ok::<_, axum::Error>(chunk)
        }))
    }

    fn full(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).full
    }
}

impl Room {
    fn take(&mut self, bytes: usize) -> Result<(), TryAcquireError> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let more = self.left.clone().try_acquire_many_owned(bytes);
        let more = more.inspect_err(|_| self.full = true)?;
        match &mut self.taken {
            Some(taken) => taken.merge(more),
            taken => *taken = Some(more),
        }
        Ok(())
    }
}
