//! Commit: head, delivery, usage, outcomes and claim become true in one transaction.

use std::time::Duration;

use mayfly_domain::{Apology, DeliveryId, MessageOutcome, Reply, SnapshotId};

use super::{Changes, Job, TickError, Tools, destroy, phase::Phase, report::Reported};
use crate::{
    db::{
        deliveries::{Kind, NewDelivery},
        endings::{Closing, MessageFate, NewSnapshot},
    },
    faults,
};

/// Between two readings of a row whose commit's answer was lost.
const REREAD: Duration = Duration::from_millis(500);
/// Lines about the state under one reply.
const NOTES: usize = 3;

/// See the module.
pub async fn commit(tools: &Tools, job: &Job, reported: Reported) -> Result<(), TickError> {
    let claim = &job.claim;
    faults::point("commit.before");
    let mut watch = reported.watch;
    watch.lap(Phase::Commit);
    let notice = reported
        .apology
        .as_ref()
        .map(|apology| notice(apology, reported.changes));
    let settled = if notice.is_none() {
        MessageOutcome::Answered
    } else {
        MessageOutcome::Noticed
    };
    let delivery = NewDelivery {
        id: DeliveryId::new(),
        thread: claim.message.thread,
        message: claim.message.id,
        tick: Some(claim.tick),
        kind: if notice.is_none() {
            Kind::Answer
        } else {
            Kind::Notice
        },
        reply: Reply {
            text: with_notes(
                with_notice(&reported.reply.text, notice.as_deref()),
                &reported.told,
            ),
            ..reported.reply
        },
    };
    let mut usage = reported.usage;
    usage.phase_ms = watch.phases();
    let end = Closing {
        outcome: reported.outcome,
        changes: reported.changes,
        notice,
        exit_code: reported.exit_code,
        removed: true,
        usage,
        message: MessageFate::Settled(settled, None),
        delivery: Some(delivery),
    };
    let snapshot = NewSnapshot {
        id: SnapshotId::new(),
        layer: reported.layer,
        parcel: reported.parcel,
        session: None,
    };
    // Until the rows name the files.
    let _kept = reported.kept;
    let written = loop {
        let answer = match reported.changes {
            Changes::Kept => tools.db.commit_tick(claim, &end, &snapshot).await,
            Changes::Discarded => {
                tools
                    .db
                    .close_tick(claim.tick, claim.generation, &end)
                    .await
            }
        };
        match answer {
            Ok(written) => break written,
            Err(error) => {
                tracing::error!(tick = %claim.tick, %error, "commit without an answer");
                tools.host_disk.free_ballast();
                if is_closed(tools, job).await {
                    break true;
                }
            }
        }
    };
    faults::point("commit.after");
    if !written {
        return Err(TickError::Lost);
    }
    destroy::discard_unless_committed(tools, job).await;
    Ok(())
}

/// The answer to COMMIT was lost: the row is read again on a fresh connection, for as long as it
/// takes, before anything may be removed. An open row means that nothing was written, nor will be.
async fn is_closed(tools: &Tools, job: &Job) -> bool {
    loop {
        tokio::time::sleep(REREAD).await;
        let read = async {
            tools.db.outlast_writers().await?;
            tools.db.tick(job.claim.tick).await
        };
        match read.await {
            Ok(tick) => return tick.is_none_or(|tick| tick.outcome.is_some()),
            Err(error) => tracing::error!(tick = %job.claim.tick, %error, "row not readable"),
        }
    }
}

/// `exit 3, changes kept`, with what helps to understand it.
pub(super) fn notice(apology: &Apology, changes: Changes) -> String {
    let sentence = format!("{apology}, changes {}", changes.as_str());
    match apology.detail() {
        "" => sentence,
        detail => format!("{sentence}\n```\n{detail}\n```"),
    }
}

/// The reply, then what a person would miss in the state it left.
fn with_notes(text: String, told: &[String]) -> String {
    if told.is_empty() {
        return text;
    }
    let mut lines: Vec<String> = told
        .iter()
        .take(NOTES)
        .map(|n| format!("note: {n}"))
        .collect();
    if told.len() > NOTES {
        lines.push(format!("note: and {} more", told.len() - NOTES));
    }
    format!("{text}\n\n{}", lines.join("\n"))
}

/// What the program said, then the notice.
pub(super) fn with_notice(text: &str, notice: Option<&str>) -> String {
    match notice {
        None => text.to_owned(),
        Some(notice) if text.is_empty() => notice.to_owned(),
        Some(notice) => format!("{text}\n\n{notice}"),
    }
}
