//! What runs here at once: so many ticks, and what the host has for them ([`Reserves`]). A quarter of the
//! places, at least one of several, is kept for short ticks where a profile has such: a long one is then never
//! all there is room for.

use std::{sync::Arc, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    agent::profile::Profiles,
    queue::{Length, Room, Work},
    worker::{
        WorkerConfig,
        reserves::{Promise, Reserves},
    },
};

/// See the module; cheap to clone.
#[derive(Debug, Clone)]
pub struct Places {
    all: Arc<Semaphore>,
    long: Arc<Semaphore>,
    many: u32,
    room: Room,
    /// What the host has.
    pub reserves: Reserves,
}

/// A tick's place; free again when dropped.
#[derive(Debug)]
pub struct Place {
    /// Its share of what the host has.
    pub share: Promise,
    _any: Option<OwnedSemaphorePermit>,
    _long: Option<OwnedSemaphorePermit>,
}

impl Places {
    /// As configured.
    pub fn new(config: &WorkerConfig, profiles: &Profiles, reserves: Reserves) -> Places {
        let many = config.max_running;
        let lengths = profiles
            .0
            .values()
            .map(|profile| Length::of(Duration::from_secs(profile.limits.wall_clock_s)));
        let kept = match lengths.into_iter().any(|length| length == Length::Short) {
            true if many > 1 => (many / 4).max(1),
            _ => 0,
        };
        let per_profile = profiles.0.iter();
        Places {
            all: Arc::new(Semaphore::new(many as usize)),
            long: Arc::new(Semaphore::new((many - kept) as usize)),
            many,
            reserves,
            room: Room {
                long: true,
                per_user: config.max_per_user,
                per_profile: per_profile
                    .filter_map(|(name, profile)| Some((name.clone(), profile.max_concurrent?)))
                    .collect(),
            },
        }
    }

    /// Waits for a free place and tells for what. One caller only: whoever then takes a lane and asks
    /// for its place gets it.
    pub async fn free(&self) -> Room {
        drop(self.all.acquire().await.expect("never closed"));
        self.room()
    }

    fn room(&self) -> Room {
        let mut room = Room {
            long: self.long.available_permits() > 0,
            ..self.room.clone()
        };
        let held_back = self.reserves.held_back();
        room.per_profile
            .extend(held_back.into_iter().map(|profile| (profile, 0)));
        room
    }

    /// Waits until there is room for something else than told. Never where there is room for everything.
    pub async fn other_than(&self, room: &Room) {
        let whole = self.room.per_profile == room.per_profile;
        if room.long && whole {
            std::future::pending::<()>().await;
        }
        while self.room() == *room {
            tokio::select! {
                () = self.reserves.freed() => {}
                () = self.free_for_long(), if !room.long => {}
            }
        }
    }

    async fn free_for_long(&self) {
        drop(self.long.acquire().await.expect("never closed"));
    }

    /// The place that is free.
    pub fn take(&self, work: &Work) -> Place {
        Place {
            share: self.reserves.promise(&work.profile),
            _any: self.all.clone().try_acquire_owned().ok(),
            _long: match work.length {
                Length::Short => None,
                Length::Long => self.long.clone().try_acquire_owned().ok(),
            },
        }
    }

    /// Waits until no place is taken, and takes them all while the answer is kept.
    pub async fn rest(&self) -> impl Sized {
        self.all
            .acquire_many(self.many)
            .await
            .expect("never closed")
    }

    /// Whether no place is taken.
    pub fn are_free(&self) -> bool {
        self.all.available_permits() == self.many as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mayfly_domain::AgentId;

    use super::*;
    use crate::{
        agent::profile::Profile,
        worker::{
            host_disk::{DiskConfig, HostDisk},
            running::Running,
        },
    };

    fn places(many: u32, deadlines: &[u64]) -> Places {
        let profiles = deadlines.iter().enumerate().map(|(number, deadline)| {
            let mut profile = Profile::default();
            profile.limits.wall_clock_s = *deadline;
            (format!("p{number}"), profile)
        });
        let config = WorkerConfig {
            max_running: many,
            ..WorkerConfig::default()
        };
        let profiles = Profiles(profiles.collect());
        let disk = HostDisk::new(std::env::temp_dir(), DiskConfig::default());
        // Of no profile that is here.
        let reserves = Reserves::new(
            &config,
            &Profiles(BTreeMap::new()),
            disk,
            Running::default(),
        );
        Places::new(&config, &profiles, reserves)
    }

    fn work(length: Length) -> Work {
        Work {
            lane: AgentId::new(),
            user: "ada".to_owned(),
            profile: "p0".to_owned(),
            length,
        }
    }

    /// How many long ticks run at once.
    async fn long(places: &Places) -> usize {
        let mut taken = Vec::new();
        while !places.all.is_closed() && places.all.available_permits() > 0 {
            if !places.free().await.long {
                break;
            }
            taken.push(places.take(&work(Length::Long)));
        }
        taken.len()
    }

    #[tokio::test]
    async fn a_quarter_is_kept_for_short_ticks_where_a_profile_has_such() {
        for (many, deadlines, expected) in [
            (8, &[300, 301][..], 6),
            (4, &[300, 600], 3),
            (2, &[60, 600], 1),
            (1, &[60, 600], 1),
            (4, &[600], 4),
            (5, &[301, 600], 5),
        ] {
            let places = places(many, deadlines);
            assert_eq!(long(&places).await, expected, "{many} {deadlines:?}");
            assert!(places.are_free());
        }
    }

    #[tokio::test]
    async fn the_places_kept_go_to_short_ticks_and_a_long_one_waits_for_its_own() {
        let places = places(4, &[300, 600]);
        let mut long: Vec<Place> = (0..3).map(|_| places.take(&work(Length::Long))).collect();
        assert!(!places.free().await.long);
        let short = places.take(&work(Length::Short));
        long.pop();
        let full = Room {
            long: false,
            ..places.room.clone()
        };
        places.other_than(&full).await;
        assert!(places.free().await.long);
        drop((short, long));
        places.rest().await;
    }
}
