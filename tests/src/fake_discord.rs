//! Discord's REST API and gateway, as far as Mayfly uses them: a server with channels, threads,
//! direct conversations, messages, files, reactions, buttons and commands; sessions that can be
//! resumed; and the rules that bite (limits, nonces, archived and locked threads, rate-limit headers,
//! three seconds for an interaction, five between identifies).
//!
//! Trusted only because a bot that is written with `discord.js` works against it:
//! `tests/tests/discord_client.rs`.

mod gateway;
mod methods;
mod people;
mod routes;
mod rules;
mod state;

use std::sync::Arc;

use hyper::http::request::Parts;
use serde_json::json;

pub use gateway::Order;
pub use people::Shown;
pub use state::{ANN, BEN, GUILD};

use crate::fake::{self, Answer, Call, Platform, Served, socket::Sockets};
use state::Kept;

/// The bot's id, and its application's.
pub const BOT: u64 = 420_000_000_000_000_000;

/// The token its one bot has; of the right form, and nobody's.
pub fn token() -> String {
    [
        "NDIwMDAwMDAwMDAwMDAwMDAw",
        "GAAAAA",
        "fake-token-of-nobody_0123456789abcdefgh",
    ]
    .join(".")
}

/// The REST side.
pub struct FakeDiscord {
    kept: Arc<Kept>,
}

/// Both sides, while they are served.
pub struct Running {
    /// REST: address, faults, calls.
    pub rest: Served<FakeDiscord>,
    _gateway: Sockets,
}

impl FakeDiscord {
    /// A server with one guild and no channels.
    pub fn start() -> Running {
        let kept = Arc::new(Kept::new());
        let gateway = Sockets::start(Arc::new(gateway::Gateway(kept.clone())));
        let rest = Served::start(FakeDiscord { kept: kept.clone() });
        let mut state = kept.lock();
        state.gateway_url = gateway.url();
        state.own_url = rest.url();
        drop(state);
        Running {
            rest,
            _gateway: gateway,
        }
    }
}

impl std::ops::Deref for Running {
    type Target = FakeDiscord;

    fn deref(&self) -> &FakeDiscord {
        &self.rest.platform
    }
}

impl Platform for FakeDiscord {
    /// See `routes`.
    fn name_of(&self, parts: &Parts) -> String {
        routes::name(&parts.method, parts.uri.path()).to_owned()
    }

    async fn act(self: Arc<Self>, call: Call) -> Answer {
        let name = routes::name(call.method(), call.uri().path());
        if name == "file" {
            return self.download(&call);
        }
        let authorised = call
            .headers()
            .get("authorization")
            .and_then(|value| value.to_str().ok())
            == Some(format!("Bot {}", token()).as_str());
        if !authorised && !matches!(name, "callback" | "follow-up" | "original") {
            return rules::Refusal::new(401, 0, "401: Unauthorized").answer();
        }
        match self.method(name, &call).await {
            Ok(answer) => answer,
            Err(refusal) => refusal.answer(),
        }
    }

    fn too_many(&self, seconds: u32) -> Answer {
        let body = json!({"message": "You are being rate limited.", "retry_after": f64::from(seconds), "global": false});
        let mut answer = fake::json(429, body.to_string());
        answer.headers_mut().insert("retry-after", seconds.into());
        answer
            .headers_mut()
            .insert("x-ratelimit-scope", "user".parse().expect("a value"));
        answer
    }
}
