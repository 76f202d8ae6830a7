//! The way in: a link that is printed on the machine, and the cookie that it is changed for.

use std::{net::IpAddr, net::SocketAddr, sync::Arc, time::Instant};

use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, HeaderName, Method, StatusCode, header},
    response::{IntoResponse as _, Redirect, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Pages,
    form::Form,
    guard::{cookie_name, signed_in},
    layout::{Refused, signed_out, spent_link},
    sign_in::{LINK, Session, SignIn},
};
use crate::http::{Asked, text};

/// Makes links; for whoever may open the socket, or started the server.
#[derive(Clone)]
pub(crate) struct Links {
    pub(crate) sign_in: Arc<SignIn>,
    pub(crate) listen: SocketAddr,
}

/// A link to the page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct LinkView {
    /// To be opened once.
    pub(crate) link: String,
    /// For how long, in seconds.
    pub(crate) valid_s: u64,
}

impl Links {
    /// A new link, at an address that a browser on this machine reaches.
    pub(crate) fn make(&self) -> LinkView {
        let ip = match self.listen.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        let address = SocketAddr::new(ip, self.listen.port());
        let secret = self.sign_in.link(Instant::now());
        LinkView {
            link: format!("http://{address}/login?key={secret}"),
            valid_s: LINK.as_secs(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Key {
    key: String,
}

/// `GET /login`: uses the link up, unless somebody only looks ahead.
pub(super) async fn open(
    State(pages): State<Pages>,
    method: Method,
    headers: HeaderMap,
    Asked(Key { key }): Asked<Key>,
) -> Response {
    if method != Method::GET || looks_ahead(&headers) {
        return StatusCode::NO_CONTENT.into_response();
    }
    let port = pages.gate.listen().port();
    let opened = pages.sign_in.open(&key, Instant::now());
    let known = signed_in(&pages.sign_in, &headers, port);
    let answer = match (opened, known) {
        (Some(session), _) => {
            let name = cookie_name(port);
            let secret = session.secret;
            let cookie = format!("{name}={secret}; Path=/; HttpOnly; SameSite=Strict");
            ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
        }
        (None, Some(_)) => Redirect::to("/").into_response(),
        (None, None) => spent_link(),
    };
    // The address holds the key: it goes nowhere.
    ([(header::REFERRER_POLICY, "no-referrer")], answer).into_response()
}

/// A browser or a chat's preview that asks before anybody has pressed, or a frame in a page.
fn looks_ahead(headers: &HeaderMap) -> bool {
    let has = |name, word: &str| {
        let value = text(headers, HeaderName::from_static(name));
        value.is_some_and(|value| value.contains(word))
    };
    let inside = text(headers, HeaderName::from_static("sec-fetch-dest"));
    has("sec-purpose", "prefetch")
        || has("purpose", "prefetch")
        || inside.is_some_and(|kind| kind != "document")
}

#[derive(Debug, Deserialize)]
pub(super) struct Nothing {}

/// `POST /logout`.
pub(super) async fn close(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
    Form(Nothing {}): Form<Nothing>,
) -> Result<Response, Refused> {
    pages.sign_in.close(&session);
    let name = cookie_name(pages.gate.listen().port());
    let cookie = format!("{name}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    Ok(([(header::SET_COOKIE, cookie)], signed_out(false)).into_response())
}
