//! The two clocks: wall time for rows, boot time for durations that must survive a suspend.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Unix time in milliseconds.
#[allow(clippy::disallowed_methods)]
pub fn unix_ms() -> i64 {
    #[cfg(feature = "faults")]
    if let Some(now) = simulated::now() {
        return now.unix_ms;
    }
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |age| age.as_millis() as i64)
}

/// Time since boot, suspended time included (`CLOCK_BOOTTIME`).
pub fn boot_time() -> Duration {
    #[cfg(feature = "faults")]
    if let Some(now) = simulated::now() {
        return now.boot;
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// What a simulation says the time is, on its own thread only.
#[cfg(feature = "faults")]
pub mod simulated {
    use std::{cell::Cell, time::Duration};

    thread_local! {
        static NOW: Cell<Option<Now>> = const { Cell::new(None) };
    }

    /// Both clocks of one host.
    #[derive(Debug, Clone, Copy)]
    pub struct Now {
        /// See [`super::unix_ms`].
        pub unix_ms: i64,
        /// See [`super::boot_time`].
        pub boot: Duration,
    }

    /// From now on both clocks stand, on this thread.
    pub fn set(now: Now) {
        NOW.set(Some(now));
    }

    pub(super) fn now() -> Option<Now> {
        NOW.get()
    }
}

/// Longest pause that is ever written into a row, in milliseconds: what lies further ahead was
/// written before the clock stepped back.
pub const LONGEST_PAUSE: i64 = 10 * 60 * 1000;

/// Milliseconds from now until a time that a row names; 0 if it has come, or if the clock stepped back.
pub fn until(now: i64, at: i64) -> i64 {
    let ahead = at - now;
    if ahead > LONGEST_PAUSE {
        0
    } else {
        ahead.max(0)
    }
}

/// How long a renewal holds.
pub const LEASE: Duration = Duration::from_secs(30);
/// How often it is renewed.
pub const RENEWAL: Duration = Duration::from_secs(5);
/// From this age on the worker neither sends heartbeats nor lets its gateway answer.
pub const STALE: Duration = Duration::from_secs(15);
/// How often a live sandbox is told that its worker holds the claim.
pub const HEARTBEAT: Duration = Duration::from_secs(2);

/// When the worker last sent a renewal that was then confirmed. Its age counts from the sending.
#[derive(Debug, Clone, Default)]
pub struct Lease(Arc<Renewals>);

/// By the boot clock, in milliseconds.
#[derive(Debug, Default)]
struct Renewals {
    sent: AtomicU64,
    /// When the last renewal came that found the one before it stale.
    late: AtomicU64,
}

impl Lease {
    /// Records a renewal that was sent at `sent` ([`boot_time`]) and has been confirmed.
    pub fn confirm(&self, sent: Duration) {
        let before = self
            .0
            .sent
            .fetch_max(sent.as_millis() as u64, Ordering::Relaxed);
        let now = boot_time();
        if before != 0 && now.saturating_sub(Duration::from_millis(before)) >= STALE {
            self.0
                .late
                .fetch_max(now.as_millis() as u64, Ordering::Relaxed);
        }
    }

    /// Whether heartbeats may be sent.
    pub fn fresh(&self) -> bool {
        let sent = Duration::from_millis(self.0.sent.load(Ordering::Relaxed));
        !sent.is_zero() && boot_time().saturating_sub(sent) < STALE
    }

    /// Whether heartbeats were withheld at some time since `since` ([`boot_time`]).
    pub fn lapsed_since(&self, since: Duration) -> bool {
        let late = self.0.late.load(Ordering::Relaxed);
        !self.fresh() || late != 0 && u128::from(late) >= since.as_millis()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_stepped_back_keeps_nothing_waiting() {
        let now = unix_ms();
        assert_eq!(until(now, now - 5), 0);
        assert_eq!(until(now, now + 9_000), 9_000);
        assert_eq!(until(now, now + 6 * 3600 * 1000), 0);
    }

    #[test]
    fn a_lease_is_stale_until_confirmed_and_counts_from_the_sending() {
        let lease = Lease::default();
        assert!(!lease.fresh());
        lease.confirm(boot_time().saturating_sub(STALE));
        assert!(!lease.fresh());
        lease.confirm(boot_time());
        assert!(lease.fresh());
    }

    #[test]
    fn a_lease_remembers_that_it_lapsed() {
        let lease = Lease::default();
        let before = boot_time();
        lease.confirm(before);
        assert!(!lease.lapsed_since(before));
        let lease = Lease::default();
        lease.confirm(before.saturating_sub(STALE));
        assert!(lease.lapsed_since(before), "it is stale");
        lease.confirm(boot_time());
        assert!(lease.fresh() && lease.lapsed_since(before), "it was stale");
        std::thread::sleep(Duration::from_millis(5));
        assert!(!lease.lapsed_since(boot_time()));
    }
}
