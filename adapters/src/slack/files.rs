//! Files: out in three steps of which only the last is seen, in from one origin only.

use std::io;

use futures_util::TryStreamExt as _;
use mayfly_domain::{
    RemoteFile,
    chat::{Body, CallError, FileOut},
};
use reqwest::{Url, header};
use serde_json::{Value, json};
use tokio::{
    io::AsyncReadExt as _,
    time::{Instant, sleep},
};
use tokio_util::io::{ReaderStream, StreamReader};

use super::{
    Slack, root,
    words::{code, told},
};
use crate::{
    http::{answer::Failure, call, page::is_web_page, wait},
    json::{items, text},
};

/// Most redirects of a download.
const HOPS: usize = 5;
/// So much of a download shows whether it is a web page.
const BEGINNING: usize = 64;
/// Looks for the message of a file that was just shared.
const LOOKS: u32 = 4;

impl Slack {
    /// Brings the content to Slack, where nobody sees it yet; returns the file's id.
    pub(super) async fn upload(&self, file: &FileOut, body: Body) -> Result<String, CallError> {
        if file.size == 0 {
            return Err(CallError::Refused(format!(
                "Slack takes no empty file, and {} is one",
                file.name
            )));
        }
        let length = file.size.to_string();
        let query = vec![
            ("filename", Some(file.name.as_str())),
            ("length", Some(length.as_str())),
        ];
        let place = self.api.read("files.getUploadURLExternal", &query).await;
        let place: Value = place.map_err(|failure| unseen(told(failure)))?;
        let (Some(url), Some(id)) = (text(&place, &["upload_url"]), text(&place, &["file_id"]))
        else {
            return Err(CallError::NotDone(
                "Slack names no place for the file".to_owned(),
            ));
        };
        let request = self
            .api
            .http()
            .post(url)
            .timeout(self.pace.upload)
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .header(header::CONTENT_LENGTH, file.size)
            .body(reqwest::Body::wrap_stream(ReaderStream::new(body)));
        let sent = request.send().await.map_err(call::broken);
        let sent = sent.map_err(|failure| unseen(told(failure)))?;
        uploaded(&sent, &file.name)?;
        Ok(id.to_owned())
    }

    /// Shows a file that was uploaded.
    pub(super) async fn share(&self, file: &FileOut, id: &str) -> Result<String, CallError> {
        if let Some(since) = file.unknown_since
            && let Some(ts) = self.shared_before(file, id, since).await?
        {
            return Ok(ts);
        }
        let mut body = json!({
            "files": [{"id": id, "title": file.name}],
            "channel_id": file.thread.channel,
        });
        if let Some(root) = root(&file.thread) {
            body["thread_ts"] = json!(root);
        }
        let done = self.api.write("files.completeUploadExternal", "", &body);
        done.await.map_err(told)?;
        // From here on it is done, whatever the looks say.
        for look in 0..LOOKS {
            if let Ok(Seen::At(ts)) = self.seen(file, id).await {
                return Ok(ts);
            }
            sleep(self.pace.look / 8 * (look + 1)).await;
        }
        Ok(id.to_owned())
    }

    /// What an earlier call did: its post, or nothing that could be seen.
    async fn shared_before(
        &self,
        file: &FileOut,
        id: &str,
        since: i64,
    ) -> Result<Option<String>, CallError> {
        let until = self.settled(since);
        loop {
            let last = Instant::now() >= until;
            match (self.seen(file, id).await.map_err(told)?, last) {
                (Seen::At(ts), _) => return Ok(Some(ts)),
                (Seen::NoFile, true) => return Ok(None),
                (Seen::Nowhere, true) => {
                    return Err(CallError::Unknown(format!(
                        "Slack has the file {} and does not say whether it is shown",
                        file.name
                    )));
                }
                (_, false) => {}
            }
            sleep(self.pace.look.min(until - Instant::now())).await;
        }
    }

    async fn seen(&self, file: &FileOut, id: &str) -> Result<Seen, Failure> {
        let info: Result<Value, Failure> =
            self.api.read("files.info", &vec![("file", Some(id))]).await;
        let info = match info {
            Err(failure) if code(&failure) == Some("file_not_found") => return Ok(Seen::NoFile),
            info => info?,
        };
        let root = root(&file.thread);
        let found = ["public", "private"].into_iter().find_map(|kind| {
            items(&info, &["file", "shares", kind, &file.thread.channel])
                .find(|share| root.is_none() || text(share, &["thread_ts"]) == root)
                .and_then(|share| text(share, &["ts"]))
                .map(str::to_owned)
        });
        Ok(found.map_or(Seen::Nowhere, Seen::At))
    }

    /// The content of somebody's file.
    pub(super) async fn download(&self, file: &RemoteFile) -> Result<Body, CallError> {
        let url = match &file.url {
            Some(url) => url.clone(),
            None => self.address(file).await?,
        };
        let response = self.get(&url, file).await?;
        let declared = content_type(&response);
        let length = response.content_length();
        let (beginning, rest) = begun(response).await?;
        let page = is_web_page(declared.as_deref(), &beginning);
        let other_length =
            matches!((file.size, length), (Some(size), Some(length)) if size != length);
        if page && (!is_web(file) || other_length) {
            return Err(login_page(file));
        }
        Ok(Box::pin(io::Cursor::new(beginning).chain(rest)))
    }

    /// In shared channels an event holds only a stub.
    async fn address(&self, file: &RemoteFile) -> Result<String, CallError> {
        let query = vec![("file", Some(file.id.as_str()))];
        let info: Value = self.api.read("files.info", &query).await.map_err(told)?;
        let url = text(&info, &["file", "url_private_download"])
            .or_else(|| text(&info, &["file", "url_private"]));
        url.map(str::to_owned).ok_or_else(|| {
            CallError::Refused(format!("Slack has no address for the file {}", file.name))
        })
    }

    /// The token goes to the one origin, also after redirects.
    async fn get(&self, url: &str, file: &RemoteFile) -> Result<reqwest::Response, CallError> {
        let ours = Url::parse(&self.config.files_url).map(|url| url.origin());
        let mut url = Url::parse(url).map_err(|_| elsewhere(file))?;
        if ours.as_ref() != Ok(&url.origin()) {
            return Err(elsewhere(file));
        }
        for _ in 0..HOPS {
            let at_home = ours.as_ref() == Ok(&url.origin());
            if !at_home && url.scheme() != "https" {
                return Err(elsewhere(file));
            }
            let mut request = self.api.http().get(url.clone()).timeout(self.pace.upload);
            if at_home {
                request = request.bearer_auth(self.config.bot_token.expose());
            }
            let sent = request.send().await.map_err(call::broken);
            let response = sent.map_err(|failure| unseen(told(failure)))?;
            if !response.status().is_redirection() {
                return downloaded(response, file);
            }
            let to = response.headers().get(header::LOCATION);
            let to = to.and_then(|to| to.to_str().ok());
            url = to
                .and_then(|to| url.join(to).ok())
                .ok_or_else(|| elsewhere(file))?;
        }
        Err(elsewhere(file))
    }
}

/// What is known of a file's message.
enum Seen {
    At(String),
    Nowhere,
    /// An upload that was not completed is no file yet.
    NoFile,
}

/// What nobody can see may be done again.
fn unseen(error: CallError) -> CallError {
    match error {
        CallError::Unknown(why) => CallError::NotDone(why),
        other => other,
    }
}

fn retry_after(response: &reqwest::Response) -> Option<std::time::Duration> {
    let value = response.headers().get(header::RETRY_AFTER)?;
    wait::seconds(value.to_str().ok()?)
}

fn limited(response: &reqwest::Response) -> CallError {
    let reason = "too many files at once".to_owned();
    let after = retry_after(response).unwrap_or(std::time::Duration::from_secs(30));
    CallError::Limited { reason, after }
}

fn uploaded(response: &reqwest::Response, name: &str) -> Result<(), CallError> {
    match response.status().as_u16() {
        200..=299 => Ok(()),
        429 => Err(limited(response)),
        413 => Err(CallError::Refused(format!(
            "{name} is larger than Slack takes"
        ))),
        status @ 400..=499 if status != 408 => Err(CallError::Refused(format!(
            "Slack does not take the file {name} (HTTP status {status})"
        ))),
        status => Err(CallError::NotDone(format!(
            "HTTP status {status} for an upload"
        ))),
    }
}

fn downloaded(
    response: reqwest::Response,
    file: &RemoteFile,
) -> Result<reqwest::Response, CallError> {
    match response.status().as_u16() {
        200 => Ok(response),
        401 | 403 => Err(login_page(file)),
        404 | 410 => Err(CallError::Refused(format!(
            "Slack has the file {} no more: send it again",
            file.name
        ))),
        429 => Err(limited(&response)),
        status => Err(CallError::NotDone(format!(
            "HTTP status {status} for a download"
        ))),
    }
}

fn login_page(file: &RemoteFile) -> CallError {
    CallError::Refused(format!(
        "Slack does not hand out {} to the bot: add the scope files:read under \"OAuth & \
         Permissions\", install the app again, and see that the bot is in the file's channel",
        file.name
    ))
}

fn elsewhere(file: &RemoteFile) -> CallError {
    CallError::Refused(format!(
        "the file {} does not lie at Slack, and the bot fetches nothing from elsewhere: upload it",
        file.name
    ))
}

fn content_type(response: &reqwest::Response) -> Option<String> {
    let value = response.headers().get(header::CONTENT_TYPE)?;
    Some(value.to_str().ok()?.to_owned())
}

/// The file is meant to be a web page.
fn is_web(file: &RemoteFile) -> bool {
    let name = file.name.to_ascii_lowercase();
    file.media_type.as_deref() == Some("text/html")
        || name.ends_with(".html")
        || name.ends_with(".htm")
}

/// The first bytes, and what comes after them.
async fn begun(mut response: reqwest::Response) -> Result<(Vec<u8>, Body), CallError> {
    let mut beginning = Vec::new();
    while beginning.len() < BEGINNING {
        let chunk = response.chunk().await.map_err(call::broken);
        match chunk.map_err(|failure| unseen(told(failure)))? {
            Some(chunk) => beginning.extend_from_slice(&chunk),
            None => break,
        }
    }
    let rest = response
        .bytes_stream()
        .map_err(|error| io::Error::other(error.without_url()));
    Ok((beginning, Box::pin(StreamReader::new(rest))))
}
