//! The events of a tick as they happen, as server-sent events: one for each line of its transcript,
//! then `end`. Whoever reads slowly gets them slowly; whoever does not read is cut off.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::{Stream, StreamExt, stream};
use mayfly_orchestrator::{
    agent::transcript::Line,
    command::{
        RequestError,
        follow::{Follow, Told},
    },
    view::TickView,
};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use utoipa::IntoParams;
use utoipa_axum::routes;

use super::{
    Api,
    document::{Routes, ids::OfTick, refusals::Unavailable},
    patience::Patience,
    problem::Problem,
    routes::{Asked, Named},
};

/// Streams at once; each holds a connection, and others want some too.
const STREAMS: usize = 64;
/// Longest silence, so that either end notices when the other has gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long nothing may be read while something waits to be.
const UNREAD: Duration = Duration::from_secs(30);
/// The last event and its id.
const END: &str = "end";

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
struct Resume {
    /// The id of the last event that was seen.
    #[param(pattern = "^([0-9]{1,19}|end)$")]
    after: Option<String>,
}

pub(super) fn described() -> Routes {
    let room = Arc::new(Semaphore::new(STREAMS));
    Routes::new().with(routes!(events)).holding(room)
}

/// The events of a tick as they happen.
///
/// Server-sent events, one for each line of the transcript: `id` is the line's number, `event` its
/// kind, `data` the line. The last one is `end` with the tick.
#[utoipa::path(
    get,
    path = "/v1/ticks/{id}/events",
    tag = "ticks",
    params(
        OfTick,
        Resume,
        (
            "Last-Event-ID" = Option<String>, Header, pattern = "^([0-9]{1,19}|end)$",
            description = "As `after`, which it takes the place of."
        ),
    ),
    responses(
        (status = 200, description = "Events until `end`.", content(("text/event-stream"))),
        (status = 204, description = "`end` was seen: nothing follows."),
        Unavailable,
    )
)]
async fn events(
    State(api): State<Api>,
    Named(id): Named,
    Asked(asked): Asked<Resume>,
    Extension(room): Extension<Arc<Semaphore>>,
    Extension(patience): Extension<Patience>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let tick = api.commands.find_tick(&id).await?;
    // The header is newer: a browser that connects again leaves the query as it was.
    let seen = Seen::of(asked.after.as_deref().unwrap_or("0"))?;
    let seen = match headers.get("last-event-id") {
        Some(value) => Seen::of(&String::from_utf8_lossy(value.as_bytes()))?,
        None => seen,
    };
    let after = match seen {
        Seen::Line(number) => number,
        // What makes a browser stop connecting again.
        Seen::End => return Ok(StatusCode::NO_CONTENT.into_response()),
    };
    let place = room.try_acquire_owned().map_err(|_| {
        Problem::new(
            "unavailable",
            format!("{STREAMS} streams of events are open already: close some, then ask again"),
        )
    })?;
    let follow = api.commands.follow(tick, after).await?;
    patience.limit(UNREAD);
    let told = told(follow, place).take_until(api.stopping.cancelled_owned());
    let kept = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(Sse::new(told).keep_alive(kept).into_response())
}

/// The last event that a follower has.
enum Seen {
    /// 0 for none.
    Line(u64),
    End,
}

impl Seen {
    fn of(id: &str) -> Result<Seen, Problem> {
        match id {
            END => Ok(Seen::End),
            text => text.parse().map(Seen::Line).map_err(|_| bad_id(text)),
        }
    }
}

fn bad_id(text: &str) -> Problem {
    let shown: String = text.chars().take(64).collect();
    let told = format!("{shown:?} is no id of an event: they are numbers from 1, and `{END}`");
    Problem::new("invalid", told)
}

/// What is read from disk waits here until it is taken, and no more is read. A stream that breaks
/// ends without `end`.
fn told(
    follow: Follow,
    place: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, RequestError>> {
    let pieces = stream::unfold(Some((follow, place)), async |open| {
        let (mut follow, place) = open?;
        Some(match follow.next().await {
            Ok(Told::Lines(lines)) => {
                let events: Vec<_> = lines.iter().map(|line| Ok(event(line))).collect();
                (events, Some((follow, place)))
            }
            Ok(Told::End(tick)) => (vec![Ok(end(&tick))], None),
            Err(error) => (vec![Err(error)], None),
        })
    });
    pieces.flat_map(stream::iter)
}

fn event(line: &Line) -> Event {
    let data = serde_json::to_string(line).expect("plain data");
    let id = line.n.to_string();
    Event::default().id(id).event(line.event.kind()).data(data)
}

fn end(tick: &TickView) -> Event {
    let data = serde_json::to_string(tick).expect("plain data");
    Event::default().id(END).event(END).data(data)
}
