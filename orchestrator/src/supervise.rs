//! The only place that spawns: every task has a name, is joined, and a panic in it is an error.
//!
//! A *standing* task runs as long as the process; its end, by error or panic, is a fault that ends
//! the process with a reason. A *task* ends by itself; whoever awaits its handle gets the panic as
//! an error.

use std::{fmt, future::Future, time::Duration};

use tokio::{sync::watch, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Why a standing task ended.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the {task} task ended: {reason}")]
pub struct Fault {
    /// The task's name.
    pub task: &'static str,
    /// What it said, the chain in one line.
    pub reason: String,
}

/// Owns all tasks of the process; cheap to clone.
#[derive(Debug, Clone)]
pub struct Supervisor {
    tracker: TaskTracker,
    stopping: CancellationToken,
    fault: watch::Sender<Option<Fault>>,
}

impl Default for Supervisor {
    fn default() -> Self {
        Supervisor {
            tracker: TaskTracker::new(),
            stopping: CancellationToken::new(),
            fault: watch::channel(None).0,
        }
    }
}

impl Supervisor {
    /// Runs a loop that must not end before [`Supervisor::stop`].
    pub fn standing<E: fmt::Display + Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let inner = self.task(name, work);
        let (fault, stopping) = (self.fault.clone(), self.stopping.clone());
        self.task(name, async move {
            let reason = match inner.await {
                Ok(Ok(())) if stopping.is_cancelled() => return,
                Ok(Ok(())) => "it returned".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(panic) => panic.to_string(),
            };
            tracing::error!(task = name, reason, "standing task ended");
            fault.send_if_modified(|slot| {
                let first = slot.is_none();
                slot.get_or_insert(Fault { task: name, reason });
                first
            });
        });
    }

    /// Runs something that ends by itself.
    #[allow(clippy::disallowed_methods)]
    pub fn task<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        tracing::trace!(task = name, "spawn");
        tokio::spawn(self.tracker.track_future(work))
    }

    /// Cancelled when the process should come to rest.
    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// Resolves when a standing task has ended on its own.
    pub async fn fault(&self) -> Fault {
        let mut faults = self.fault.subscribe();
        match faults.wait_for(Option::is_some).await {
            Ok(fault) => fault.clone().expect("waited for Some"),
            Err(_) => std::future::pending().await,
        }
    }

    /// Asks every task to come to rest and waits for them, at most `grace`. Returns whether all
    /// ended.
    pub async fn stop(&self, grace: Duration) -> bool {
        self.stopping.cancel();
        self.tracker.close();
        tokio::time::timeout(grace, self.tracker.wait())
            .await
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_in_a_standing_task_is_a_fault_with_its_name() {
        let supervisor = Supervisor::default();
        supervisor.standing("loop", async {
            if true {
                panic!("boom")
            } else {
                Ok::<(), String>(())
            }
        });
        let fault = supervisor.fault().await;
        assert_eq!(fault.task, "loop");
        assert!(fault.reason.contains("panic"), "{}", fault.reason);
    }
}
