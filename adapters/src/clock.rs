//! The wall clock of adapters.

use std::time::{SystemTime, UNIX_EPOCH};

/// Unix milliseconds.
#[allow(clippy::disallowed_methods)]
pub fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since.map_or(0, |since| since.as_millis());
    i64::try_from(millis).unwrap_or(i64::MAX)
}
