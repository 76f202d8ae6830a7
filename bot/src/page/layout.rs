//! The frame of every page, and the pages that say no.

use axum::{
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use mayfly_orchestrator::command::RequestError;
use rand::RngCore as _;

use super::{STYLE, form, sign_in::Session, text::said};
use crate::http::Problem;

/// One page.
pub(super) struct Sheet<'a> {
    pub(super) title: &'a str,
    pub(super) session: &'a Session,
    /// Something may change soon.
    pub(super) busy: bool,
    /// What the last form came to.
    pub(super) told: Option<String>,
}

impl Sheet<'_> {
    pub(super) fn with(self, content: Markup) -> Markup {
        let inside = html! {
            @if let Some(told) = &self.told {
                p.told role="status" { (said(told)) }
            }
            (content)
        };
        frame(self.title, Some(self.session), self.busy, &inside)
    }
}

/// The hidden field without which no form is taken.
pub(super) fn key(session: &Session) -> Markup {
    html! { input type="hidden" name=(form::KEY) value=(session.form); }
}

fn frame(title: &str, session: Option<&Session>, busy: bool, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (meta(title))
                link rel="stylesheet" href="/page/style.css";
                link rel="icon" type="image/svg+xml" href="/page/icon.svg";
                script src="/page/page.js" defer {}
            }
            body data-busy[busy] {
                a.skip href="#main" { "Skip to the content" }
                header.top {
                    a.brand href="/" { "Mayfly" }
                    span #connection role="status" {}
                    @if let Some(session) = session {
                        form method="post" action="/logout" {
                            (key(session))
                            button.quiet { "Sign out" }
                        }
                    }
                }
                main #main tabindex="-1" { (content) }
            }
        }
    }
}

fn meta(title: &str) -> Markup {
    html! {
        meta charset="utf-8";
        meta name="viewport" content="width=device-width, initial-scale=1";
        meta name="color-scheme" content="light dark";
        title { (title) " · Mayfly" }
    }
}

/// Before anybody is signed in nothing else is served, so this page brings its style along. Where a
/// browser came from another page it kept the cookie back: the page goes there once more by itself.
pub(super) fn signed_out(from_elsewhere: bool) -> Response {
    let told = html! {
        h1 { "Sign in" }
        p { "This browser is not signed in, or no longer. On the machine that runs Mayfly, type" }
        pre.command { "mayfly page" }
        p { "and open the link that it prints. A link is good once, for ten minutes." }
    };
    alone(StatusCode::UNAUTHORIZED, "Sign in", from_elsewhere, &told)
}

/// A link that opens nothing.
pub(super) fn spent_link() -> Response {
    let told = html! {
        h1 { "This link is spent" }
        p { "It was used, or is older than ten minutes, or Mayfly was started anew: "
            code { "mayfly page" } " prints a new one." }
    };
    alone(StatusCode::UNAUTHORIZED, "This link is spent", false, &told)
}

fn alone(status: StatusCode, title: &str, again: bool, told: &Markup) -> Response {
    let mut random = [0; 16];
    rand::rng().fill_bytes(&mut random);
    let nonce = hex::encode(random);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (meta(title))
                @if again { meta http-equiv="refresh" content="0; url=/"; }
                link rel="icon" href="data:,";
                style nonce=(nonce) { (PreEscaped(STYLE)) }
            }
            body { main.alone { (told) } }
        }
    };
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; img-src data:; form-action 'none'; \
         frame-ancestors 'none'; base-uri 'none'"
    );
    let headers = [(header::CONTENT_SECURITY_POLICY, policy)];
    (status, headers, page).into_response()
}

/// Why something was not done, and the way back.
pub(super) struct Refused {
    problem: Problem,
    back: Option<String>,
    rest: Option<Markup>,
}

impl Refused {
    /// With the page to go back to.
    pub(super) fn back(self, path: String) -> Self {
        Refused {
            back: Some(path),
            ..self
        }
    }

    /// With what was typed, so that it is not lost.
    pub(super) fn rest(self, rest: Markup) -> Self {
        Refused {
            rest: Some(rest),
            ..self
        }
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Refused {
            problem,
            back: None,
            rest: None,
        }
    }
}

impl From<RequestError> for Refused {
    fn from(error: RequestError) -> Self {
        Problem::from(error).into()
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let back = self.back.as_deref().unwrap_or("/");
        let content = html! {
            section.alone {
                h1 { (self.problem.title) }
                p.refused role="alert" { (said(&self.problem.detail)) }
                @if let Some(rest) = &self.rest { (rest) }
                p { a.button href=(back) { "Back" } }
            }
        };
        let page = frame(&self.problem.title, None, false, &content);
        (status(&self.problem), page).into_response()
    }
}

/// A refusal before there is a session, or with none to be shown.
pub(super) fn refused(problem: &Problem) -> Response {
    let told = html! {
        h1 { (problem.title) }
        p.refused role="alert" { (said(&problem.detail)) }
    };
    alone(status(problem), &problem.title, false, &told)
}

fn status(problem: &Problem) -> StatusCode {
    StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
