//! Answers on a listener. Whoever is slow is cut off, so that half-sent requests do not pile up;
//! more connections than there is room for wait in the kernel's queue.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{Router, serve::Listener};
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use mayfly_orchestrator::supervise::Supervisor;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::patience::{Patience, Patient};

/// From the connection, or from the answer before, until a request's head is whole.
const HEAD: Duration = Duration::from_secs(10);
/// Until a request's body is whole.
pub(crate) const BODY: Duration = Duration::from_secs(30);
/// Connections at once, on each listener; who waits for an outcome holds one.
const CONNECTIONS: usize = 512;
/// The longest head: request line and headers.
const HEAD_BYTES: usize = 64 << 10;

/// Takes connections until the supervisor stops; requests under way are finished.
pub(crate) async fn serve<L: Listener>(
    mut listener: L,
    router: Router,
    supervisor: Supervisor,
) -> Result<(), Infallible> {
    let stopping = supervisor.stopping();
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let next = async {
            let place = room.clone().acquire_owned().await.expect("never closed");
            (listener.accept().await.0, place)
        };
        let Some((stream, place)) = stopping.run_until_cancelled(next).await else {
            return Ok(());
        };
        let answered = connection(stream, router.clone(), stopping.clone());
        supervisor.task("http connection", async move {
            answered.await;
            drop(place);
        });
    }
}

async fn connection<S>(stream: S, router: Router, stopping: CancellationToken)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES);
    let patience = Patience::default();
    let stream = TokioIo::new(Patient::new(stream, patience.clone()));
    let router = TowerToHyperService::new(router);
    let answer = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(patience.clone());
        router.call(request)
    });
    let exchange = http.serve_connection(stream, answer);
    tokio::pin!(exchange);
    let ended = tokio::select! {
        ended = exchange.as_mut() => ended,
        () = stopping.cancelled() => {
            exchange.as_mut().graceful_shutdown();
            exchange.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a client went away or was too slow");
    }
}
