//! Each platform's listener lives as long as the process. One that may not go on is a trouble that
//! stays; one that panics begins anew.

use std::{sync::Arc, time::Duration};

use mayfly_domain::chat::Platform;

use super::DurableInbox;
use crate::{
    supervise::Supervisor,
    trouble::{Source, Trouble},
};

/// Before a listener that panicked begins anew.
const PAUSE: Duration = Duration::from_secs(5);

/// Listens until the process comes to rest.
pub async fn serve(
    platform: Arc<dyn Platform>,
    inbox: DurableInbox,
    trouble: Trouble,
    supervisor: Supervisor,
) -> Result<(), String> {
    let stopping = supervisor.stopping();
    let source = Source::Platform(platform.name());
    while !stopping.is_cancelled() {
        let (listening, inbox, stop) = (platform.clone(), inbox.clone(), stopping.clone());
        let listener = supervisor.task("listener", async move {
            stop.run_until_cancelled(listening.listen(&inbox)).await
        });
        match listener.await {
            Ok(None) => {}
            Ok(Some(Ok(never))) => match never {},
            Ok(Some(Err(refusal))) => {
                tracing::error!(
                    platform = platform.name(),
                    reason = refusal,
                    "listening ends"
                );
                trouble.raise(source, refusal);
                stopping.cancelled().await;
            }
            Err(panic) => {
                tracing::error!(platform = platform.name(), %panic, "the listener failed");
                trouble.raise(source, format!("its listener failed: {panic}"));
                let _ = stopping
                    .run_until_cancelled(tokio::time::sleep(PAUSE))
                    .await;
            }
        }
    }
    Ok(())
}
