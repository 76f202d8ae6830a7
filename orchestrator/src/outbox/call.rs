//! One call of a platform: bounded in time, and a panic in an adapter is an error of that call only.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use mayfly_domain::chat::{CallError, Platform};
use tokio_util::task::AbortOnDropHandle;

use crate::{faults, hold::Sending, supervise::Supervisor};

/// How long a call under way may go on when the process comes to rest.
const GRACE: Duration = Duration::from_secs(5);

/// Why a call has no result.
#[derive(Debug)]
pub(super) enum NoResult {
    /// It failed.
    Failed(CallError),
    /// The process comes to rest.
    Rest,
}

/// See the module.
pub(super) struct Caller {
    pub(super) platform: Arc<dyn Platform>,
    supervisor: Supervisor,
    sending: Sending,
}

impl Caller {
    pub(super) fn new(
        platform: Arc<dyn Platform>,
        supervisor: Supervisor,
        sending: Sending,
    ) -> Self {
        Caller {
            platform,
            supervisor,
            sending,
        }
    }

    /// Calls once.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        what: impl FnOnce(Arc<dyn Platform>) -> BoxFuture<'static, Result<T, CallError>>,
    ) -> Result<T, NoResult> {
        self.call_within(self.platform.patience(), what).await
    }

    /// The same with a time of its own.
    pub(super) async fn call_within<T: Send + 'static>(
        &self,
        patience: Duration,
        what: impl FnOnce(Arc<dyn Platform>) -> BoxFuture<'static, Result<T, CallError>>,
    ) -> Result<T, NoResult> {
        let stopping = self.supervisor.stopping();
        let allowed = stopping.run_until_cancelled(self.sending.allowed());
        if allowed.await.is_none() {
            return Err(NoResult::Rest);
        }
        faults::point("deliver.before");
        let work = what(self.platform.clone());
        let mut call = AbortOnDropHandle::new(self.supervisor.task("delivery", work));
        let rest = async {
            stopping.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        let answer = tokio::select! {
            answer = &mut call => answer.unwrap_or_else(|panic| {
                Err(CallError::Unknown(format!("its adapter failed: {panic}")))
            }),
            () = tokio::time::sleep(patience) => {
                let told = format!("no answer within {} ms", patience.as_millis());
                Err(CallError::Unknown(told))
            }
            () = self.sending.over() => {
                let told = "the lease was over before it answered".to_owned();
                Err(CallError::Unknown(told))
            }
            () = rest => return Err(NoResult::Rest),
        };
        faults::point("deliver.after");
        answer.map_err(NoResult::Failed)
    }
}
