//! Destroy: what is left is removed; a tick that did not commit is closed. Repeatable.
//!
//! The row is closed first, folders are deleted second, and only when the removal of the sandbox
//! is proved.

use std::{sync::atomic::Ordering, time::Duration};

use mayfly_domain::{Apology, LayerId, MessageOutcome};

use super::{
    Changes, EndedBadly, Job, TickError, TickOutcome, Tools, commit, report, state::Again,
};
use crate::{
    db::{
        DbError,
        deliveries::NewDelivery,
        endings::{Closing, MessageFate, Usage},
        messages::Message,
        snapshots::Made,
    },
    depot::DepotError,
    faults, observe,
    reconcile::ENDS_BY_ITSELF,
    sandbox::BackendError,
    snapshot::StoreError,
};

/// Milliseconds before a message runs again that lost no attempt: an engine that fails again and
/// again must not be asked in a circle.
const FREE_PAUSE: i64 = 2000;

/// Ticks of one message from which on each counts, also those that a stalled database ended: the
/// program itself may be what keeps the disk from answering.
const STALLS: i64 = 10;

/// Closes a tick that ended before its commit, and removes what it left.
pub async fn fail(tools: &Tools, job: &Job, error: TickError) {
    let tick = job.claim.tick;
    tools.running.leave(tick);
    let tried = matches!(error, TickError::NotRemoved(_) | TickError::Ended(_));
    let mut ended = match error {
        TickError::Ended(ended) => *ended,
        TickError::AskedEarly(ended) => *ended,
        TickError::NotRemoved(error) => {
            tracing::error!(%tick, error = observe::chain(&error), "no proof of removal");
            interrupted("its sandbox could not be removed", Again::Counted)
        }
        TickError::Store(StoreError::Missing { layer }) => {
            tracing::error!(%tick, %layer, "a layer of the state is missing");
            missing(tools, job, &layer).await
        }
        other => {
            tracing::warn!(%tick, error = observe::chain(&other), "tick failed");
            let ended = judge(&other);
            match ended.again == Again::Counted && is_the_images(tools, job, &other) {
                true => EndedBadly {
                    again: Again::Free,
                    ..ended
                },
                false => ended,
            }
        }
    };
    // Where the report has tried for long without success, the reconciler goes on; init has ended what is left by then.
    const { assert!(report::PROOF.as_secs() > ENDS_BY_ITSELF.as_secs()) };
    if !ended.removed && !tried {
        let removal = tools.backend.remove(&job.claim.names, report::PROOF).await;
        ended.removed = removal.is_ok();
    }
    if ended.again == Again::Counted && lapsed(tools, job).await {
        ended = EndedBadly {
            usage: ended.usage,
            removed: ended.removed,
            ..interrupted(
                "the database did not answer, so the worker let go of its sandboxes",
                Again::Free,
            )
        };
    }
    let effects = effects(tools, tick).await;
    let closing = closing(&job.claim.message, tick, ended, tools.attempts, &effects);
    let removed = closing.removed;
    close(tools, job, &closing).await;
    faults::point("destroy.closed");
    if removed {
        discard_unless_committed(tools, job).await;
        faults::point("destroy.discarded");
    }
}

/// Whether the image is known to be what does not start: no message is to blame for that.
fn is_the_images(tools: &Tools, job: &Job, error: &TickError) -> bool {
    let breaker = &tools.images.breaker;
    matches!(
        error,
        TickError::Backend(BackendError::NotReady { .. } | BackendError::Failed { .. })
    ) && breaker.is_open(&job.image, job.profile.runtime.as_deref())
}

/// Whether the tick was interrupted because the worker could not renew its lease: that is no attempt
/// of its message.
async fn lapsed(tools: &Tools, job: &Job) -> bool {
    if !tools.lease.lapsed_since(job.begun) {
        return false;
    }
    loop {
        match tools.db.count_ticks_for(job.claim.message.id).await {
            Ok(ticks) => return ticks < STALLS,
            Err(error) if error.is_lasting() => return false,
            Err(error) => wait_for_database(tools, job.claim.tick, &error).await,
        }
    }
}

/// What may have left the sandbox. The database is asked until it answers: while it is away nothing can be
/// closed either, and a guess would park what could run again.
async fn effects(tools: &Tools, tick: mayfly_domain::TickId) -> String {
    loop {
        match tools.db.tick(tick).await {
            Ok(Some(row)) => return row.effects,
            Ok(None) => return "possible".to_owned(),
            Err(error) if error.is_lasting() => return "possible".to_owned(),
            Err(error) => wait_for_database(tools, tick, &error).await,
        }
    }
}

async fn wait_for_database(tools: &Tools, tick: mayfly_domain::TickId, error: &DbError) {
    tracing::error!(%tick, error = observe::chain(error), "tick not closed yet");
    tools.host_disk.free_ballast();
    tokio::time::sleep(Duration::from_secs(1)).await;
}

/// A tick must be closed; the database is asked until it answers.
async fn close(tools: &Tools, job: &Job, closing: &Closing) {
    let claim = &job.claim;
    while let Err(error) = tools
        .db
        .close_tick(claim.tick, claim.generation, closing)
        .await
    {
        wait_for_database(tools, claim.tick, &error).await;
    }
}

/// Deletes what a closed tick wrote, unless a row names its layer. Legal once the row is closed
/// and the sandbox is proved to be gone. What cannot be deleted now is left to the reconciler.
pub(super) async fn discard_unless_committed(tools: &Tools, job: &Job) {
    let (store, layer) = (tools.store.clone(), job.claim.layer.clone());
    match tools.db.knows_layer(&job.claim.layer).await {
        Ok(true) => return,
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(tick = %job.claim.tick, error = observe::chain(&error), "folder left to the reconciler");
            tools.left.store(true, Ordering::Release);
            return;
        }
    }
    let done = tokio::task::spawn_blocking(move || {
        store
            .discard(&layer)
            .and_then(|()| store.remove_layer(&layer))
    });
    let error = match done.await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => observe::chain(&error),
        Err(panic) => panic.to_string(),
    };
    tracing::warn!(tick = %job.claim.tick, error, "folder left to the reconciler");
    tools.left.store(true, Ordering::Release);
}

/// What an error before the commit means: a program that cannot start is told at once, an engine
/// that is down is no attempt, everything else is tried again.
fn judge(error: &TickError) -> EndedBadly {
    match error {
        TickError::Stopped => EndedBadly {
            outcome: TickOutcome::Cancelled,
            apology: Apology::Stopped,
            ..interrupted("", Again::No)
        },
        TickError::NotStarted(reason) => EndedBadly {
            outcome: TickOutcome::Failed,
            apology: Apology::NotStarted {
                reason: reason.clone(),
            },
            again: Again::No,
            ..interrupted("", Again::No)
        },
        TickError::NotReceived(reason) => EndedBadly {
            outcome: TickOutcome::Failed,
            apology: Apology::NotReceived {
                reason: reason.clone(),
            },
            ..interrupted("", Again::No)
        },
        TickError::Backend(BackendError::BadImage { .. }) => EndedBadly {
            outcome: TickOutcome::Failed,
            apology: Apology::NotStarted {
                reason: error.to_string(),
            },
            ..interrupted("", Again::No)
        },
        TickError::Grown | TickError::Crowded => interrupted(&error.to_string(), Again::AtOnce),
        TickError::Depot(DepotError::NotConfigured { .. }) => {
            interrupted(&error.to_string(), Again::Parked)
        }
        TickError::Blobs(error) if error.is_away() => interrupted(&error.to_string(), Again::Free),
        TickError::NoRoom
        | TickError::Depot(_)
        | TickError::Backend(
            BackendError::Down { .. } | BackendError::OtherEngine | BackendError::NoImage(_),
        ) => interrupted(&error.to_string(), Again::Free),
        other => interrupted(&observe::chain(other), Again::Counted),
    }
}

/// Trying again does not bring a layer back: the message is parked at once, with the way out.
async fn missing(tools: &Tools, job: &Job, layer: &LayerId) -> EndedBadly {
    let agent = job.claim.agent.id.short();
    let again = format!("bring l/{layer} back from a backup and run the message again");
    let way_out = match tools.db.made(layer).await {
        Ok(Some(Made { by, before })) => match before {
            Some(before) => format!(
                " (tick {} made it): {again}, or go on from before it: `mayfly agent rollback {agent} {}`",
                by.short(),
                before.short()
            ),
            None => format!(
                " (tick {}, the first, made it): {again}, or begin anew: `mayfly agent new`",
                by.short()
            ),
        },
        _ => format!(
            ": {again}, or go back to a state that stands without it: `mayfly agent log --graph {agent}`"
        ),
    };
    EndedBadly {
        apology: Apology::PartMissing {
            part: format!("layer {layer}"),
            way_out,
        },
        ..interrupted("", Again::Parked)
    }
}

fn interrupted(reason: &str, again: Again) -> EndedBadly {
    EndedBadly {
        outcome: TickOutcome::Interrupted,
        apology: Apology::Interrupted {
            reason: reason.to_owned(),
        },
        text: String::new(),
        again,
        exit_code: None,
        usage: Usage::default(),
        removed: false,
    }
}

/// The crash policy: without effects outside, an interrupted message runs again by itself, at
/// most `attempts` times; then, or with effects, it is parked with a notice.
pub fn closing(
    message: &Message,
    tick: mayfly_domain::TickId,
    ended: EndedBadly,
    attempts: u32,
    effects: &str,
) -> Closing {
    let tried = message.attempts + 1;
    let (apology, fate) = match ended.again {
        Again::No => (
            ended.apology,
            MessageFate::Settled(MessageOutcome::Noticed, None),
        ),
        _ if effects != "none" => park(Apology::Interrupted {
            reason: "it may have had effects outside, so it does not run again by itself"
                .to_owned(),
        }),
        Again::Parked => park(ended.apology),
        Again::Counted if tried >= attempts => park(Apology::GaveUp {
            attempts: tried,
            reason: ended.apology.to_string(),
        }),
        again => {
            let counts = again == Again::Counted;
            let pause = match again {
                Again::Counted => 1000 * i64::from(tried * tried),
                Again::AtOnce => 0,
                _ => FREE_PAUSE,
            };
            (
                ended.apology,
                MessageFate::Again {
                    after: pause,
                    counts,
                },
            )
        }
    };
    let notice = commit::notice(&apology, Changes::Discarded);
    let told = !matches!(fate, MessageFate::Again { .. });
    let text = commit::with_notice(&ended.text, Some(&notice));
    Closing {
        outcome: ended.outcome,
        changes: Changes::Discarded,
        exit_code: ended.exit_code,
        removed: ended.removed,
        usage: ended.usage,
        message: fate,
        delivery: told.then(|| NewDelivery::notice(message.thread, message.id, Some(tick), text)),
        notice: Some(notice),
    }
}

fn park(apology: Apology) -> (Apology, MessageFate) {
    let reason = apology.to_string();
    (
        apology,
        MessageFate::Settled(MessageOutcome::Parked, Some(reason)),
    )
}

/// What a tick is closed with whose claim was written and whose answer was lost: nothing of it has
/// begun.
pub fn never_begun(message: &Message, tick: mayfly_domain::TickId, attempts: u32) -> Closing {
    let ended = EndedBadly {
        removed: true,
        ..interrupted("the claim's answer was lost", Again::Free)
    };
    closing(message, tick, ended, attempts, "none")
}

/// What a tick whose worker died is closed with.
pub fn crashed(
    message: &Message,
    tick: mayfly_domain::TickId,
    attempts: u32,
    effects: &str,
) -> Closing {
    let ended = interrupted("the worker died in the middle", Again::Counted);
    closing(message, tick, ended, attempts, effects)
}

#[cfg(test)]
mod tests {
    use mayfly_domain::{AgentId, Author, MessageId, ThreadId, TickId};

    use super::*;

    fn message(attempts: u32) -> Message {
        Message {
            id: MessageId::new(),
            agent: AgentId::new(),
            thread: ThreadId::new(),
            seq: 1,
            author: Author::local("ada"),
            text: "x".into(),
            sandbox: None,
            created_at: 0,
            claimable_at: 0,
            attempts,
            outcome: None,
            reason: None,
            merged_into: None,
            words_of: None,
        }
    }

    #[test]
    fn the_third_interruption_parks_with_a_notice() {
        for attempts in 0..2 {
            let closing = crashed(&message(attempts), TickId::new(), 3, "none");
            assert!(matches!(
                closing.message,
                MessageFate::Again { counts: true, .. }
            ));
            assert!(closing.delivery.is_none());
        }
        let closing = crashed(&message(2), TickId::new(), 3, "none");
        let MessageFate::Settled(outcome, reason) = closing.message else {
            panic!()
        };
        assert_eq!(outcome, MessageOutcome::Parked);
        assert!(reason.unwrap().contains("3 attempts"));
        assert!(
            closing
                .delivery
                .unwrap()
                .reply
                .text
                .contains("changes discarded")
        );
    }

    #[test]
    fn rb_03_a_tick_with_effects_outside_does_not_run_again_by_itself() {
        let closing = crashed(&message(0), TickId::new(), 3, "possible");
        assert!(matches!(
            closing.message,
            MessageFate::Settled(MessageOutcome::Parked, _)
        ));
        assert!(closing.delivery.is_some());
    }
}
