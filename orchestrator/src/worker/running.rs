//! The ticks that run in this process: each can be asked to end, and each is watched on disk.

use std::{
    collections::HashMap,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use mayfly_domain::{Limits, TickId};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    sandbox::{Control, disk},
    supervise::Supervisor,
    tick::{Job, state::Cause},
};

/// Shortest time between two looks at what a tick has written.
const LOOK: Duration = Duration::from_millis(200);
/// A descriptor that is passed on waits in a socket for less than this many looks; one that waits
/// longer is hidden there.
const HIDDEN: u32 = 10;

/// All running ticks; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Running(Arc<Mutex<HashMap<TickId, Entry>>>);

#[derive(Debug)]
struct Entry {
    ask: watch::Sender<Option<Cause>>,
    control: Control,
    /// Whether the guard of the host's disk holds it up.
    paused: bool,
    bytes: Arc<AtomicU64>,
    /// Most bytes that it may write.
    cap: u64,
    _watched: DropGuard,
}

/// Receives requests to end one tick.
#[derive(Debug)]
pub struct Asks(watch::Receiver<Option<Cause>>);

impl Asks {
    /// The next request; never resolves once the tick has left.
    pub async fn next(&mut self) -> Cause {
        loop {
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            if let Some(cause) = self.0.borrow_and_update().clone() {
                return cause;
            }
        }
    }
}

impl Running {
    /// A program starts: it can be asked to end, and its disk use is watched from now on.
    pub fn enter(
        &self,
        job: &Job,
        control: Control,
        init_pid: Option<u32>,
        uppers: Vec<PathBuf>,
        supervisor: &Supervisor,
    ) -> Asks {
        let (ask, asks) = watch::channel(None);
        let watched = CancellationToken::new();
        let bytes = Arc::new(AtomicU64::new(0));
        let look = Look {
            free: uppers
                .first()
                .and_then(|upper| disk::free(upper).ok())
                .map(|(bytes, _)| bytes),
            uppers,
            init_pid,
            limits: job.profile.limits.clone(),
            bytes: bytes.clone(),
        };
        let (asker, until) = (ask.clone(), watched.clone());
        supervisor.task("disk watch", async move {
            let _ = until.run_until_cancelled(look.watch(asker)).await;
        });
        let entry = Entry {
            ask,
            control,
            paused: false,
            bytes,
            cap: job.profile.limits.state_mib << 20,
            _watched: watched.drop_guard(),
        };
        self.entries().insert(job.claim.tick, entry);
        Asks(asks)
    }

    /// The program is over.
    pub fn leave(&self, tick: TickId) {
        self.entries().remove(&tick);
    }

    /// Asks one tick to end. False if it does not run here.
    pub fn ask(&self, tick: TickId, cause: Cause) -> bool {
        self.entries()
            .get(&tick)
            .is_some_and(|entry| entry.ask.send(Some(cause)).is_ok())
    }

    /// Asks all ticks to end.
    pub fn ask_all(&self, cause: &Cause) {
        for entry in self.entries().values() {
            let _ = entry.ask.send(Some(cause.clone()));
        }
    }

    /// The tick that has written most.
    pub fn biggest(&self) -> Option<TickId> {
        self.entries()
            .iter()
            .max_by_key(|(_, entry)| entry.bytes.load(Ordering::Relaxed))
            .map(|(tick, _)| *tick)
    }

    /// Bytes that all of them have written, of each at most what it may.
    pub fn written(&self) -> u64 {
        let entries = self.entries();
        let of = |entry: &Entry| entry.bytes.load(Ordering::Relaxed).min(entry.cap);
        entries.values().map(of).fold(0, u64::saturating_add)
    }

    /// Ticks that are not yet as they should be: paused, or going on.
    pub fn to_pause(&self, paused: bool) -> Vec<(TickId, Control)> {
        self.entries()
            .iter()
            .filter(|(_, entry)| entry.paused != paused)
            .map(|(tick, entry)| (*tick, entry.control.clone()))
            .collect()
    }

    /// A tick was paused, or goes on.
    pub fn is_paused(&self, tick: TickId, paused: bool) {
        if let Some(entry) = self.entries().get_mut(&tick) {
            entry.paused = paused;
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<TickId, Entry>> {
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

struct Look {
    uppers: Vec<PathBuf>,
    init_pid: Option<u32>,
    limits: Limits,
    bytes: Arc<AtomicU64>,
    /// Free bytes of the host when the program started.
    free: Option<u64>,
}

/// What one look saw.
#[derive(Debug, Default)]
struct Used {
    bytes: u64,
    inodes: u64,
    in_transit: bool,
}

impl Look {
    async fn watch(self, ask: watch::Sender<Option<Cause>>) {
        let look = Arc::new(self);
        let mut in_transit = 0;
        loop {
            let (now, this) = (Instant::now(), look.clone());
            if let Ok(mut used) = tokio::task::spawn_blocking(move || this.used()).await {
                let overrun = look.overrun(&used);
                in_transit = if used.in_transit { in_transit + 1 } else { 0 };
                if in_transit >= HIDDEN {
                    used.bytes = used.bytes.max(look.lost());
                }
                look.bytes.store(used.bytes, Ordering::Relaxed);
                if let Some(cause) = overrun.or_else(|| look.full(&used)) {
                    let _ = ask.send(Some(cause));
                }
            }
            tokio::time::sleep((5 * now.elapsed()).max(LOOK)).await;
        }
    }

    /// Adds up what the tick has written, deleted files that are still open included.
    fn used(&self) -> Used {
        let mut total = Used::default();
        for upper in &self.uppers {
            if let Ok(used) = disk::usage(upper) {
                total.bytes = total.bytes.saturating_add(used.bytes);
                total.inodes = total.inodes.saturating_add(used.inodes);
            }
        }
        if let (Some(pid), Some(upper)) = (self.init_pid, self.uppers.first())
            && let Ok(device) = std::fs::metadata(upper).map(|meta| meta.dev())
            && let Ok(deleted) = disk::deleted_open(pid, device)
        {
            total.bytes = total.bytes.saturating_add(deleted.bytes);
            total.inodes = total.inodes.saturating_add(deleted.files);
            total.in_transit = deleted.in_transit > 0;
        }
        total
    }

    /// What all of the host has written since the program's start: descriptors in transit cannot
    /// hold more.
    fn lost(&self) -> u64 {
        let now = self.uppers.first().and_then(|upper| disk::free(upper).ok());
        match (self.free, now) {
            (Some(then), Some((now, _))) => then.saturating_sub(now),
            _ => 0,
        }
    }

    fn cap(&self) -> u64 {
        self.limits.state_mib << 20
    }

    /// A quarter over the cap there is no more time to be polite.
    fn overrun(&self, used: &Used) -> Option<Cause> {
        let far = self.cap().saturating_add(self.cap() / 4);
        (used.bytes > far && used.bytes < disk::TOO_DEEP)
            .then(|| Cause::StateOverrun(format!("{} MiB", self.limits.state_mib)))
    }

    /// The passed limit, in words.
    fn full(&self, used: &Used) -> Option<Cause> {
        let limit = if used.bytes >= disk::TOO_DEEP {
            format!("{} nested folders", disk::LEVELS)
        } else if used.bytes > self.cap() {
            format!("{} MiB", self.limits.state_mib)
        } else if used.inodes > self.limits.state_inodes {
            format!("{} files", self.limits.state_inodes)
        } else {
            return None;
        };
        Some(Cause::StateFull(limit))
    }
}
