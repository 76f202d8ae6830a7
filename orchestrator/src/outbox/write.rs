//! One delivery: all its posts are made with a few dots in them, then filled in order, then come
//! the files.
//!
//! Each step is recorded before the next. Making a post is what may happen twice, so it is made
//! almost empty, under an identity of its own; edits may be repeated. An edit that may still come is
//! waited for and repeated, so that nothing late stands over the reply.

use std::{fmt::Display, time::Duration};

use futures_util::{FutureExt as _, future::BoxFuture};
use mayfly_domain::{Channel, chat::CallError};
use tokio_util::sync::CancellationToken;

use super::{
    Target,
    call::{Caller, NoResult},
    part::Work,
};
use crate::{
    blobs::{BlobError, Blobs},
    clock::LONGEST_PAUSE,
    db::{
        Db, DbError,
        deliveries::Owed,
        orders::Said,
        parts::{Part, Stage, What},
    },
    faults, observe,
    orders::told,
};

/// Between two tries to record something.
const RECORD: Duration = Duration::from_secs(1);
/// Milliseconds before the second try; doubled by each further one, up to `1 << DOUBLED` times.
const PAUSE: i64 = 1000;
const DOUBLED: u32 = 8;

/// Writes what a lane holds.
pub(super) struct Writer {
    pub(super) db: Db,
    pub(super) blobs: Blobs,
    pub(super) target: Target,
    pub(super) stopping: CancellationToken,
}

/// Why a delivery is not done yet.
pub(super) enum NotYet {
    /// A call failed.
    Call(CallError),
    /// Nothing failed; there is more to do after this time.
    Again(Duration),
    /// Its content cannot be read.
    Blob(BlobError),
    /// What is stored of it cannot be read, now or later.
    Broken(DbError),
    /// The process comes to rest: left to the next start, as after a crash.
    Rest,
}

impl NotYet {
    /// Whether nobody knows, now or later, what became of a try before.
    pub(super) fn leaves_doubt(&self) -> bool {
        match self {
            NotYet::Call(error) => matches!(error, CallError::Unknown(_)),
            NotYet::Blob(error) => error.is_lost(),
            _ => false,
        }
    }
}

impl From<NoResult> for NotYet {
    fn from(error: NoResult) -> Self {
        match error {
            NoResult::Failed(error) => NotYet::Call(error),
            NoResult::Rest => NotYet::Rest,
        }
    }
}

impl Writer {
    /// Takes a delivery as far as it goes now, and records how that ended.
    pub(super) async fn deliver(&self, owed: Owed) {
        let shown = match &self.target {
            Target::Local => {
                faults::point("deliver.before");
                faults::point("deliver.after");
                Ok((owed.id.to_string(), Vec::new()))
            }
            Target::Chat(caller) => self.show(caller, &owed).await,
            Target::Nobody => Err(NotYet::Call(CallError::Refused(format!(
                "the configuration has no platform \"{}\"",
                owed.thread.platform
            )))),
        };
        let ended = match shown {
            Ok((post, more)) => {
                let done = || self.db.delivered(&owed, &post, &more).boxed();
                self.step(&owed, done).await
            }
            Err(error) => Err(error),
        };
        let ended = match ended {
            Ok(()) => Some(()),
            Err(error) => self.failed(&owed, error).await,
        };
        if ended.is_some() {
            faults::point("deliver.recorded");
        }
    }

    /// The platform's id of the first post, and what is to be said of parts that are not shown.
    async fn show(&self, caller: &Caller, owed: &Owed) -> Result<(String, Vec<Said>), NotYet> {
        let work = Work::begin(self, caller, owed).await?;
        for part in work.parts().await? {
            if matches!(part.what, What::Text(_)) && part.post.is_none() {
                work.place(&part).await?;
            }
        }
        for part in work.parts().await? {
            match (&part.what, part.stage) {
                (_, Stage::Sent | Stage::Parked | Stage::Doubtful) => {}
                (What::Text(content), _) => work.fill(&part, content).await?,
                (What::File(file), _) => work.send(&part, file).await?,
            }
        }
        let parts = work.parts().await?;
        let first = parts.iter().find_map(|part| part.post.clone());
        Ok((first.unwrap_or_default(), more_about(&parts)))
    }

    async fn failed(&self, owed: &Owed, error: NotYet) -> Option<()> {
        let (told, pause) = match error {
            NotYet::Rest => {
                tracing::info!(delivery = %owed.id, "delivery cut short: left to the next start");
                return None;
            }
            NotYet::Again(after) => {
                let next_at = self.db.now() + millis(after);
                let wait = || self.db.delivery_waits(owed.id, next_at).boxed();
                return self.record(owed, wait).await;
            }
            NotYet::Call(CallError::Moved(to)) => return self.moved(owed, &to).await,
            NotYet::Call(error) => (error.to_string(), pause(&error, owed.attempts)),
            NotYet::Blob(error) => (observe::chain(&error), Some(grown(owed.attempts))),
            NotYet::Broken(error) => (observe::chain(&error), None),
        };
        match pause {
            Some(_) => tracing::info!(delivery = %owed.id, error = told, "delivery is tried again"),
            None => tracing::warn!(delivery = %owed.id, error = told, "delivery parked"),
        }
        let next_at = pause.map(|pause| self.db.now() + pause);
        let note = || self.db.delivery_failed(owed.id, &told, next_at).boxed();
        self.record(owed, note).await
    }

    async fn moved(&self, owed: &Owed, to: &Channel) -> Option<()> {
        let from = owed.thread.channel();
        tracing::info!(%from, %to, "a chat has moved");
        self.record(owed, || self.db.move_channel(&from, to).boxed())
            .await?;
        // The next call goes there; a platform that says it again is not asked without a pause.
        let next_at = self.db.now() + grown(owed.attempts);
        let told = CallError::Moved(to.clone()).to_string();
        let note = || {
            let noted = self.db.delivery_failed(owed.id, &told, Some(next_at));
            noted.boxed()
        };
        self.record(owed, note).await
    }

    /// How a delivery ended. None if that could not be recorded.
    async fn record<'a, T>(
        &self,
        owed: &Owed,
        step: impl FnMut() -> BoxFuture<'a, Result<T, DbError>>,
    ) -> Option<T> {
        match self.step(owed, step).await {
            Ok(done) => Some(done),
            Err(NotYet::Broken(error)) => {
                tracing::error!(delivery = %owed.id, error = observe::chain(&error), "delivery not recorded");
                None
            }
            Err(_) => None,
        }
    }

    /// See [`Writer::recorded`].
    pub(super) async fn step<'a, T>(
        &self,
        owed: &Owed,
        step: impl FnMut() -> BoxFuture<'a, Result<T, DbError>>,
    ) -> Result<T, NotYet> {
        self.recorded(&owed.id, step).await
    }

    /// What is seen and not recorded would be done again, or stand for ever: the database is asked until it answers,
    /// but what breaks a rule is not tried for ever.
    pub(super) async fn recorded<'a, T>(
        &self,
        of: &(dyn Display + Sync),
        mut step: impl FnMut() -> BoxFuture<'a, Result<T, DbError>>,
    ) -> Result<T, NotYet> {
        loop {
            match step().await {
                Ok(done) => return Ok(done),
                Err(error) if error.is_lasting() => return Err(NotYet::Broken(error)),
                Err(error) => {
                    tracing::error!(%of, error = observe::chain(&error), "what was shown is not recorded yet");
                }
            }
            faults::point("deliver.unrecorded");
            let pause = tokio::time::sleep(RECORD);
            let paused = self.stopping.run_until_cancelled(pause).await;
            paused.ok_or(NotYet::Rest)?;
        }
    }
}

/// What could not be shown in one text, and a question for each file of which nobody can tell.
fn more_about(parts: &[Part]) -> Vec<Said> {
    let parked = parts.iter().filter_map(|part| part.reason.as_deref());
    let parked: Vec<&str> = parked.collect();
    let remark = (!parked.is_empty()).then(|| told::plain(parked.join("\n")));
    let doubt = parts
        .iter()
        .filter_map(|part| match (&part.what, part.stage) {
            (What::File(file), Stage::Doubtful) => Some(told::doubt(file)),
            _ => None,
        });
    remark.into_iter().chain(doubt).collect()
}

/// Milliseconds until the next try; none where it cannot help.
fn pause(error: &CallError, attempts: u32) -> Option<i64> {
    match error {
        CallError::Refused(_) => None,
        CallError::Limited { after, .. } => Some(millis(*after).min(LONGEST_PAUSE)),
        _ => Some(grown(attempts)),
    }
}

fn grown(attempts: u32) -> i64 {
    (PAUSE << attempts.min(DOUBLED)).min(LONGEST_PAUSE)
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_grows_is_bounded_and_follows_what_the_platform_says() {
        let down = CallError::NotDone("down".into());
        assert_eq!(pause(&down, 0), Some(1000));
        assert_eq!(pause(&down, 3), Some(8000));
        assert_eq!(pause(&down, u32::MAX), Some(256_000));
        let limited = |after| CallError::Limited {
            reason: "429".into(),
            after,
        };
        assert_eq!(pause(&limited(Duration::from_secs(30)), 5), Some(30_000));
        assert_eq!(pause(&limited(Duration::MAX), 0), Some(LONGEST_PAUSE));
        assert_eq!(pause(&CallError::Refused("no".into()), 0), None);
    }
}
