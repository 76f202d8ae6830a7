//! What happens when, and what each host takes the time for.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    time::Duration,
};

use mayfly_orchestrator::clock::simulated::{self, Now};

use super::Ms;
use crate::chance::Chance;

/// Unix milliseconds at which a run begins, by the true clock.
pub(super) const BASE: i64 = 1_800_000_000_000;
/// The longest step of a host's clock.
const FAR: u64 = 2 * 24 * 3600 * 1000;

/// Events by their time; at one time in the order in which they were thought of.
#[derive(Debug)]
pub(super) struct Schedule<E> {
    now: Ms,
    made: u64,
    heap: BinaryHeap<Reverse<Planned<E>>>,
}

#[derive(Debug)]
struct Planned<E> {
    at: Ms,
    number: u64,
    event: E,
}

impl<E> Default for Schedule<E> {
    fn default() -> Self {
        Schedule {
            now: 0,
            made: 0,
            heap: BinaryHeap::new(),
        }
    }
}

impl<E> Schedule<E> {
    pub(super) fn now(&self) -> Ms {
        self.now
    }

    pub(super) fn after(&mut self, wait: Ms, event: E) {
        self.made += 1;
        self.heap.push(Reverse(Planned {
            at: self.now + wait,
            number: self.made,
            event,
        }));
    }

    pub(super) fn next(&mut self) -> Option<E> {
        let Reverse(planned) = self.heap.pop()?;
        self.now = planned.at;
        Some(planned.event)
    }

    pub(super) fn any(&self, is: impl Fn(&E) -> bool) -> bool {
        self.heap.iter().any(|Reverse(planned)| is(&planned.event))
    }
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<E> Eq for Planned<E> {}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Planned<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// The clocks of one host: the wall's is wrong, the boot's runs a little too fast or too slow.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Clock {
    ahead: i64,
    booted: u64,
    /// Milliseconds in a million.
    drift: i64,
}

impl Clock {
    /// Of any host.
    pub(super) fn any(chance: &mut Chance, right: bool) -> Clock {
        let mut clock = Clock {
            ahead: 0,
            booted: chance.between(60_000, 1_000_000_000),
            drift: chance.between(0, 400) as i64 - 200,
        };
        if !right {
            clock.jump(chance);
        }
        clock
    }

    /// The wall's clock is set, to whatever.
    pub(super) fn jump(&mut self, chance: &mut Chance) {
        let far = match chance.below(4) {
            0 => 0,
            1 => 20_000,
            2 => 15 * 60 * 1000,
            _ => FAR,
        };
        self.ahead = chance.between(0, 2 * far) as i64 - far as i64;
    }

    pub(super) fn wall(&self, now: Ms) -> i64 {
        BASE + now as i64 + self.ahead
    }

    pub(super) fn boot(&self, now: Ms) -> Duration {
        let drifted = now as i64 * self.drift / 1_000_000;
        Duration::from_millis((self.booted + now).saturating_add_signed(drifted))
    }

    /// What runs from now on runs on this host.
    pub(super) fn show(&self, now: Ms) {
        let unix_ms = self.wall(now);
        simulated::set(Now {
            unix_ms,
            boot: self.boot(now),
        });
        mayfly_domain::simulated::set(unix_ms.max(0) as u64);
    }
}
