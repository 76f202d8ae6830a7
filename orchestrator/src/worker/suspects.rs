//! Messages that were interrupted before, which may be what took their worker down.
//!
//! A worker that dies leaves many such behind, and all but one are innocent, as a rule all. So they run again beside each
//! other, the more the more of them have lived: first one, then as many more as have lasted, whether they ended or
//! are under way. What takes a worker down a second time runs as the only one of them, since one of
//! those few did it, and so does whatever the next death would park: the guilty one parks alone.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::clock;

/// Whoever has run for so long has lasted.
const LASTED: Duration = Duration::from_secs(5);
/// What has lasted says nothing about those that come after such a pause.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// Interruptions from which on a message runs as the only suspect.
const ALONE: u32 = 2;

/// Those of one worker; cheap to clone.
#[derive(Debug, Clone)]
pub struct Suspects {
    attempts: u32,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    running: Vec<Running>,
    next: u64,
    /// How many have ended lately.
    ended: usize,
    /// When the last one came or went, by the boot clock.
    stirred: Duration,
}

#[derive(Debug)]
struct Running {
    number: u64,
    since: Duration,
    alone: bool,
}

/// A suspect that may run; what becomes of it is told by [`Suspect::ended`], and dropped it has not begun.
#[derive(Debug)]
pub struct Suspect {
    suspects: Suspects,
    number: u64,
}

impl Suspects {
    /// None yet; a message is parked after so many interruptions.
    pub fn new(attempts: u32) -> Suspects {
        Suspects {
            attempts,
            state: Arc::default(),
        }
    }

    /// Whether a message that was interrupted so many times, at least once, may run now.
    pub fn admit(&self, interrupted: u32) -> Option<Suspect> {
        let alone = interrupted >= ALONE || interrupted + 1 >= self.attempts;
        let number = self.state().admit(clock::boot_time(), alone)?;
        Some(Suspect {
            suspects: self.clone(),
            number,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn admit(&mut self, now: Duration, alone: bool) -> Option<u64> {
        if now.saturating_sub(self.stirred) > FORGOTTEN {
            self.ended = 0;
        }
        if !self.has_room(now, alone) {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.stirred = now;
        self.running.push(Running {
            number,
            since: now,
            alone,
        });
        Some(number)
    }

    fn ended(&mut self, now: Duration) {
        self.ended += 1;
        self.stirred = now;
    }

    fn leaves(&mut self, number: u64) {
        self.running.retain(|one| one.number != number);
    }

    fn has_room(&self, now: Duration, alone: bool) -> bool {
        if alone {
            return self.running.is_empty();
        }
        let has_lasted = |one: &&Running| now.saturating_sub(one.since) >= LASTED;
        let lasting = self.running.iter().filter(has_lasted).count();
        let fresh = self.running.len() - lasting;
        self.running.iter().all(|one| !one.alone) && fresh <= lasting + self.ended
    }
}

impl Suspect {
    /// Its tick is over and the worker is not.
    pub fn ended(self) {
        self.suspects.state().ended(clock::boot_time());
    }
}

impl Drop for Suspect {
    fn drop(&mut self) {
        self.suspects.state().leaves(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1000);

    /// How many of a crowd are let in at this time.
    fn crowd(state: &mut State, now: Duration, alone: bool) -> Vec<u64> {
        std::iter::from_fn(|| state.admit(now, alone))
            .take(100)
            .collect()
    }

    #[test]
    fn fifty_innocent_ones_that_run_for_long_all_run_within_half_a_minute() {
        let mut state = State::default();
        let mut running = 0;
        let mut now = START;
        while running < 50 {
            running += crowd(&mut state, now, false).len();
            now += LASTED;
        }
        assert!(now - START <= Duration::from_secs(30), "{:?}", now - START);
    }

    #[test]
    fn those_that_end_make_room_for_more() {
        let mut state = State::default();
        let mut rounds = Vec::new();
        for _ in 0..5 {
            let round = crowd(&mut state, START, false);
            rounds.push(round.len());
            for number in round {
                state.ended(START);
                state.leaves(number);
            }
        }
        assert_eq!(rounds, [1, 2, 4, 8, 16]);
        // Long afterwards another worker dies: these are others.
        let later = START + FORGOTTEN + LASTED;
        assert_eq!(crowd(&mut state, later, false).len(), 1);
    }

    #[test]
    fn what_was_there_twice_is_the_only_suspect() {
        let mut state = State::default();
        let guilty = crowd(&mut state, START, true);
        assert_eq!(guilty.len(), 1);
        let later = START + 10 * LASTED;
        assert!(
            crowd(&mut state, later, false).is_empty(),
            "beside it nobody runs"
        );
        state.leaves(guilty[0]);
        let innocent = crowd(&mut state, later, false);
        assert!(
            crowd(&mut state, later, true).is_empty(),
            "nor it beside others"
        );
        innocent.into_iter().for_each(|number| state.leaves(number));
        assert_eq!(crowd(&mut state, later, true).len(), 1);
    }

    #[test]
    fn whatever_the_next_death_would_park_is_the_only_suspect() {
        let cases = [
            (3, 1, false),
            (3, 2, true),
            (2, 1, true),
            (9, 1, false),
            (9, 2, true),
        ];
        for (attempts, interrupted, alone) in cases {
            let suspects = Suspects::new(attempts);
            let one = || suspects.admit(interrupted);
            // One has lasted, so there is room for two.
            one().expect("nobody else runs").ended();
            let _first = one().expect("nobody else runs");
            assert_eq!(one().is_none(), alone, "{interrupted} of {attempts}");
        }
    }

    #[test]
    fn one_that_did_not_begin_vouches_for_nobody() {
        let suspects = Suspects::new(3);
        drop(suspects.admit(1).expect("nobody else runs"));
        let _one = suspects.admit(1).expect("nobody else runs");
        assert!(suspects.admit(1).is_none());
    }
}
