//! When a tick passed which point. One tick at a time is watched.

use std::{
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use mayfly_orchestrator::{clock, faults};

static PASSED: Mutex<Vec<(&'static str, Duration)>> = Mutex::new(Vec::new());

/// From now on the points that this process passes are remembered.
pub fn watch() {
    faults::watch(|name| passed().push((name, clock::boot_time())));
}

fn passed() -> MutexGuard<'static, Vec<(&'static str, Duration)>> {
    PASSED
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A stretch of time with the points that were passed in it.
#[derive(Debug)]
pub struct Course {
    began: Duration,
    ended: Duration,
    points: Vec<(&'static str, Duration)>,
}

impl Course {
    /// Follows a piece of work from its beginning to its end.
    pub async fn of<T>(work: impl Future<Output = T>) -> (T, Course) {
        passed().clear();
        let began = clock::boot_time();
        let done = work.await;
        let ended = clock::boot_time();
        let points = std::mem::take(&mut *passed());
        (
            done,
            Course {
                began,
                ended,
                points,
            },
        )
    }

    /// Milliseconds from beginning to end.
    pub fn total(&self) -> f64 {
        ms(self.ended - self.began)
    }

    /// Milliseconds between two points; `""` is the beginning or the end. None if one was not
    /// passed.
    pub fn between(&self, from: &str, to: &str) -> Option<f64> {
        let at = |name: &str| {
            self.points
                .iter()
                .find(|(found, _)| *found == name)
                .map(|(_, at)| *at)
        };
        let from = if from.is_empty() {
            Some(self.began)
        } else {
            at(from)
        };
        let to = if to.is_empty() {
            Some(self.ended)
        } else {
            at(to)
        };
        Some(ms(to?.checked_sub(from?)?))
    }
}

/// As milliseconds.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
