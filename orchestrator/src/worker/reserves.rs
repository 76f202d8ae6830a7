//! What running ticks are promised together: memory up to what the host may give, and room on the disk above
//! its floor, each as much as the profile allows, so that no burst takes the host down. One tick alone always
//! has room on the disk, whose floor guards it, and memory, unless the configuration states less for all.
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

use super::{WorkerConfig, host_disk::HostDisk, running::Running};
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
    "profile \"{profile}\" may take {wants} MiB of memory (profiles.{profile}.limits.memory_mib), and all ticks together \
     have {has} MiB here (worker.memory_mib): lower the one or raise the other"
)]
pub struct TooLarge {
    profile: String,
    wants: u64,
    has: u64,
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
    /// Whether the configuration says so.
    stated: bool,
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
    /// Of what the configuration or the host gives.
    pub fn new(
        config: &WorkerConfig,
        profiles: &Profiles,
        disk: HostDisk,
        running: Running,
    ) -> Reserves {
        let memory = config.memory().unwrap_or(u64::MAX).saturating_mul(1 << 20);
        let stated = config.memory_mib.is_some();
        let share = |profile: &Profile| {
            let mut share = Share::of(profile);
            if !stated {
                share.memory = share.memory.min(memory);
            }
            share
        };
        let shares = profiles.0.iter();
        Reserves(Arc::new(Inner {
            memory,
            stated,
            disk,
            running,
            shares: shares
                .map(|(name, profile)| (name.clone(), share(profile)))
                .collect(),
            state: Mutex::default(),
            freed: Notify::new(),
        }))
    }

    /// The first profile that may take more memory than is stated for all; those that may take more than this
    /// host has are warned of.
    pub fn check(&self, profiles: &Profiles) -> Result<(), TooLarge> {
        for (name, profile) in &profiles.0 {
            let wanted = Share::of(profile);
            if wanted.memory <= self.0.memory {
                continue;
            }
            let large = self.too_large(name, wanted);
            if self.0.stated {
                return Err(large);
            }
            tracing::warn!(
                profile = name,
                memory_mib = large.wants,
                all_ticks_mib = large.has,
                "may take more memory than this host has for ticks, so it runs alone"
            );
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
            if self.scarce(state.promised, *share, free).is_none() {
                state.since.remove(profile);
                continue;
            }
            // One that would not fit alone is taken, so that somebody is told.
            if self.scarce(Share::default(), *share, free).is_some() {
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
        Some(match self.scarce(others, share, free)? {
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
        let waits = self.scarce(state.promised, share, free).is_some();
        state.promised = state.promised.and(share);
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

    fn too_large(&self, profile: &str, share: Share) -> TooLarge {
        TooLarge {
            profile: profile.to_owned(),
            wants: share.memory >> 20,
            has: self.0.memory >> 20,
        }
    }

    /// What there is too little of for this share beside the others.
    fn scarce(&self, others: Share, share: Share, free: u64) -> Option<Scarce> {
        let wanted = others.and(share);
        match () {
            () if wanted.memory > self.0.memory => Some(Scarce::Memory),
            () if others.disk > 0 && wanted.disk > free => Some(Scarce::Disk),
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
        self.reserves.lacks(self.others(), self.share)
    }

    /// Waits until it is; the error says why it will not be by others' ending, for the operator.
    pub async fn kept(&mut self) -> Result<(), String> {
        while self.waits {
            if self.scarce_beside(Share::default()) {
                return Err(self
                    .reserves
                    .too_large(&self.profile, self.share)
                    .to_string());
            }
            if !self.scarce_beside(self.others()) {
                self.waits = false;
                self.reserves.state().waiting -= 1;
                break;
            }
            self.reserves.freed().await;
        }
        Ok(())
    }

    fn others(&self) -> Share {
        self.reserves.state().promised.without(self.share)
    }

    fn scarce_beside(&self, others: Share) -> bool {
        let free = self.reserves.free_disk();
        self.reserves.scarce(others, self.share, free).is_some()
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

    fn profiles(memory: &[(&str, u64)]) -> Profiles {
        let profile = |(name, memory_mib): &(&str, u64)| {
            let mut profile = Profile::default();
            profile.limits.memory_mib = *memory_mib;
            profile.limits.state_mib = 1;
            (name.to_string(), profile)
        };
        Profiles(memory.iter().map(profile).collect())
    }

    /// 100 MiB for profiles that take so many.
    fn reserves(memory: &[(&str, u64)]) -> Reserves {
        let config = DiskConfig {
            floor_mib: 0,
            ballast_mib: 0,
        };
        let worker = WorkerConfig {
            memory_mib: Some(100),
            ..WorkerConfig::default()
        };
        Reserves::new(
            &worker,
            &profiles(memory),
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
        let memory = [("large", 101), ("small", 20)];
        let reserves = reserves(&memory);
        let told = reserves.check(&profiles(&memory)).unwrap_err();
        let told = told.to_string();
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
            let worker = WorkerConfig {
                memory_mib: Some(1 << 20),
                ..WorkerConfig::default()
            };
            Reserves::new(&worker, profiles, disk.clone(), Running::default())
        };
        let reserves = of(&profiles);
        let first = reserves.promise("shell");
        assert!(first.is_kept());
        assert_eq!(held(&reserves), ["shell"]);
        let why = reserves.waits_for("shell").unwrap();
        assert!(why.contains("room on the host's disk"), "{why}");
        drop(first);
        assert!(held(&reserves).is_empty());
        let shell = profiles.0.get_mut("shell").unwrap();
        shell.limits.state_mib = (disk.above_floor() >> 20) * 2;
        let reserves = of(&profiles);
        let alone = reserves.promise("shell");
        assert!(alone.is_kept(), "the floor guards the disk");
        assert_eq!(held(&reserves), ["shell"], "beside it is no room");
    }

    #[tokio::test]
    async fn what_a_small_host_lacks_is_no_reason_to_run_nothing() {
        let host = WorkerConfig::default();
        let has = host.memory().expect("it tells");
        let profiles = profiles(&[("large", has * 3), ("small", 16)]);
        let config = DiskConfig {
            floor_mib: 0,
            ballast_mib: 0,
        };
        let disk = HostDisk::new(std::env::temp_dir(), config);
        let reserves = Reserves::new(&host, &profiles, disk, Running::default());
        assert!(reserves.check(&profiles).is_ok());
        let large = reserves.promise("large");
        assert!(large.is_kept());
        assert!(!reserves.promise("small").is_kept(), "it runs alone");
    }
}
