//! What people see while they wait: somebody is busy, how far it is, a button that stops it.
//!
//! The thread's one writer does it, between deliveries, so no late word about progress stands over a
//! reply. All of it is a courtesy: what fails is left until something changes.

use std::{collections::HashMap, time::Duration};

use futures_util::{FutureExt as _, future::BoxFuture};
use mayfly_domain::{
    ThreadKey,
    chat::{Button, CallError, Content, NewPost, Platform},
};
use tokio::time::Instant;

use super::{
    call::{Caller, NoResult},
    write::{NotYet, Writer},
};
use crate::{
    db::{DbError, progress::Watched},
    observe,
};

/// A message that is answered sooner needs no sign of progress.
const SHOW_AFTER: i64 = 2000;
/// Before a post is asked for again that nobody knows to stand.
const AGAIN: i64 = 15_000;
/// A post of progress older than this is not taken over by the reply, since an edit tells nobody.
pub(super) const TOLD: i64 = 15_000;
/// Before a post is removed that could not be.
const LATER: Duration = Duration::from_secs(1);
/// How long a removal of which nobody knows the end is done again, in milliseconds.
const REMOVED_FOR: i64 = 10 * 60 * 1000;
/// Longest that a sign of being busy may hold up what is owed.
const COURTESY: Duration = Duration::from_secs(10);
/// Between two signs of being busy where the platform did not take one.
const NOT_TAKEN: Duration = Duration::from_secs(30);

/// What is to be done about a message now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Its post is made.
    Make,
    /// Its post says what is so now.
    Edit,
    /// Its post goes.
    Remove,
}

/// Until when each thread shows that somebody is busy.
pub(super) type Busy = HashMap<ThreadKey, Instant>;

/// What is due at this time (unix ms, as rows have it), if anything.
pub(super) fn due(of: &Watched, now: i64, platform: &dyn Platform) -> Option<Due> {
    let Some(progress) = &of.progress else {
        return (!of.settled && now - of.created_at >= SHOW_AFTER).then_some(Due::Make);
    };
    if of.settled {
        return Some(Due::Remove);
    }
    let since = now - progress.shown_at;
    if progress.post.is_none() {
        return (since >= AGAIN).then_some(Due::Make);
    }
    let pause = platform.edit_pause(&of.thread).as_millis() as i64;
    (progress.shown != line(of) && since >= pause).then_some(Due::Edit)
}

/// One sentence about how far it is.
fn line(of: &Watched) -> String {
    match (of.phase.as_deref(), of.ahead) {
        (Some("stopping"), _) => "Stopping …".to_owned(),
        (Some("starting" | "preparing"), _) => "Starting …".to_owned(),
        (Some("saving" | "done"), _) => "Finishing …".to_owned(),
        (Some("running" | "run"), _) => "Working …".to_owned(),
        (Some(step), _) => format!("Working: {step}"),
        (None, 0) => "Waiting for its turn …".to_owned(),
        (None, 1) => "Waiting: 1 message is before it.".to_owned(),
        (None, ahead) => format!("Waiting: {ahead} messages are before it."),
    }
}

fn content(of: &Watched, text: &str, platform: &dyn Platform) -> Content {
    let stop = Button {
        id: of.stop_button(),
        label: "Stop".to_owned(),
        danger: true,
    };
    let buttons = of.phase.is_some().then_some(stop);
    platform.line(text, buttons.as_slice())
}

impl Writer {
    /// Does what is due.
    pub(super) async fn show_progress(&self, caller: &Caller, of: &Watched, due: Due) {
        let done = match due {
            Due::Make => self.make(caller, of).await,
            Due::Edit => self.update(caller, of).await,
            Due::Remove => self.remove(caller, of).await,
        };
        if let Err(error) = done {
            tracing::warn!(message = %of.message, error = observe::chain(&error), "progress not recorded");
        }
    }

    async fn make(&self, caller: &Caller, of: &Watched) -> Result<(), DbError> {
        let text = line(of);
        self.db.progress_asked(of, &text).await?;
        match self.posted(caller, of, &text).await? {
            Ok(post) => {
                let stands = || self.db.progress_stands(of, &post).boxed();
                self.kept(of, stands).await
            }
            Err(error) => {
                tracing::debug!(message = %of.message, ?error, "no progress shown");
                Ok(())
            }
        }
    }

    async fn posted(
        &self,
        caller: &Caller,
        of: &Watched,
        text: &str,
    ) -> Result<Result<String, NoResult>, DbError> {
        let post = NewPost {
            thread: of.thread.clone(),
            token: of.token(),
            content: content(of, text, caller.platform.as_ref()),
            answers: self.db.post_of(of.message).await?,
            unknown_since: of.progress.as_ref().map(|progress| progress.asked_at),
        };
        let made = caller.call(|platform| Box::pin(async move { platform.post(&post).await }));
        Ok(made.await)
    }

    async fn update(&self, caller: &Caller, of: &Watched) -> Result<(), DbError> {
        let Some(post) = of.progress.as_ref().and_then(|known| known.post.clone()) else {
            return Ok(());
        };
        let text = line(of);
        let (thread, shown) = (
            of.thread.clone(),
            content(of, &text, caller.platform.as_ref()),
        );
        let edited = caller
            .call(|platform| Box::pin(async move { platform.edit(&thread, &post, &shown).await }));
        let unsure = match edited.await {
            Err(NoResult::Failed(CallError::Gone(_))) => return self.db.progress_gone(of).await,
            // The process may end before the call does.
            Err(NoResult::Rest | NoResult::Failed(CallError::Unknown(_))) => true,
            Ok(()) | Err(NoResult::Failed(_)) => false,
        };
        let edited = || self.db.progress_edited(of, &text, unsure).boxed();
        self.kept(of, edited).await
    }

    /// What the platform did is recorded, however long the database is away: a post that nobody knows of would stay
    /// for ever, and an edit that may come yet would stand over the reply.
    async fn kept<'a>(
        &self,
        of: &Watched,
        step: impl FnMut() -> BoxFuture<'a, Result<(), DbError>>,
    ) -> Result<(), DbError> {
        match self.recorded(&of.message, step).await {
            Err(NotYet::Broken(error)) => Err(error),
            _ => Ok(()),
        }
    }

    async fn remove(&self, caller: &Caller, of: &Watched) -> Result<(), DbError> {
        let known = of.progress.as_ref().and_then(|known| known.post.clone());
        let post = match known {
            Some(post) => post,
            // It may stand: where the platform can tell, it is found and goes.
            None => match self.posted(caller, of, "…").await? {
                Ok(post) => {
                    let stands = || self.db.progress_stands(of, &post).boxed();
                    self.kept(of, stands).await?;
                    post
                }
                Err(NoResult::Rest) => return Ok(()),
                Err(NoResult::Failed(
                    error @ (CallError::Limited { .. } | CallError::NotDone(_)),
                )) => return later(of, &error).await,
                Err(NoResult::Failed(_)) => return self.db.progress_gone(of).await,
            },
        };
        let thread = of.thread.clone();
        let removed =
            caller.call(|platform| Box::pin(async move { platform.remove(&thread, &post).await }));
        match removed.await {
            Err(NoResult::Rest) => Ok(()),
            Err(NoResult::Failed(error @ (CallError::Limited { .. } | CallError::NotDone(_)))) => {
                later(of, &error).await
            }
            // It may stand yet, and nothing is lost by removing it twice.
            Err(NoResult::Failed(error @ CallError::Unknown(_))) if self.is_fresh(of) => {
                later(of, &error).await
            }
            Ok(()) | Err(NoResult::Failed(_)) => self.db.progress_gone(of).await,
        }
    }

    fn is_fresh(&self, of: &Watched) -> bool {
        let shown_at = of.progress.as_ref().map(|progress| progress.shown_at);
        shown_at.is_some_and(|shown_at| self.db.now() - shown_at < REMOVED_FOR)
    }

    /// Shows that somebody is busy; until when that holds.
    pub(super) async fn show_busy(caller: &Caller, thread: ThreadKey) -> Instant {
        let shown = caller.call_within(COURTESY, |platform| {
            Box::pin(async move { platform.busy(&thread).await })
        });
        Instant::now() + shown.await.unwrap_or(NOT_TAKEN)
    }
}

/// Its row stays, and with it what is due.
async fn later(of: &Watched, error: &CallError) -> Result<(), DbError> {
    tracing::debug!(message = %of.message, %error, "old progress is removed later");
    tokio::time::sleep(LATER).await;
    Ok(())
}
