//! One request on a connection of its own: the only place that opens one.
//!
//! A server may answer before it has read the whole request, and close: what cannot be written any
//! more is then no fault, the answer is read.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::{
    Request, Response,
    body::{Body, Incoming},
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
};

use super::{Answer, Client, ClientError};

impl Client {
    /// Sends a request and lets `take` read the answer.
    pub(super) async fn exchanged<B, T>(
        &self,
        request: Request<B>,
        take: impl AsyncFnOnce(Response<Incoming>) -> Result<Answer<T>, hyper::Error>,
    ) -> Answer<T>
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + 'static,
    {
        let gone = |asked, reason: String| ClientError::Gone {
            socket: self.socket.clone(),
            reason,
            asked,
        };
        let stream = UnixStream::connect(&self.socket).await;
        let stream = stream.map_err(|error| gone(false, error.to_string()))?;
        let stream = TokioIo::new(Listening::on(stream));
        let handshake = hyper::client::conn::http1::handshake(stream).await;
        let (mut sender, connection) = handshake.map_err(|error| gone(true, error.to_string()))?;
        let exchange = async { take(sender.send_request(request).await?).await };
        tokio::pin!(exchange);
        let done = tokio::select! {
            done = &mut exchange => done,
            // It ends as soon as it has read everything; the answer may still lie in its channel.
            _ = connection => exchange.await,
        };
        done.map_err(|error: hyper::Error| match source(&error) {
            Some(told) => ClientError::Input(told),
            None => gone(true, error.to_string()),
        })?
    }
}

/// What the request body's own reader said, where that ended the exchange.
fn source(error: &hyper::Error) -> Option<String> {
    if !error.is_user() {
        return None;
    }
    let source = std::error::Error::source(error)?;
    Some(source.to_string())
}

/// A stream that is read on after the other end has closed: writing stands still from then on, and
/// the end of what can be read ends the exchange.
struct Listening {
    stream: UnixStream,
    closed: bool,
}

impl Listening {
    fn on(stream: UnixStream) -> Listening {
        Listening {
            stream,
            closed: false,
        }
    }
}

impl AsyncRead for Listening {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Listening {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset};
        if self.closed {
            return Poll::Pending;
        }
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Ready(Err(error)) if [BrokenPipe, ConnectionReset].contains(&error.kind()) => {
                self.closed = true;
                Poll::Pending
            }
            done => done,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::UnixListener,
    };

    use super::*;
    use crate::exit::{Exit, Failure};

    /// What a client says that uploads more than a server takes, which answers this and closes.
    async fn uploaded(answer: &str) -> Failure {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("s");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let client = Client::new(Path::new(&socket));
        let serve = async {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await.expect("a request");
            stream.write_all(answer.as_bytes()).await.expect("taken");
        };
        let content = tokio::io::repeat(1).take(64 << 20);
        let upload = client.upload(content, Some(64 << 20));
        let upload = tokio::time::timeout(Duration::from_secs(20), upload);
        let (uploaded, ()) = tokio::join!(upload, serve);
        uploaded.expect("in time").expect_err("refused").into()
    }

    #[tokio::test]
    async fn a_server_that_refuses_an_upload_early_is_heard() {
        let body =
            r#"{"type":"urn:mayfly:unavailable","title":"x","status":503,"detail":"no room"}"#;
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        let failure = uploaded(&answer).await;
        assert_eq!(
            (failure.exit, failure.to_string().as_str()),
            (Exit::Unavailable, "no room")
        );
        assert!(!failure.server_gone);
    }

    #[tokio::test]
    async fn a_server_that_closes_without_an_answer_is_gone() {
        assert!(uploaded("").await.server_gone);
    }
}
