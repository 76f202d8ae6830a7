//! What running ticks are promised together: memory up to what the host may give, and room on the disk above
//! its floor, each as much as the profile allows, so that no burst takes the host down.
//!
//! A lane whose profile does not fit is passed by those that do, for [`PATIENCE`]. Then its turn counts: it is
//! taken, its share is promised to it, and what becomes free is its own before anybody else's. One at a time,
//! and only where it fits once the others have ended; beside it runs what fits beside it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::{host_disk::HostDisk, running::Running};
use crate::agent::profile::{Profile, Profiles};

/// How long smaller ones pass one that does not fit.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at what is free: the disk fills and empties without a word.
pub(super) const LOOK: Duration = Duration::from_millis(250);

/// Bytes that a tick may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Share {
    memory: u64,
    disk: u64,
}

impl Share {
    fn of(profile: &Profile) -> Share {
        Share {
            memory: profile.limits.memory_mib.saturating_mul(1 << 20),
            disk: profile.limits.state_mib.saturating_mul(1 << 20),
        }
    }

    fn and(self, more: Share) -> Share {
        Share {
            memory: self.memory.saturating_add(more.memory),
            disk: self.disk.saturating_add(more.disk),
        }
    }

    fn without(self, less: Share) -> Share {
        Share {
            memory: self.memory.saturating_sub(less.memory),
            disk: self.disk.saturating_sub(less.disk),
        }
    }
}

/// A profile that can never run here. `Display` is one sentence for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "profile \"{profile}\" may take {wants} MiB of {of} (profiles.{profile}.limits.{limit}), and all ticks together have \
     {has} MiB here ({setting}): lower the one or raise the other"
)]
pub struct TooLarge {
    profile: String,
    of: &'static str,
    wants: u64,
    limit: &'static str,
    has: u64,
    setting: &'static str,
}

/// What there is too little of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scarce {
    Memory,
    Disk,
}

/// See the module; cheap to clone.
#[derive(Debug, Clone)]
pub struct Reserves(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    memory: u64,
    disk: HostDisk,
    running: Running,
    shares: BTreeMap<String, Share>,
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    promised: Share,
    /// Promises that are not kept yet.
    waiting: u32,
    /// Since when a profile does not fit.
    since: BTreeMap<String, Instant>,
}

impl Reserves {
    /// With so many mebibytes of memory.
    pub fn new(memory_mib: u64, profiles: &Profiles, disk: HostDisk, running: Running) -> Reserves {
        let shares = profiles.0.iter();
        Reserves(Arc::new(Inner {
            memory: memory_mib.saturating_mul(1 << 20),
            disk,
            running,
            shares: shares
                .map(|(name, profile)| (name.clone(), Share::of(profile)))
                .collect(),
            state: Mutex::default(),
            freed: Notify::new(),
        }))
    }

    /// The first profile that does not fit even if nothing runs and nothing is on the disk.
    pub fn check(&self) -> Result<(), TooLarge> {
        let disk = self.0.disk.whole_above_floor();
        for (profile, share) in &self.0.shares {
            if let Some(scarce) = self.scarce(*share, disk) {
                return Err(self.too_large(profile, *share, scarce, disk));
            }
        }
        Ok(())
    }

    /// Profiles whose lanes are left to wait for now.
    pub(super) fn held_back(&self) -> BTreeSet<String> {
        let free = self.free_disk();
        let mut state = self.state();
        let now = Instant::now();
        let mut held = BTreeSet::new();
        for (profile, share) in &self.0.shares {
            if self.scarce(state.promised.and(*share), free).is_none() {
                state.since.remove(profile);
                continue;
            }
            // One that would not fit alone is taken, so that somebody is told.
            if self.scarce(*share, free).is_some() {
                continue;
            }
            let since = *state.since.entry(profile.clone()).or_insert(now);
            if state.waiting > 0 || now.duration_since(since) < PATIENCE {
                held.insert(profile.clone());
            }
        }
        held
    }

    /// What a lane of this profile waits for beside its turn, in words; none where it fits.
    pub fn waits_for(&self, profile: &str) -> Option<String> {
        let share = *self.0.shares.get(profile)?;
        self.lacks(self.state().promised, share)
    }

    fn lacks(&self, others: Share, share: Share) -> Option<String> {
        let free = self.free_disk();
        let mib = |bytes: u64| bytes >> 20;
        Some(match self.scarce(others.and(share), free)? {
            Scarce::Memory => format!(
                "there is not enough memory: it may take {} MiB, and {} of {} are free",
                mib(share.memory),
                mib(self.0.memory.saturating_sub(others.memory)),
                mib(self.0.memory),
            ),
            Scarce::Disk => format!(
                "there is not enough room on the host's disk: it may write {} MiB, and {} are free",
                mib(share.disk),
                mib(free.saturating_sub(others.disk)),
            ),
        })
    }

    /// Promises a tick of this profile its share.
    pub(super) fn promise(&self, profile: &str) -> Promise {
        let share = self.0.shares.get(profile).copied().unwrap_or_default();
        let free = self.free_disk();
        let mut state = self.state();
        state.promised = state.promised.and(share);
        let waits = self.scarce(state.promised, free).is_some();
        state.waiting += u32::from(waits);
        Promise {
            reserves: self.clone(),
            share,
            profile: profile.to_owned(),
            waits,
        }
    }

    /// Waits until something may have become free.
    pub(super) async fn freed(&self) {
        let _ = tokio::time::timeout(LOOK, self.0.freed.notified()).await;
    }

    fn too_large(&self, profile: &str, share: Share, scarce: Scarce, disk: u64) -> TooLarge {
        let (of, limit, setting) = match scarce {
            Scarce::Memory => ("memory", "memory_mib", "worker.memory_mib"),
            Scarce::Disk => ("disk", "state_mib", "its file system above disk.floor_mib"),
        };
        let (wants, has) = match scarce {
            Scarce::Memory => (share.memory, self.0.memory),
            Scarce::Disk => (share.disk, disk),
        };
        TooLarge {
            profile: profile.to_owned(),
            of,
            wants: wants >> 20,
            limit,
            has: has >> 20,
            setting,
        }
    }

    fn scarce(&self, wanted: Share, disk: u64) -> Option<Scarce> {
        match () {
            () if wanted.memory > self.0.memory => Some(Scarce::Memory),
            () if wanted.disk > disk => Some(Scarce::Disk),
            () => None,
        }
    }

    /// Bytes above the floor for all that is promised: what running ticks have written of theirs is gone
    /// from the disk.
    fn free_disk(&self) -> u64 {
        let free = self.0.disk.above_floor();
        free.saturating_add(self.0.running.written())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A tick's share; free again when dropped.
#[derive(Debug)]
pub struct Promise {
    reserves: Reserves,
    profile: String,
    share: Share,
    waits: bool,
}

impl Promise {
    /// Whether what is promised is there.
    pub fn is_kept(&self) -> bool {
        !self.waits
    }

    /// For what it waits, in words; nothing where it is there.
    pub fn waits_for(&self) -> Option<String> {
        let mut others = self.reserves.state().promised;
        others = others.without(self.share);
        self.reserves.lacks(others, self.share)
    }

    /// Waits until it is; the error says why it will not be by others' ending, for the operator.
    pub async fn kept(&mut self) -> Result<(), String> {
        while self.waits {
            if let Some(sentence) = self.alone() {
                return Err(sentence);
            }
            if self.fits() {
                self.waits = false;
                self.reserves.state().waiting -= 1;
                break;
            }
            self.reserves.freed().await;
        }
        Ok(())
    }

    fn fits(&self) -> bool {
        let free = self.reserves.free_disk();
        let promised = self.reserves.state().promised;
        self.reserves.scarce(promised, free).is_none()
    }

    fn alone(&self) -> Option<String> {
        let free = self.reserves.free_disk();
        let (reserves, profile, share) = (&self.reserves, &self.profile, self.share);
        Some(match reserves.scarce(share, free)? {
            Scarce::Memory => reserves
                .too_large(profile, share, Scarce::Memory, free)
                .to_string(),
            Scarce::Disk => reserves.0.disk.lacks(profile, share.disk, free),
        })
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let mut state = self.reserves.state();
        state.promised = state.promised.without(self.share);
        state.waiting -= u32::from(self.waits);
        drop(state);
        self.reserves.0.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::host_disk::DiskConfig;

    /// 100 MiB for profiles that take so many.
    fn reserves(memory: &[(&str, u64)]) -> Reserves {
        let profile = |(name, memory_mib): &(&str, u64)| {
            let mut profile = Profile::default();
            profile.limits.memory_mib = *memory_mib;
            profile.limits.state_mib = 1;
            (name.to_string(), profile)
        };
        let config = DiskConfig {
            floor_mib: 0,
            ballast_mib: 0,
        };
        Reserves::new(
            100,
            &Profiles(memory.iter().map(profile).collect()),
            HostDisk::new(std::env::temp_dir(), config),
            Running::default(),
        )
    }

    fn held(reserves: &Reserves) -> Vec<String> {
        reserves.held_back().into_iter().collect()
    }

    #[tokio::test(start_paused = true)]
    async fn small_ones_pass_a_large_one_for_a_while_and_then_it_comes_first() {
        let reserves = reserves(&[("large", 80), ("middle", 50), ("small", 20)]);
        assert!(held(&reserves).is_empty());
        let running = [reserves.promise("small"), reserves.promise("small")];
        assert_eq!(held(&reserves), ["large"]);
        assert!(reserves.waits_for("large").unwrap().contains("60 of 100"));
        assert_eq!(reserves.waits_for("small"), None);
        tokio::time::advance(PATIENCE).await;
        assert!(held(&reserves).is_empty(), "its turn counts now");
        let mut large = reserves.promise("large");
        assert!(!large.is_kept());
        assert!(large.waits_for().unwrap().contains("60 of 100"));
        // What is promised is nobody else's, however long it takes.
        assert_eq!(held(&reserves), ["large", "middle", "small"]);
        tokio::time::advance(PATIENCE * 2).await;
        assert_eq!(held(&reserves), ["large", "middle", "small"]);
        let [first, second] = running;
        drop(first);
        assert!(large.kept().await.is_ok(), "80 and 20");
        assert!(large.is_kept());
        drop(second);
        let beside = reserves.promise("small");
        assert!(beside.is_kept(), "what fits beside it runs beside it");
        drop(large);
        assert!(held(&reserves).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_gives_up_waiting_leaves_nothing_promised() {
        let reserves = reserves(&[("large", 80), ("small", 30)]);
        let running = reserves.promise("small");
        drop(reserves.promise("large"));
        assert!(reserves.promise("small").is_kept());
        drop(running);
        assert!(reserves.promise("large").is_kept());
        assert_eq!(reserves.state().promised, Share::default());
        assert_eq!(reserves.state().waiting, 0);
    }

    #[tokio::test]
    async fn a_profile_beyond_the_host_is_named_with_both_figures_and_holds_up_nobody() {
        let reserves = reserves(&[("large", 101), ("small", 20)]);
        let told = reserves.check().unwrap_err().to_string();
        for part in ["\"large\"", "101 MiB", "100 MiB", "worker.memory_mib"] {
            assert!(told.contains(part), "{told}");
        }
        assert!(held(&reserves).is_empty());
        let mut large = reserves.promise("large");
        let why = large.kept().await.unwrap_err();
        assert!(why.contains("101 MiB"), "{why}");
        drop(large);
        assert!(reserves.promise("small").is_kept());
    }

    #[tokio::test]
    async fn room_on_the_disk_is_promised_like_memory() {
        let mut profiles = Profiles::default();
        let shell = profiles.0.get_mut("shell").unwrap();
        let disk = HostDisk::new(
            std::env::temp_dir(),
            DiskConfig {
                floor_mib: 0,
                ballast_mib: 0,
            },
        );
        // Two do not fit, also if somebody else writes or deletes meanwhile.
        shell.limits.state_mib = (disk.above_floor() / 3 * 2) >> 20;
        let of = |profiles: &Profiles| {
            Reserves::new(1 << 20, profiles, disk.clone(), Running::default())
        };
        let reserves = of(&profiles);
        assert!(reserves.check().is_ok());
        let first = reserves.promise("shell");
        assert!(first.is_kept());
        assert_eq!(held(&reserves), ["shell"]);
        let why = reserves.waits_for("shell").unwrap();
        assert!(why.contains("room on the host's disk"), "{why}");
        drop(first);
        assert!(held(&reserves).is_empty());
        let shell = profiles.0.get_mut("shell").unwrap();
        shell.limits.state_mib = (disk.whole_above_floor() >> 20) + 1;
        let told = of(&profiles).check().unwrap_err().to_string();
        assert!(told.contains("disk.floor_mib"), "{told}");
    }
}
