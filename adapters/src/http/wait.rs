//! How long to be silent.

use std::{collections::HashMap, time::Duration};

/// A platform that asks for more is taken at this.
pub const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Seconds as platforms write them: whole or with a fraction. None for what is no waiting time.
pub fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.trim().parse().ok()?;
    of_seconds(seconds)
}

/// As [`seconds`], from a number.
pub fn of_seconds(seconds: f64) -> Option<Duration> {
    if !seconds.is_finite() || seconds < 0.0 {
        return None;
    }
    Some(Duration::from_secs_f64(seconds.min(LONGEST.as_secs_f64())))
}

/// The pause before the next attempt after `failed` ones: doubling from half a second to a minute,
/// of which `random` (0 to 1) decides the second half, so that many do not come back at once.
pub fn back_off(failed: u32, random: f64) -> Duration {
    let full = 0.5 * 2f64.powi(i32::try_from(failed.min(10)).unwrap_or(10));
    let full = full.min(60.0);
    Duration::from_secs_f64(full / 2.0 + full / 2.0 * random.clamp(0.0, 1.0))
}

/// Which buckets (a route, a channel, a chat) must not be called before when. Time is milliseconds
/// of any clock that only goes forward.
#[derive(Debug, Default)]
pub struct Silence {
    until: HashMap<String, u64>,
}

impl Silence {
    /// The platform said to wait; a shorter wait never takes a longer one away.
    pub fn hold(&mut self, bucket: &str, now_ms: u64, wait: Duration) {
        let until = now_ms.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        self.until.retain(|_, until| *until > now_ms);
        let held = self.until.entry(bucket.to_owned()).or_default();
        *held = until.max(*held);
    }

    /// How long this bucket has to be left alone; zero if it may be called.
    pub fn left(&self, bucket: &str, now_ms: u64) -> Duration {
        let until = self.until.get(bucket).copied().unwrap_or(0);
        Duration::from_millis(until.saturating_sub(now_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_times_are_whole_or_fractions_and_never_absurd() {
        assert_eq!(seconds("33"), Some(Duration::from_secs(33)));
        assert_eq!(seconds(" 0.25 "), Some(Duration::from_millis(250)));
        assert_eq!(seconds("13938"), Some(Duration::from_secs(13_938)));
        assert_eq!(seconds("1e300"), Some(LONGEST));
        for bad in [
            "",
            "-1",
            "NaN",
            "inf",
            "soon",
            "Wed, 21 Oct 2026 07:28:00 GMT",
        ] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }

    #[test]
    fn rc_01_nobody_calls_a_held_bucket_and_others_go_on() {
        let mut silence = Silence::default();
        silence.hold("chat 1", 1000, Duration::from_secs(33));
        silence.hold("chat 1", 2000, Duration::from_secs(1));
        assert_eq!(silence.left("chat 1", 2000), Duration::from_secs(32));
        assert_eq!(silence.left("chat 2", 2000), Duration::ZERO);
        assert_eq!(silence.left("chat 1", 34_000), Duration::ZERO);
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let mut silence = Silence::default();
        for n in 0..10_000u64 {
            silence.hold(&format!("chat {n}"), n * 1000, Duration::from_secs(1));
        }
        assert!(silence.until.len() <= 2);
    }

    #[test]
    fn rc_04_pauses_grow_to_a_minute_and_are_spread() {
        let low: Vec<u128> = (0..9).map(|n| back_off(n, 0.0).as_millis()).collect();
        assert_eq!(
            low,
            [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]
        );
        assert_eq!(back_off(u32::MAX, 7.0), Duration::from_secs(60));
        assert!(back_off(0, f64::NAN.max(0.5)) < Duration::from_secs(1));
    }
}
