//! Who may see the page and write by it: the right host, a session's cookie, and for writes a page of
//! this very origin that knows the session's form key. Every answer says what a browser may do with it.

use std::{sync::Arc, time::Instant};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, header},
    middleware::Next,
    response::Response,
};

use super::{
    Pages, layout,
    sign_in::{Session, SignIn},
};
use crate::http::{Gate, Problem, same_origin, text};

/// What a browser may load for a page, and where a page may send what is typed. Agents write into
/// pages: only text of theirs gets there, and this is for the day when more does.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// `same-origin` and not `no-referrer`: under that one a browser hides the origin of a form, too.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// The layer of the page's routes.
pub(super) async fn check(
    State(pages): State<Pages>,
    mut request: Request,
    next: Next,
) -> Response {
    let response = match judge(&pages, &request) {
        Ok(session) => {
            request.extensions_mut().insert(session);
            next.run(request).await
        }
        Err(refused) => refused.answer(request.headers()),
    };
    guarded(response)
}

/// The layer of what is there before anybody is signed in.
pub(super) async fn check_host(
    State(gate): State<Arc<Gate>>,
    request: Request,
    next: Next,
) -> Response {
    guarded(match gate.host(request.headers()) {
        Ok(_) => next.run(request).await,
        Err(problem) => layout::refused(&problem),
    })
}

/// A header that an answer brings itself stays.
fn guarded(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        let headers = response.headers_mut();
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

enum Refused {
    Unknown,
    Problem(Problem),
}

impl Refused {
    fn answer(self, headers: &HeaderMap) -> Response {
        match self {
            // A link on another page does not carry the cookie, one on this page does.
            Refused::Unknown => {
                let elsewhere = text(headers, FETCH_SITE) == Some("cross-site");
                layout::signed_out(elsewhere)
            }
            Refused::Problem(problem) => layout::refused(&problem),
        }
    }
}

fn judge(pages: &Pages, request: &Request) -> Result<Session, Refused> {
    let headers = request.headers();
    let host = pages.gate.host(headers).map_err(Refused::Problem)?;
    let session = signed_in(&pages.sign_in, headers, pages.gate.listen().port());
    let session = session.ok_or(Refused::Unknown)?;
    match request.method() {
        &Method::GET | &Method::HEAD => {}
        _ => from_here(headers, host).map_err(Refused::Problem)?,
    }
    Ok(session)
}

/// Whose cookie came along.
pub(super) fn signed_in(sign_in: &SignIn, headers: &HeaderMap, port: u16) -> Option<Session> {
    let name = cookie_name(port);
    let pairs = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    let now = Instant::now();
    // A page on another port of this host may have set one of the same name.
    pairs
        .filter(|(known, _)| *known == name)
        .find_map(|(_, secret)| sign_in.session(secret, now))
}

/// Cookies do not know ports: a second installation on this host keeps its own.
pub(super) fn cookie_name(port: u16) -> String {
    format!("mayfly-{port}")
}

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether a write comes from a page of this origin, as the browser says; one that says nothing is
/// refused.
fn from_here(headers: &HeaderMap, host: &str) -> Result<(), Problem> {
    let site = text(headers, FETCH_SITE);
    let origin = headers.get(header::ORIGIN).map(HeaderValue::to_str);
    let ours = match (origin, site) {
        (Some(origin), None | Some("same-origin")) => {
            origin.is_ok_and(|origin| same_origin(origin, host))
        }
        (None, site) => site == Some("same-origin"),
        (Some(_), Some(_)) => false,
    };
    match ours {
        true => Ok(()),
        false => Err(Problem::new(
            "forbidden",
            "this came from another page than Mayfly's own: nothing was done",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_of_this_very_origin_writes() {
        let ours = |headers: &[(&'static str, &str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(*name, value.parse().unwrap());
            }
            from_here(&map, "127.0.0.1:8080").is_ok()
        };
        let here = ("origin", "http://127.0.0.1:8080");
        assert!(ours(&[here]));
        assert!(ours(&[here, ("sec-fetch-site", "same-origin")]));
        assert!(ours(&[("sec-fetch-site", "same-origin")]));
        assert!(!ours(&[]));
        for site in ["same-site", "cross-site", "none", ""] {
            assert!(!ours(&[("sec-fetch-site", site)]), "{site}");
            assert!(!ours(&[here, ("sec-fetch-site", site)]), "{site}");
        }
        for origin in [
            "null",
            "http://evil.test",
            "http://127.0.0.1:8081",
            "http://127.0.0.1",
            "http://localhost:8080",
            "",
        ] {
            assert!(!ours(&[("origin", origin)]), "{origin}");
            let told = [("origin", origin), ("sec-fetch-site", "same-origin")];
            assert!(!ours(&told), "{origin}");
        }
    }
}
