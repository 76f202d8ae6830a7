//! Files up and down over the same socket, piece by piece.

use std::{
    io::{self, Write},
    path::Path,
};

use futures_util::TryStreamExt as _;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::BoxBody};
use hyper::{
    Request, StatusCode,
    body::{Bytes, Frame},
    header,
};
use mayfly_orchestrator::view::UploadView;
use tokio::io::AsyncRead;
use tokio_util::io::ReaderStream;

use super::{Answer, Client, ClientError, decoded, escaped, refusal};

/// How much of a file is read at once.
const CHUNK: usize = 256 << 10;

impl Client {
    /// Stores a file's content, from which `length` bytes are read where that is known.
    pub async fn upload(
        &self,
        content: impl AsyncRead + Send + Sync + 'static,
        length: Option<u64>,
    ) -> Answer<UploadView> {
        let pieces = ReaderStream::with_capacity(content, CHUNK).map_ok(Frame::data);
        let mut request = Request::post("/v1/blobs")
            .header(header::HOST, "localhost")
            .header(header::CONNECTION, "close")
            .header(header::CONTENT_TYPE, "application/octet-stream");
        if let Some(length) = length {
            request = request.header(header::CONTENT_LENGTH, length);
        }
        let request = request
            .body(StreamBody::new(pieces).boxed())
            .map_err(|error| ClientError::Strange(error.to_string()))?;
        let (status, bytes) = self.stream(request, None).await?;
        match status.is_success() {
            true => decoded(&bytes),
            false => Err(refusal(status, &bytes)),
        }
    }

    /// Writes the n-th file of a reply to `out`.
    pub async fn reply_file(
        &self,
        message: &str,
        n: usize,
        out: &mut (dyn Write + Send),
    ) -> Answer<()> {
        let path = format!("/v1/messages/{}/files/{n}", escaped(message));
        let request = Request::get(path)
            .header(header::HOST, "localhost")
            .header(header::CONNECTION, "close")
            .body(Full::default().map_err(|never| match never {}).boxed())
            .map_err(|error| ClientError::Strange(error.to_string()))?;
        let (status, bytes) = self.stream(request, Some(out)).await?;
        match status.is_success() {
            true => Ok(()),
            false => Err(refusal(status, &bytes)),
        }
    }

    /// The answer's body is written to `out` if it is a success and there is one, else returned.
    async fn stream(
        &self,
        request: Request<BoxBody<Bytes, io::Error>>,
        out: Option<&mut (dyn Write + Send)>,
    ) -> Answer<(StatusCode, Bytes)> {
        self.exchanged(request, async |response| {
            let status = response.status();
            let mut body = response.into_body();
            let Some(out) = out.filter(|_| status.is_success()) else {
                return Ok(Ok((status, body.collect().await?.to_bytes())));
            };
            while let Some(frame) = body.frame().await {
                if let Ok(bytes) = frame?.into_data()
                    && let Err(error) = out.write_all(&bytes)
                {
                    return Ok(Err(ClientError::Output(error)));
                }
            }
            Ok(Ok((status, Bytes::new())))
        })
        .await
    }
}

/// A file that can be uploaded, with its length where it has one.
pub async fn open(path: &Path) -> io::Result<(tokio::fs::File, Option<u64>)> {
    let file = tokio::fs::File::open(path).await?;
    let found = file.metadata().await?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok((file, found.is_file().then_some(found.len())))
}
