//! What people say to Mayfly itself in a thread (`!status`, a button): done beside the lane, so that
//! `stop` never waits behind what it should stop, and each once.

pub mod grammar;
mod open;
mod run;
pub(crate) mod told;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use mayfly_domain::{MessageId, ThreadKey};
use tokio_util::sync::CancellationToken;

use crate::{
    bell::Bell,
    blobs::Blobs,
    command::Commands,
    db::{
        Db, DbError,
        orders::{Ask, OpenOrder, Said},
    },
    hold::Sending,
    inbox::route::Accesses,
    observe,
    outbox::Platforms,
    supervise::Supervisor,
};
use grammar::Order;

/// Longest wait between two looks for commands.
const POLL: Duration = Duration::from_secs(2);
/// Between two tries to record that one is done.
const RECORD: Duration = Duration::from_secs(1);
/// How long one that may be done twice goes on when the process comes to rest.
const GRACE: Duration = Duration::from_secs(5);

/// See the module; cheap to clone.
#[derive(Clone)]
pub struct Orders {
    /// The truth.
    pub db: Db,
    /// Where files are kept that are sent.
    pub blobs: Blobs,
    /// What every face calls.
    pub commands: Commands,
    /// Where threads are opened and presses answered.
    pub platforms: Platforms,
    /// Who may.
    pub accesses: Arc<Accesses>,
    /// Rung when there is one, and by it when something is owed.
    pub bell: Bell,
    /// The right to do them.
    pub sending: Sending,
}

impl Orders {
    /// Does them until the process comes to rest; those of one thread one after the other.
    pub async fn serve(self, supervisor: Supervisor) -> Result<(), DbError> {
        let stopping = supervisor.stopping();
        let mut busy: HashMap<MessageId, ThreadKey> = HashMap::new();
        let mut working: FuturesUnordered<BoxFuture<'static, MessageId>> = FuturesUnordered::new();
        while !stopping.is_cancelled() {
            let _ = stopping.run_until_cancelled(self.sending.allowed()).await;
            let bell = self.bell.clone();
            let rung = bell.next();
            match self.db.open_orders().await {
                Ok(open) => {
                    for order in open {
                        // A `stop` does not wait for an export either.
                        let waits = !order.ask.is_stop()
                            && busy.values().any(|thread| *thread == order.thread);
                        if waits || busy.contains_key(&order.id) {
                            continue;
                        }
                        busy.insert(order.id, order.thread.clone());
                        // A task of its own: between two polls it may hold a connection that
                        // the next look needs.
                        let id = order.id;
                        let begun = self.clone().begun(order, supervisor.clone());
                        let task = supervisor.task("command", begun);
                        working.push(Box::pin(async move {
                            let _ = task.await;
                            id
                        }));
                    }
                }
                Err(error) => {
                    tracing::error!(error = observe::chain(&error), "commands not readable");
                }
            }
            tokio::select! {
                () = stopping.cancelled() => {}
                Some(done) = working.next() => { busy.remove(&done); }
                () = rung => {}
                () = tokio::time::sleep(POLL) => {}
            }
        }
        Ok(())
    }

    /// One that panics is told like one that a restart cut.
    async fn begun(self, order: OpenOrder, supervisor: Supervisor) {
        let id = order.id;
        let work = self.clone().work(order, supervisor.stopping());
        let work = supervisor.task("command", work);
        if let Err(panic) = work.await {
            tracing::error!(order = %id, %panic, "a command failed");
            self.record(id, Some(&told::interrupted())).await;
        }
    }

    async fn work(self, order: OpenOrder, stopping: CancellationToken) {
        let begun = self.db.order_begun(order.id).await;
        let said = match begun {
            Err(error) => {
                tracing::error!(order = %order.id, error = observe::chain(&error), "a command waits");
                tokio::time::sleep(RECORD).await;
                return;
            }
            Ok(()) if order.interrupted && !repeats(&order.ask) => Some(told::interrupted()),
            Ok(()) => {
                let rest = async {
                    stopping.cancelled().await;
                    tokio::time::sleep(GRACE).await;
                };
                tokio::select! {
                    said = self.answer(&order) => said,
                    () = rest, if repeats(&order.ask) => {
                        tracing::info!(order = %order.id, "a command is left to the next start");
                        return;
                    }
                }
            }
        };
        crate::faults::point("order.acted");
        self.record(order.id, said.as_ref()).await;
        self.bell.ring();
    }

    async fn record(&self, id: MessageId, said: Option<&Said>) {
        while let Err(error) = self.db.order_done(id, said).await {
            tracing::error!(order = %id, error = observe::chain(&error), "a command is not recorded yet");
            tokio::time::sleep(RECORD).await;
        }
    }
}

/// Whether it may be done twice.
fn repeats(ask: &Ask) -> bool {
    match ask {
        Ask::Mistake(_) | Ask::Stale(_) => true,
        Ask::Order(order) => order.repeats(),
        Ask::Pressed { order, .. } => order.as_ref().is_none_or(Order::repeats),
    }
}
