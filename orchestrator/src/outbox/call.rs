//! One call of a platform: bounded in time, its end recorded.

use std::{sync::Arc, time::Duration};

use mayfly_domain::{DeliverError, Platform};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    clock::{self, LONGEST_PAUSE},
    db::{Db, DbError, deliveries::Owed},
    faults, observe,
    supervise::Supervisor,
};

/// How long a call under way may go on when the process comes to rest.
const GRACE: Duration = Duration::from_secs(5);
/// Between two tries to record how a call ended.
const RECORD: Duration = Duration::from_secs(1);
/// Milliseconds before the second try; doubled by each further one, up to `1 << DOUBLED` times.
const PAUSE: i64 = 1000;
const DOUBLED: u32 = 8;

/// What a lane calls its platform with.
pub(super) struct Caller {
    pub(super) db: Db,
    /// None where the configuration has no such platform.
    pub(super) platform: Option<Arc<dyn Platform>>,
    pub(super) supervisor: Supervisor,
}

impl Caller {
    /// Tries one delivery once, and records how that ended. Cut short by the end of the process it
    /// stays owed, as after a crash.
    pub(super) async fn deliver(&self, owed: Owed) {
        faults::point("deliver.before");
        let Some(answer) = self.answer(&owed).await else {
            tracing::info!(delivery = %owed.id, "delivery cut short: left to the next start");
            return;
        };
        faults::point("deliver.after");
        // A delivery that is seen and not recorded would be made again: the database is asked until
        // it answers.
        while let Err(error) = self.record(&owed, &answer).await {
            tracing::error!(delivery = %owed.id, error = observe::chain(&error), "delivery not recorded yet");
            let pause = tokio::time::sleep(RECORD);
            let stopping = self.supervisor.stopping();
            if stopping.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
        faults::point("deliver.recorded");
    }

    /// None if the process comes to rest before there is an answer.
    async fn answer(&self, owed: &Owed) -> Option<Result<String, DeliverError>> {
        let Some(platform) = self.platform.clone() else {
            let told = format!(
                "the configuration has no platform \"{}\"",
                owed.thread.platform
            );
            return Some(Err(DeliverError::Permanent(told)));
        };
        let patience = platform.patience();
        let (thread, id, reply) = (owed.thread.clone(), owed.id, owed.reply.clone());
        // A task of its own, so that a panic in an adapter is an error of this delivery only.
        let mut call = AbortOnDropHandle::new(self.supervisor.task("delivery", async move {
            platform.deliver(&thread, id, &reply).await
        }));
        let stopping = self.supervisor.stopping();
        let rest = async {
            stopping.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            answer = &mut call => Some(answer.unwrap_or_else(|panic| {
                Err(DeliverError::Transient(format!("its adapter failed: {panic}")))
            })),
            () = tokio::time::sleep(patience) => {
                let told = format!("no answer within {} ms", patience.as_millis());
                Some(Err(DeliverError::Transient(told)))
            }
            () = rest => None,
        }
    }

    async fn record(
        &self,
        owed: &Owed,
        answer: &Result<String, DeliverError>,
    ) -> Result<(), DbError> {
        let error = match answer {
            Ok(platform_id) => return self.db.delivered(owed.id, platform_id).await,
            Err(error) => error,
        };
        let pause = pause(error, owed.attempts);
        match pause {
            Some(_) => tracing::info!(delivery = %owed.id, %error, "delivery is tried again"),
            None => tracing::warn!(delivery = %owed.id, %error, "delivery parked"),
        }
        let next_at = pause.map(|pause| clock::unix_ms() + pause);
        self.db
            .delivery_failed(owed.id, &error.to_string(), next_at)
            .await
    }
}

/// Milliseconds until the next try; none where it cannot help.
fn pause(error: &DeliverError, attempts: u32) -> Option<i64> {
    let pause = match error {
        DeliverError::Permanent(_) => return None,
        DeliverError::Transient(_) => PAUSE << attempts.min(DOUBLED),
        DeliverError::Limited { after, .. } => {
            i64::try_from(after.as_millis()).unwrap_or(LONGEST_PAUSE)
        }
    };
    Some(pause.min(LONGEST_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_grows_is_bounded_and_follows_what_the_platform_says() {
        let down = DeliverError::Transient("down".into());
        assert_eq!(pause(&down, 0), Some(1000));
        assert_eq!(pause(&down, 3), Some(8000));
        assert_eq!(pause(&down, u32::MAX), Some(256_000));
        let limited = |after| DeliverError::Limited {
            reason: "429".into(),
            after,
        };
        assert_eq!(pause(&limited(Duration::from_secs(30)), 5), Some(30_000));
        assert_eq!(pause(&limited(Duration::MAX), 0), Some(LONGEST_PAUSE));
        assert_eq!(pause(&DeliverError::Permanent("no".into()), 0), None);
    }
}
