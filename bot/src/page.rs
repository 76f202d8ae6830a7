//! The page at `/`: agents, a conversation, ticks and what they changed. HTML is made here and works
//! without a script; one script looks again while something runs. It calls the same [`Commands`] as
//! every other face, and knows nothing that the API does not.

mod agents;
mod chat;
mod diff;
mod form;
mod guard;
mod layout;
mod link;
mod moves;
mod said;
mod sign_in;
mod text;
mod tick;

use std::sync::Arc;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    http::header,
    middleware,
    response::IntoResponse,
    routing::{get, post},
};
use mayfly_orchestrator::command::Commands;
use tokio_util::sync::CancellationToken;

pub(crate) use link::{LinkView, Links};
pub(crate) use sign_in::SignIn;

use crate::http::{BODY_LIMIT, Gate};

const STYLE: &str = include_str!("page/assets/style.css");
const SCRIPT: &str = include_str!("page/assets/page.js");
const ICON: &str = include_str!("page/assets/icon.svg");

/// What every handler may use.
#[derive(Clone)]
struct Pages {
    commands: Commands,
    gate: Arc<Gate>,
    sign_in: Arc<SignIn>,
    /// Cancelled when uploads should end.
    stopping: CancellationToken,
}

/// The page's paths, each behind its guard. They are for people, so the API's document has none of
/// them.
#[allow(clippy::disallowed_methods)]
pub(crate) fn router(
    commands: Commands,
    gate: Arc<Gate>,
    sign_in: Arc<SignIn>,
    stopping: CancellationToken,
) -> Router {
    let pages = Pages {
        commands,
        gate: gate.clone(),
        sign_in,
        stopping,
    };
    let open = Router::new()
        .route("/login", get(link::open))
        .layer(middleware::from_fn_with_state(gate, guard::check_host));
    Router::new()
        .route("/", get(agents::list))
        .route("/agents", post(agents::create))
        .route("/agents/{id}", get(chat::show))
        // Files have limits of their own, and are not held in memory.
        .route(
            "/agents/{id}/messages",
            post(chat::send).layer(DefaultBodyLimit::disable()),
        )
        .route(
            "/agents/{id}/rollback",
            get(moves::ask_undo).post(moves::rollback),
        )
        .route("/agents/{id}/fork", get(moves::ask_fork).post(moves::fork))
        .route("/agents/{id}/stop", post(moves::stop))
        .route("/messages/{id}/files/{n}", get(chat::reply_file))
        .route("/messages/{id}/received/{n}", get(chat::attachment))
        .route("/messages/{id}/retry", post(moves::retry))
        .route("/ticks/{id}", get(tick::show))
        .route("/ticks/{id}/rollback", get(moves::ask_rollback_to))
        .route("/ticks/{id}/fork", get(moves::ask_fork_at))
        .route("/logout", post(link::close))
        .route("/page/style.css", get(async || asset("text/css", STYLE)))
        .route(
            "/page/page.js",
            get(async || asset("text/javascript", SCRIPT)),
        )
        .route("/page/icon.svg", get(async || asset("image/svg+xml", ICON)))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(middleware::from_fn_with_state(pages.clone(), guard::check))
        .merge(open)
        .with_state(pages)
}

fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, format!("{kind}; charset=utf-8"))],
        text,
    )
}
