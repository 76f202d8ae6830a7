//! What is looked at beside the lanes: whether the engine answers, and whether the host's disk has room.

use super::{SOON, Worker};
use crate::{clock::RENEWAL, tick::state::Cause, trouble::Source};
use mayfly_domain::TickId;

impl Worker {
    /// Asks the engine who it is, again and again: one that went down or came back as another is
    /// told also where no message waits.
    pub async fn watch_engine(self) -> Result<(), String> {
        let stopping = self.tools.supervisor.stopping();
        let rounds = async {
            loop {
                match self.tools.backend.engine().await {
                    Ok(_) => self.trouble.clear(Source::Engine),
                    Err(error) => self.trouble.raise(Source::Engine, error.to_string()),
                }
                tokio::time::sleep(RENEWAL).await;
            }
        };
        let _: Option<()> = stopping.run_until_cancelled(rounds).await;
        Ok(())
    }

    /// Watches the host's disk: below the floor all ticks are paused and the biggest is ended,
    /// until there is room again.
    pub async fn guard_disk(self) -> Result<(), String> {
        let stopping = self.tools.supervisor.stopping();
        let mut ending = None;
        while !stopping.is_cancelled() {
            let below = self.tools.host_disk.below_floor();
            match below {
                true => self
                    .trouble
                    .raise(Source::Disk, self.tools.host_disk.sentence()),
                false => self.trouble.clear(Source::Disk),
            }
            self.pause_all(below).await;
            // What the last one wrote is free only when its row is closed.
            let waiting = match ending {
                Some(tick) => self.is_open(tick).await,
                None => false,
            };
            let biggest = self.tools.running.biggest();
            if let Some(tick) = biggest.filter(|_| below && !waiting) {
                tracing::error!(%tick, "below the floor of free disk space: the biggest tick ends");
                self.tools.running.ask(tick, Cause::HostDiskFull);
                ending = Some(tick);
            }
            let _ = stopping
                .run_until_cancelled(tokio::time::sleep(SOON / 2))
                .await;
        }
        Ok(())
    }

    /// Each tick by itself: one that began after the others is held up too.
    async fn pause_all(&self, paused: bool) {
        let running = &self.tools.running;
        for (tick, control) in running.to_pause(paused) {
            let done = match paused {
                true => control.pause().await,
                false => control.resume().await,
            };
            match done {
                Ok(()) => running.is_paused(tick, paused),
                Err(error) => tracing::debug!(%tick, %error, "pause or resume"),
            }
        }
    }

    async fn is_open(&self, tick: TickId) -> bool {
        matches!(self.tools.db.tick(tick).await, Ok(Some(tick)) if tick.outcome.is_none())
    }
}
