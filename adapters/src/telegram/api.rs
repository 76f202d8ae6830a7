//! The Bot API's transport: one request, judged.
//!
//! Requests and their names are teloxide's; its client is not used, since it sleeps ten seconds over
//! each answer 5xx, reads bodies of any size and does not tell what may have been done from what was
//! not.

use std::{
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

use reqwest::{Client, RequestBuilder, Url, multipart::Form, redirect};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use teloxide_core::requests::Payload;

use super::config::{Config, Token};
use crate::http::{
    answer::{self, Failure, Response},
    call,
    redact::redact,
    wait::Silence,
};

/// Most bytes of an answer to a call.
const MAX_ANSWER: usize = call::MOST;
/// Most bytes of an answer with updates, of which there are at most a hundred.
const MAX_UPDATES: usize = 64 << 20;
/// The bucket of all files that are fetched.
pub(crate) const FILES: &str = "files";
/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest silence within a download.
const STALLED: Duration = Duration::from_secs(30);

/// One bot's access.
pub(crate) struct Api {
    client: Client,
    base: Url,
    token: Token,
    timeout: Duration,
    held: Mutex<Silence>,
    began: Instant,
}

/// What one poll brought.
pub(crate) struct Polled {
    /// Each update as it came, with its number.
    pub(crate) updates: Vec<(i64, Vec<u8>)>,
}

#[derive(Deserialize)]
struct Updates<'a> {
    ok: bool,
    #[serde(borrow)]
    result: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Numbered {
    update_id: i64,
}

#[derive(Serialize)]
struct GetUpdates {
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<i64>,
    limit: u8,
    timeout: u8,
    /// All kinds that have no switch of their own: also what an earlier program left out.
    allowed_updates: [&'static str; 0],
}

impl Api {
    pub(crate) fn new(config: &Config) -> Result<Api, String> {
        // A redirect would carry the address, and the token in it, elsewhere.
        let client = Client::builder()
            .connect_timeout(CONNECT)
            .redirect(redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .build()
            .map_err(|error| format!("no HTTP client: {}", call::broken(error)))?;
        if config.api.cannot_be_a_base() || !matches!(config.api.scheme(), "http" | "https") {
            return Err(format!(
                "{} is no address of a Bot API",
                config.api.scheme()
            ));
        }
        Ok(Api {
            client,
            base: config.api.clone(),
            token: config.token.clone(),
            timeout: Duration::from_secs(u64::from(config.timeout_s.max(1))),
            held: Mutex::default(),
            began: Instant::now(),
        })
    }

    pub(crate) fn bot(&self) -> &str {
        self.token.bot()
    }

    pub(super) fn token(&self) -> &str {
        self.token.secret()
    }

    /// Calls a method. While its `bucket` (a chat) has to be left alone, nothing is sent.
    pub(crate) async fn call<P>(&self, bucket: &str, payload: &P) -> Result<Value, Failure>
    where
        P: Payload + Serialize + Sync,
    {
        self.free(bucket)?;
        let request = self.client.post(self.method(P::NAME)).json(payload);
        let (status, body) = self.send(request, self.timeout, MAX_ANSWER).await?;
        self.judge(bucket, status, &body)
    }

    /// Calls a method with a file; `extra` is how long the file may take.
    pub(crate) async fn upload(
        &self,
        bucket: &str,
        method: &str,
        form: Form,
        extra: Duration,
    ) -> Result<Value, Failure> {
        self.free(bucket)?;
        let request = self.client.post(self.method(method)).multipart(form);
        let time = self.timeout.saturating_add(extra);
        let (status, body) = self.send(request, time, MAX_ANSWER).await?;
        self.judge(bucket, status, &body)
    }

    /// Asks for updates from `offset` on and waits so many seconds for the first. What is below the
    /// offset is thereby acknowledged.
    pub(crate) async fn poll(
        &self,
        offset: Option<i64>,
        limit: u8,
        wait_s: u8,
    ) -> Result<Polled, Failure> {
        const BUCKET: &str = "updates";
        self.free(BUCKET)?;
        let asked = GetUpdates {
            offset,
            limit,
            timeout: wait_s,
            allowed_updates: [],
        };
        let request = self.client.post(self.method("getUpdates")).json(&asked);
        let time = self.timeout + Duration::from_secs(u64::from(wait_s));
        let (status, body) = self.send(request, time, MAX_UPDATES).await?;
        let unreadable = |why: &str| Failure::Unknown {
            why: format!("the updates are not readable: {why}"),
        };
        match serde_json::from_slice::<Updates<'_>>(&body) {
            Ok(Updates { ok: true, result }) if status == 200 => {
                let mut updates = Vec::with_capacity(result.len());
                for raw in result {
                    let Numbered { update_id } = serde_json::from_str(raw.get())
                        .map_err(|_| unreadable("one has no number"))?;
                    updates.push((update_id, raw.get().as_bytes().to_vec()));
                }
                Ok(Polled { updates })
            }
            _ => match self.judge(BUCKET, status, &body) {
                Ok(_) => Err(unreadable("no list of them")),
                Err(failure) => Err(failure),
            },
        }
    }

    /// Asks for a file by the path that `getFile` gave; the body is not read yet.
    pub(crate) async fn download(&self, path: &str) -> Result<reqwest::Response, Failure> {
        self.free(FILES)?;
        let file = format!("bot{}", self.token.secret());
        let parts = ["file", &file].into_iter().chain(path.split('/'));
        let request = self.client.get(self.address(parts)).send();
        let response = tokio::time::timeout(self.timeout + CONNECT, request)
            .await
            .map_err(|_| Failure::NotDone {
                why: "the file does not come".to_owned(),
                wait: None,
            })?
            .map_err(call::broken)?;
        if response.status() == 200 {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let body = call::body(response, MAX_ANSWER).await?;
        match self.judge(FILES, status, &body) {
            Ok(_) => Err(Failure::Permanent {
                reason: format!("the file's server answers with status {status}"),
            }),
            Err(failure) => Err(failure),
        }
    }

    /// How long a call may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Longest silence within a body that is being read.
    pub(crate) fn stalled(&self) -> Duration {
        STALLED.max(self.timeout)
    }

    fn method(&self, name: &str) -> Url {
        let bot = format!("bot{}", self.token.secret());
        self.address([bot.as_str(), name])
    }

    /// Each part stays one part of the path, whatever is in it; `..` is left out.
    fn address<'a>(&self, parts: impl IntoIterator<Item = &'a str>) -> Url {
        let mut address = self.base.clone();
        if let Ok(mut path) = address.path_segments_mut() {
            path.pop_if_empty().extend(parts);
        }
        address
    }

    async fn send(
        &self,
        request: RequestBuilder,
        time: Duration,
        most: usize,
    ) -> Result<(u16, Vec<u8>), Failure> {
        let response = request.timeout(time).send().await;
        let response = response.map_err(call::broken)?;
        let status = response.status().as_u16();
        Ok((status, call::body(response, most).await?))
    }

    /// The waiting time is in the body.
    fn judge(&self, bucket: &str, status: u16, body: &[u8]) -> Result<Value, Failure> {
        let judged = answer::telegram(&Response {
            status,
            retry_after: None,
            body,
        });
        if let Err(Failure::NotDone {
            wait: Some(wait), ..
        }) = &judged
        {
            self.silence().hold(bucket, self.now_ms(), *wait);
        }
        judged.map_err(|failure| self.clean(failure))
    }

    fn clean(&self, failure: Failure) -> Failure {
        let clean = |text: String| redact(&text, &[self.token.secret()]);
        match failure {
            Failure::NotDone { why, wait } => Failure::NotDone {
                why: clean(why),
                wait,
            },
            Failure::Unknown { why } => Failure::Unknown { why: clean(why) },
            Failure::Permanent { reason } => Failure::Permanent {
                reason: clean(reason),
            },
            Failure::Moved { to } => Failure::Moved { to },
        }
    }

    fn free(&self, bucket: &str) -> Result<(), Failure> {
        let left = self.silence().left(bucket, self.now_ms());
        if left.is_zero() {
            return Ok(());
        }
        Err(Failure::NotDone {
            why: "Telegram asked to be left alone".to_owned(),
            wait: Some(left),
        })
    }

    fn silence(&self) -> MutexGuard<'_, Silence> {
        self.held
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
