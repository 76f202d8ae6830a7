//! A store that does not answer is asked again ever more slowly, by everybody together; an object
//! that is wrong is, by itself.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::clock;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// Of objects that are wrong; more are forgotten together, which only means that they are asked for again.
const KNOWN: usize = 1000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Gate {
    shut: Mutex<HashMap<Option<String>, Shut>>,
}

#[derive(Debug, Clone)]
struct Shut {
    until: Duration,
    pause: Duration,
    times: u32,
    reason: String,
}

impl Gate {
    /// Why this object, or with none the store, is not to be asked for now.
    pub(super) fn reason(&self, object: Option<&str>) -> Option<String> {
        let shut = self.shut();
        let found = shut.get(&object.map(str::to_owned))?;
        (clock::boot_time() < found.until).then(|| found.reason.clone())
    }

    /// It failed; says how long it is left alone.
    pub(super) fn failed(&self, object: Option<&str>, reason: &str) -> Duration {
        let mut shut = self.shut();
        if shut.len() >= KNOWN {
            shut.clear();
        }
        let now = clock::boot_time();
        let entry = shut.entry(object.map(str::to_owned)).or_insert(Shut {
            until: now,
            pause: Duration::ZERO,
            times: 0,
            reason: String::new(),
        });
        // Those who asked at the same time have failed once together.
        if now >= entry.until {
            entry.pause = (entry.pause * 2).clamp(FIRST, LONGEST);
            entry.until = now + entry.pause;
            entry.times += 1;
        }
        entry.reason = reason.to_owned();
        entry.pause
    }

    /// How often in a row it failed.
    pub(super) fn times(&self, object: Option<&str>) -> u32 {
        let shut = self.shut();
        shut.get(&object.map(str::to_owned))
            .map_or(0, |shut| shut.times)
    }

    /// It answered as it should.
    pub(super) fn works(&self, object: Option<&str>) {
        self.shut().remove(&object.map(str::to_owned));
    }

    fn shut(&self) -> MutexGuard<'_, HashMap<Option<String>, Shut>> {
        self.shut.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_make_pauses_longer_and_one_success_ends_them() {
        let gate = Gate::default();
        assert_eq!(gate.reason(None), None);
        assert_eq!(gate.failed(None, "gone"), FIRST);
        // Whoever asked at the same time does not make it longer.
        assert_eq!(gate.failed(None, "gone"), FIRST);
        assert_eq!(gate.reason(None).as_deref(), Some("gone"));
        assert_eq!(gate.reason(Some("x")), None);
        for expected in [2, 4, 8, 16, 30, 30] {
            gate.shut().get_mut(&None).unwrap().until = Duration::ZERO;
            assert_eq!(gate.reason(None), None);
            let pause = gate.failed(None, "gone");
            assert_eq!(pause, Duration::from_secs(expected));
        }
        assert_eq!(gate.times(None), 7);
        gate.works(None);
        assert_eq!(gate.times(None), 0);
        assert_eq!(gate.reason(None), None);
        assert_eq!(gate.failed(None, "gone"), FIRST);
    }
}
