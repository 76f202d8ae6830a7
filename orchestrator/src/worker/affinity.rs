//! Who ran an agent last has its layers at hand: its lane is left to that worker for a moment, then anybody
//! takes it. A hint: nothing is wrong if it is not followed.

use std::time::Duration;

/// So long the worker that ran it last is preferred.
const PREFERRED: Duration = Duration::from_secs(2);
/// Between two looks whether that one has taken it.
const LOOK: Duration = Duration::from_millis(200);

/// Who ran an agent's last tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    /// This worker, or nobody.
    Us,
    /// Another one, which lives.
    Living,
    /// Another one, whose lease is over.
    Dead,
}

/// For how long a lane is left to another worker that waits for this many milliseconds already; none: it
/// is taken. A time that no steady clock tells is no reason to wait.
pub(super) fn leave(last: Last, waited_ms: i64) -> Option<Duration> {
    let waited = Duration::from_millis(u64::try_from(waited_ms).ok()?);
    let left = PREFERRED.checked_sub(waited)?;
    (last == Last::Living && !left.is_zero()).then(|| left.min(LOOK))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However often and from whenever on it is asked, a lane is taken two seconds after it could be.
        #[test]
        fn nobody_waits_longer_than_it_is_preferred(began in 0_i64..4000, late in 0_i64..300) {
            let mut waited = began;
            let mut looks = 0;
            while let Some(pause) = leave(Last::Living, waited) {
                prop_assert!(pause > Duration::ZERO && pause <= LOOK);
                prop_assert!(waited + pause.as_millis() as i64 <= PREFERRED.as_millis() as i64);
                waited += pause.as_millis() as i64 + late;
                looks += 1;
                prop_assert!(looks <= 10);
            }
            prop_assert!(waited >= PREFERRED.as_millis() as i64);
        }

        /// Only a living other one is waited for, and no clock that jumped makes anybody wait.
        #[test]
        fn nobody_else_is_waited_for(waited: i64) {
            prop_assert_eq!(leave(Last::Us, waited), None);
            prop_assert_eq!(leave(Last::Dead, waited), None);
            if !(0..2000).contains(&waited) {
                prop_assert_eq!(leave(Last::Living, waited), None);
            }
        }
    }
}
