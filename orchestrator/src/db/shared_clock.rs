//! The time that all processes on one database share: the server's, carried on by this host's boot clock.
//!
//! Wall clocks of hosts differ and jump. Every time in a row is by this one, and so is what it is compared with:
//! what is waited for ("not before"), how old something is, which of two came first.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use sqlx::Row as _;

use super::{Db, DbError, Dialect, query};
use crate::clock;

/// Not looked at yet.
const UNKNOWN: i64 = i64::MIN;
/// An answer that took longer says less than what is known.
const SLOW: Duration = Duration::from_secs(1);

/// What the server's clock shows when this host's boot clock shows 0, in unix milliseconds.
#[derive(Debug)]
pub(super) struct SharedClock(AtomicI64);

impl Default for SharedClock {
    fn default() -> Self {
        SharedClock(AtomicI64::new(UNKNOWN))
    }
}

impl SharedClock {
    /// Unix milliseconds; by this host's clock where there is no other.
    pub(super) fn now(&self) -> i64 {
        self.known().unwrap_or_else(clock::unix_ms)
    }

    fn known(&self) -> Option<i64> {
        match self.0.load(Ordering::Relaxed) {
            UNKNOWN => None,
            at_boot => Some(at_boot + clock::boot_time().as_millis() as i64),
        }
    }

    /// The server told this time to somebody who asked and heard at these times of the boot clock.
    fn told(&self, unix_ms: i64, asked: Duration, heard: Duration) {
        let took = heard.saturating_sub(asked);
        if took > SLOW && self.known().is_some() {
            return;
        }
        let middle = (asked + took / 2).as_millis() as i64;
        self.0.store(unix_ms - middle, Ordering::Relaxed);
    }
}

impl Db {
    /// The time now, in unix milliseconds.
    pub fn now(&self) -> i64 {
        self.clock.now()
    }

    /// Milliseconds until a time that a row names; 0 if it has come, or if a clock stepped back.
    pub fn until(&self, at: i64) -> i64 {
        clock::until(self.now(), at)
    }

    /// The time now as the server tells it, or this host where the database is a file. A server that does not answer
    /// is believed to have gone on as the boot clock did.
    pub async fn wall_clock(&self) -> Result<i64, DbError> {
        if self.dialect == Dialect::Sqlite {
            return Ok(clock::unix_ms());
        }
        match self.set_clock().await {
            Ok(()) => Ok(self.now()),
            Err(error) => self.clock.known().ok_or(error),
        }
    }

    /// Sets the clock by the server's, where others use it too.
    pub async fn set_clock(&self) -> Result<(), DbError> {
        if !self.is_shared() {
            return Ok(());
        }
        let asked = clock::boot_time();
        let sql = format!("SELECT {}", self.dialect.now());
        let row = query(sqlx::AssertSqlSafe(sql))
            .fetch_one(self.reader())
            .await?;
        self.clock.told(row.try_get(0)?, asked, clock::boot_time());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_from_what_the_server_told_and_believes_no_slow_answer() {
        let clock = SharedClock::default();
        let host = clock::unix_ms();
        assert!((clock.now() - host).abs() < 1000, "the host's until then");
        let now = clock::boot_time();
        clock.told(1_000_000, now, now);
        assert!((1_000_000..1_001_000).contains(&clock.now()));
        clock.told(5, now, now + 2 * SLOW);
        assert!((1_000_000..1_001_000).contains(&clock.now()));
        let fresh = SharedClock::default();
        fresh.told(1_000_000, now.saturating_sub(4 * SLOW), now);
        let middle = 1_000_000 + 2000;
        assert!(
            (middle..middle + 1000).contains(&fresh.now()),
            "half of the way"
        );
    }
}
