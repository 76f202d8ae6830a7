//! Posts: made, found again after a call without an answer, changed, removed.

use mayfly_domain::{
    ThreadKey,
    chat::{CallError, Content, NewPost},
};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use super::{
    Slack, content, root,
    words::{code, told},
};
use crate::{
    clock,
    http::answer::Failure,
    json::{items, text},
};

/// What our metadata is called.
const EVENT_TYPE: &str = "reply";
/// How much earlier than the call its message may be dated, in milliseconds: clocks differ.
const SKEW_MS: i64 = 120_000;
/// Most pages of a thread that are looked through.
const PAGES: usize = 5;

impl Slack {
    pub(super) async fn make_post(&self, post: &NewPost) -> Result<String, CallError> {
        if let Some(since) = post.unknown_since {
            let made = self.made_before(&post.thread, &post.token, since).await;
            if let Some(ts) = made.map_err(told)? {
                return Ok(ts);
            }
        }
        self.create(&post.thread, &post.token, &post.content).await
    }

    async fn create(
        &self,
        thread: &ThreadKey,
        token: &str,
        content: &Content,
    ) -> Result<String, CallError> {
        let mut body = content::fields(content)?;
        body.insert("channel".to_owned(), json!(thread.channel));
        body.insert("unfurl_links".to_owned(), json!(false));
        body.insert("unfurl_media".to_owned(), json!(false));
        body.insert(
            "metadata".to_owned(),
            json!({"event_type": EVENT_TYPE, "event_payload": {"token": token}}),
        );
        if let Some(root) = root(thread) {
            body.insert("thread_ts".to_owned(), json!(root));
        }
        let made = self.api.write("chat.postMessage", &thread.channel, &body);
        let made = made.await.map_err(told)?;
        let ts = text(&made, &["ts"]).ok_or_else(|| {
            CallError::Unknown("the answer does not say which message was made".to_owned())
        })?;
        Ok(ts.to_owned())
    }

    /// Looks until Slack can no longer be at work on the earlier call.
    async fn made_before(
        &self,
        thread: &ThreadKey,
        token: &str,
        since: i64,
    ) -> Result<Option<String>, Failure> {
        let until = self.settled(since);
        loop {
            let last = Instant::now() >= until;
            if let Some(ts) = self.find(thread, token, since).await? {
                return Ok(Some(ts));
            }
            if last {
                return Ok(None);
            }
            sleep(self.pace.look.min(until - Instant::now())).await;
        }
    }

    /// When a call made at this time (unix ms) is certainly over at Slack's side.
    pub(super) fn settled(&self, since: i64) -> Instant {
        let passed = clock::unix_ms().saturating_sub(since);
        let passed = std::time::Duration::from_millis(u64::try_from(passed).unwrap_or(0));
        Instant::now() + self.pace.settle.saturating_sub(passed)
    }

    /// The message with this token, if it is there.
    async fn find(
        &self,
        thread: &ThreadKey,
        token: &str,
        since: i64,
    ) -> Result<Option<String>, Failure> {
        let oldest = stamp(since.saturating_sub(SKEW_MS));
        let settled = i64::try_from(self.pace.settle.as_millis()).unwrap_or(i64::MAX);
        let latest = stamp(since.saturating_add(settled).saturating_add(SKEW_MS));
        let mut cursor = None::<String>;
        for _ in 0..PAGES {
            let mut query = vec![
                ("channel", Some(thread.channel.as_str())),
                ("oldest", Some(oldest.as_str())),
                // A channel's pages begin with the newest: what came since must not fill them.
                ("latest", Some(latest.as_str())),
                ("include_all_metadata", Some("true")),
                ("limit", Some("200")),
                ("cursor", cursor.as_deref()),
            ];
            let method = match root(thread) {
                Some(root) => {
                    query.push(("ts", Some(root)));
                    "conversations.replies"
                }
                None => "conversations.history",
            };
            let page: Value = match self.api.read(method, &query).await {
                Err(failure) if code(&failure) == Some("thread_not_found") => return Ok(None),
                page => page?,
            };
            if let Some(ts) = with_token(&page, token) {
                return Ok(Some(ts.to_owned()));
            }
            cursor = text(&page, &["response_metadata", "next_cursor"])
                .filter(|next| !next.is_empty())
                .map(str::to_owned);
            if cursor.is_none() {
                return Ok(None);
            }
        }
        Ok(None)
    }

    pub(super) async fn change(
        &self,
        thread: &ThreadKey,
        post: &str,
        content: &Content,
    ) -> Result<(), CallError> {
        let mut body = content::fields(content)?;
        body.insert("channel".to_owned(), json!(thread.channel));
        body.insert("ts".to_owned(), json!(post));
        let changed = self.api.write("chat.update", "", &body).await;
        changed.map(drop).map_err(told)
    }

    pub(super) async fn take_away(&self, thread: &ThreadKey, post: &str) -> Result<(), CallError> {
        let (method, body) = match is_file(post) {
            true => ("files.delete", json!({"file": post})),
            false => (
                "chat.delete",
                json!({"channel": thread.channel, "ts": post}),
            ),
        };
        match self.api.write(method, "", &body).await {
            Ok(_) => Ok(()),
            Err(failure) => match code(&failure) {
                Some("message_not_found" | "file_not_found" | "file_deleted") => Ok(()),
                _ => Err(told(failure)),
            },
        }
    }

    /// A new root message.
    pub(super) async fn open_beside(
        &self,
        beside: &ThreadKey,
        title: &str,
        token: &str,
        unknown_since: Option<i64>,
    ) -> Result<(ThreadKey, String), CallError> {
        let mut key = beside.clone();
        key.thread.clear();
        let root = NewPost {
            thread: key.clone(),
            token: token.to_owned(),
            content: content::line(title, &[]),
            answers: None,
            unknown_since,
        };
        let ts = self.make_post(&root).await?;
        let link = vec![
            ("channel", Some(key.channel.as_str())),
            ("message_ts", Some(ts.as_str())),
        ];
        let link: Result<Map<String, Value>, Failure> =
            self.api.read("chat.getPermalink", &link).await;
        key.thread = ts;
        match link.map_err(|failure| stands(told(failure))) {
            Ok(link) => {
                let link = link.get("permalink").and_then(Value::as_str);
                Ok((key, link.unwrap_or_default().to_owned()))
            }
            Err(CallError::Refused(_)) => Ok((key, String::new())),
            Err(error) => Err(error),
        }
    }
}

/// Something was made before this failed, and is found when it is asked for again.
fn stands(error: CallError) -> CallError {
    match error {
        CallError::NotDone(why) | CallError::Limited { reason: why, .. } => CallError::Unknown(why),
        other => other,
    }
}

/// A post whose message is not known has the id of its file instead.
pub(super) fn is_file(post: &str) -> bool {
    post.starts_with('F')
}

/// Unix ms as Slack dates messages.
fn stamp(at: i64) -> String {
    format!("{}.000000", at.max(0) / 1000)
}

fn with_token<'a>(page: &'a Value, token: &str) -> Option<&'a str> {
    items(page, &["messages"])
        .find(|message| {
            text(message, &["metadata", "event_type"]) == Some(EVENT_TYPE)
                && text(message, &["metadata", "event_payload", "token"]) == Some(token)
        })
        .and_then(|message| text(message, &["ts"]))
}
