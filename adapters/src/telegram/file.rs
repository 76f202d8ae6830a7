//! Files on their way to Telegram and from it.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use mayfly_domain::{
    RemoteFile,
    chat::{Body, CallError},
};
use reqwest::multipart::Part;
use teloxide_core::{payloads::GetFile, types::FileId};
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::{ReaderStream, StreamReader};

use super::{
    api::{Api, FILES},
    trouble,
};
use crate::{
    http::{answer::Failure, call::broken, page::is_web_page},
    json::text,
};

/// Largest file a bot may send.
pub(crate) const MAX_SENT: u64 = 50_000_000;
/// Largest file a bot may fetch.
pub(crate) const MAX_FETCHED: u64 = 20 << 20;
/// Slowest upload that is waited for, bytes a second.
const SLOWEST: u64 = 512 << 10;

/// How long a file of this size may take to be sent.
pub(crate) fn upload_time(size: u64) -> Duration {
    Duration::from_secs(20 + size / SLOWEST)
}

/// What cannot be sent whatever is tried.
pub(crate) fn sendable(name: &str, size: u64) -> Result<(), CallError> {
    match size {
        0 => Err(CallError::Refused(format!(
            "\"{name}\" is empty, and Telegram takes no empty files"
        ))),
        size if size > MAX_SENT => Err(CallError::Refused(format!(
            "\"{name}\" has {size} bytes, and bots may send files of up to {MAX_SENT}"
        ))),
        _ => Ok(()),
    }
}

/// How much of a file is still to be given to the connection.
#[derive(Debug, Clone)]
pub(crate) struct Left(Arc<AtomicU64>);

impl Left {
    /// Where not all of a file was given away, nobody has all of it.
    pub(crate) fn judge(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Unknown { why } if self.0.load(Ordering::Acquire) > 0 => Failure::NotDone {
                why: format!("the file was not sent to its end: {why}"),
                wait: None,
            },
            other => other,
        }
    }
}

struct Counted {
    body: Body,
    left: Left,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = self.body.as_mut().poll_read(cx, buffer);
        let came = (buffer.filled().len() - before) as u64;
        let left = &self.left.0;
        left.store(
            left.load(Ordering::Acquire).saturating_sub(came),
            Ordering::Release,
        );
        read
    }
}

/// A file as part of a form.
pub(crate) fn part(name: &str, size: u64, body: Body) -> (Part, Left) {
    let left = Left(Arc::new(AtomicU64::new(size)));
    let counted = Counted {
        body,
        left: left.clone(),
    };
    let body = reqwest::Body::wrap_stream(ReaderStream::with_capacity(counted, 64 << 10));
    (
        Part::stream_with_length(body, size).file_name(in_header(name)),
        left,
    )
}

/// The name within a quoted header value: Telegram reads it as UTF-8 and knows no escapes.
fn in_header(name: &str) -> String {
    let safe = |c: char| match c {
        '"' | '\\' | '/' => '_',
        c if c.is_control() => '_',
        c => c,
    };
    let name: String = name.chars().map(safe).collect();
    match name.trim().is_empty() {
        true => "file".to_owned(),
        false => name,
    }
}

/// Fetches a file: its path first, then its content.
pub(crate) async fn fetch(api: &Api, file: &RemoteFile) -> Result<Body, CallError> {
    if let Some(size) = file.size.filter(|size| *size > MAX_FETCHED) {
        return Err(CallError::Refused(format!(
            "\"{}\" has {size} bytes, and bots may fetch files of up to 20 MB: \
             send a smaller one or a link",
            file.name
        )));
    }
    let told = |failure| trouble::told(failure, api.bot());
    let asked = GetFile::new(FileId(file.id.clone()));
    let answer = api.call(FILES, &asked).await.map_err(told)?;
    let path = text(&answer, &["file_path"])
        .ok_or_else(|| CallError::NotDone("Telegram named no path of the file".to_owned()))?;
    if path.starts_with('/') {
        return Err(CallError::Refused(
            "the Bot API server keeps files on its own disk: run it without --local".to_owned(),
        ));
    }
    let response = api.download(path).await.map_err(told)?;
    content(api, file, response).await
}

async fn content(
    api: &Api,
    file: &RemoteFile,
    response: reqwest::Response,
) -> Result<Body, CallError> {
    let kind = response.headers().get("content-type").cloned();
    let pieces = response
        .bytes_stream()
        .map_err(|error| io::Error::other(broken(error)));
    let stalled = api.stalled();
    let pieces = stream::unfold(Box::pin(pieces), move |mut pieces| async move {
        let next = tokio::time::timeout(stalled, pieces.next()).await;
        let next = next.unwrap_or_else(|_| Some(Err(io::ErrorKind::TimedOut.into())));
        next.map(|piece| (piece, pieces))
    });
    let mut pieces = Box::pin(pieces.fuse());
    let first = pieces.next().await;
    let beginning = match &first {
        Some(Ok(bytes)) => bytes.as_ref(),
        Some(Err(error)) => return Err(CallError::NotDone(error.to_string())),
        None => &[],
    };
    let kind = kind.as_ref().and_then(|kind| kind.to_str().ok());
    if !may_be_page(file) && is_web_page(kind, beginning) {
        return Err(CallError::Refused(format!(
            "a web page came in place of \"{}\": something between here and Telegram answers for it",
            file.name
        )));
    }
    let whole = stream::iter(first).chain(pieces);
    Ok(Box::pin(StreamReader::new(whole)))
}

fn may_be_page(file: &RemoteFile) -> bool {
    let name = file.name.to_ascii_lowercase();
    let kind = file.media_type.as_deref().unwrap_or_default();
    kind.contains("html")
        || [".html", ".htm", ".xhtml", ".svg", ".xml"]
            .iter()
            .any(|end| name.ends_with(end))
}
