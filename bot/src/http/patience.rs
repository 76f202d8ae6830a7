//! A connection that is cut off once its peer has read nothing for too long. Answers that end by
//! themselves may be read as slowly as one likes; those that do not set a limit.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

/// How long a connection waits for its peer to read; no end until a limit is set.
#[derive(Debug, Clone, Default)]
pub(super) struct Patience(Arc<Mutex<Option<Duration>>>);

impl Patience {
    /// For the rest of the connection.
    pub(super) fn limit(&self, limit: Duration) {
        *self.0.lock().expect("never poisoned") = Some(limit);
    }

    fn get(&self) -> Option<Duration> {
        *self.0.lock().expect("never poisoned")
    }
}

/// See the module.
pub(super) struct Patient<S> {
    stream: S,
    patience: Patience,
    /// Set while nothing can be written.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(super) fn new(stream: S, patience: Patience) -> Self {
        Patient {
            stream,
            patience,
            stuck: None,
        }
    }

    fn judge(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match (written, self.patience.get()) {
            (Poll::Pending, Some(limit)) => {
                let stuck = self
                    .stuck
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
                ready!(stuck.as_mut().poll(context));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            (written, _) => {
                self.stuck = None;
                written
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.judge(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
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
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn only_a_peer_that_reads_nothing_is_cut_off() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let patience = Patience::default();
        let mut ours = Patient::new(ours, patience.clone());
        let long = Duration::from_millis(500);
        let unlimited = tokio::time::timeout(long, ours.write_all(&[0; 65])).await;
        assert!(unlimited.is_err(), "it waits as long as one likes");
        patience.limit(Duration::from_secs(2));
        let slow = async {
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_millis(400)).await;
                theirs.read_exact(&mut [0; 64]).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(ours.write_all(&[0; 640]), slow);
        written.unwrap();
        let cut = ours.write_all(&[0; 65]).await.unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::TimedOut);
    }
}
