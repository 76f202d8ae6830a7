//! How many ticks run here at once. A quarter of the places, at least one of several, is kept for short
//! ticks where a profile has such: a long one is then never all there is room for.

use std::{sync::Arc, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    agent::profile::Profiles,
    queue::{Length, Room},
    worker::WorkerConfig,
};

/// See the module; cheap to clone.
#[derive(Debug, Clone)]
pub struct Places {
    all: Arc<Semaphore>,
    long: Arc<Semaphore>,
    many: u32,
    room: Room,
}

/// A tick's place; free again when dropped.
#[derive(Debug)]
pub struct Place {
    _any: Option<OwnedSemaphorePermit>,
    _long: Option<OwnedSemaphorePermit>,
}

impl Places {
    /// As configured.
    pub fn new(config: &WorkerConfig, profiles: &Profiles) -> Places {
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
        Room {
            long: self.long.available_permits() > 0,
            ..self.room.clone()
        }
    }

    /// Waits until a long tick may have a place.
    pub async fn free_for_long(&self) {
        drop(self.long.acquire().await.expect("never closed"));
    }

    /// The place that is free.
    pub fn take(&self, length: Length) -> Place {
        Place {
            _any: self.all.clone().try_acquire_owned().ok(),
            _long: match length {
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
    use super::*;
    use crate::agent::profile::Profile;

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
        Places::new(&config, &Profiles(profiles.collect()))
    }

    /// How many long ticks run at once.
    async fn long(places: &Places) -> usize {
        let mut taken = Vec::new();
        while !places.all.is_closed() && places.all.available_permits() > 0 {
            if !places.free().await.long {
                break;
            }
            taken.push(places.take(Length::Long));
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
        let mut long: Vec<Place> = (0..3).map(|_| places.take(Length::Long)).collect();
        assert!(!places.free().await.long);
        let short = places.take(Length::Short);
        long.pop();
        places.free_for_long().await;
        assert!(places.free().await.long);
        drop((short, long));
        places.rest().await;
    }
}
