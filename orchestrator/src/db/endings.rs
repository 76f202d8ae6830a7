//! How a tick ends: committed whole or closed, each by one compare-and-swap on the open row.

use mayfly_domain::{Apology, MessageOutcome, SnapshotId, TickId};
use sqlx::Row as _;

use super::{
    Db, DbError, Tx,
    claims::Claim,
    deliveries::{NewDelivery, owe},
    depot::{NewLayer, insert_layer},
    parse, query,
};
use crate::{
    snapshot::{LayerSize, oci::Parcel},
    tick::outcome::{Changes, TickOutcome},
};

/// The end of a tick, written in one transaction.
#[derive(Debug, Clone)]
pub struct Closing {
    /// How it ended.
    pub outcome: TickOutcome,
    /// Whether files were kept.
    pub changes: Changes,
    /// In place of a plain answer.
    pub notice: Option<String>,
    /// Exit code.
    pub exit_code: Option<i32>,
    /// The removal of its sandbox is proved.
    pub removed: bool,
    /// What it used; charged whatever the outcome.
    pub usage: Usage,
    /// What becomes of the message.
    pub message: MessageFate,
    /// What the thread is told.
    pub delivery: Option<NewDelivery>,
}

/// What a tick used and left; see `view::UsageView`.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    /// Milliseconds per phase.
    pub phase_ms: [i64; 5],
    /// Bytes written by the program.
    pub output_bytes: i64,
    /// What the seal dropped or stripped.
    pub notes: Vec<String>,
}

/// What a tick's end means for its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageFate {
    /// It has its one outcome.
    Settled(MessageOutcome, Option<String>),
    /// It runs again.
    Again {
        /// Not before so many milliseconds have passed.
        after: i64,
        /// Whether the interrupted tick counts.
        counts: bool,
    },
}

/// The state a committing tick leaves behind.
#[derive(Debug, Clone)]
pub struct NewSnapshot {
    /// Its id.
    pub id: SnapshotId,
    /// None where the tick changed nothing.
    pub layer: Option<LayerSize>,
    /// Where that is in the layer store already.
    pub parcel: Option<Parcel>,
    /// The agent program's session.
    pub session: Option<String>,
}

impl Db {
    /// Commits a tick whole: head, delivery, usage, outcomes, claim. False if it was closed by
    /// somebody else; then nothing was written.
    pub async fn commit_tick(
        &self,
        claim: &Claim,
        end: &Closing,
        snapshot: &NewSnapshot,
    ) -> Result<bool, DbError> {
        let now = self.now();
        let mut tx = self.begin().await?;
        if !close(&mut tx, claim.tick, claim.generation, end, Some(snapshot)).await? {
            return Ok(false);
        }
        if let Some(size) = snapshot.layer {
            let layer = NewLayer {
                id: &claim.layer,
                size,
                holder: Some(&claim.worker),
                parcel: snapshot.parcel.as_ref(),
            };
            insert_layer(&mut tx, &layer, now).await?;
        }
        query(
            "INSERT INTO snapshots (id, agent, base, parent, tick, layer, session, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(snapshot.id.to_string())
        .bind(claim.agent.id.to_string())
        .bind(claim.agent.base.as_str())
        .bind(claim.agent.head.map(|id| id.to_string()))
        .bind(claim.tick.to_string())
        .bind(snapshot.layer.map(|_| claim.layer.as_str()))
        .bind(&snapshot.session)
        .bind(now)
        .execute(&mut *tx)
        .await?;
        let moved = query(
            "UPDATE agents SET head = $2 WHERE id = $1 AND COALESCE(head, '') = $3
             AND removed_at IS NULL",
        )
        .bind(claim.agent.id.to_string())
        .bind(snapshot.id.to_string())
        .bind(
            claim
                .agent
                .head
                .map(|id| id.to_string())
                .unwrap_or_default(),
        )
        .execute(&mut *tx)
        .await?
        .rows_affected();
        if moved != 1 {
            return Ok(false);
        }
        crate::faults::point("commit.inside");
        tx.commit().await?;
        crate::faults::lose_answer("commit.answer")?;
        Ok(true)
    }

    /// Closes a tick whose files are discarded. False if it was closed by somebody else.
    pub async fn close_tick(
        &self,
        id: TickId,
        generation: i64,
        end: &Closing,
    ) -> Result<bool, DbError> {
        let mut tx = self.begin().await?;
        let closed = close(&mut tx, id, generation, end, None).await?;
        crate::faults::point("close.inside");
        tx.commit().await?;
        Ok(closed)
    }

    /// The removal of a closed tick's sandbox is proved.
    pub async fn mark_removed(&self, id: TickId) -> Result<(), DbError> {
        query("UPDATE ticks SET removed_at = $2 WHERE id = $1 AND removed_at IS NULL")
            .bind(id.to_string())
            .bind(self.now())
            .execute(self.writer())
            .await?;
        Ok(())
    }
}

/// Writes the end of a tick; false if somebody else closed it or a newer claim exists.
async fn close(
    tx: &mut Tx,
    id: TickId,
    generation: i64,
    end: &Closing,
    snapshot: Option<&NewSnapshot>,
) -> Result<bool, DbError> {
    let now = tx.now();
    let layer = snapshot.and_then(|s| s.layer).unwrap_or_default();
    let row = query(
        "UPDATE ticks SET outcome = $3, changes = $4, notice = $5, exit_code = $6,
           removed_at = CASE WHEN $7 = 1 THEN $8 ELSE removed_at END, notes = $9, phase_ms = $10,
           output_bytes = $11, layer_bytes = $12, layer_inodes = $13, after = $14, ended_at = $8,
           progress = NULL
         WHERE id = $1 AND outcome IS NULL AND generation = $2
           AND generation = (SELECT generation FROM agents WHERE agents.id = ticks.agent)
         RETURNING message, cancel_requested",
    )
    .bind(id.to_string())
    .bind(generation)
    .bind(end.outcome.as_str())
    .bind(end.changes.as_str())
    .bind(&end.notice)
    .bind(end.exit_code.map(i64::from))
    .bind(i64::from(end.removed))
    .bind(now)
    .bind(serde_json::json!(end.usage.notes).to_string())
    .bind(serde_json::json!(end.usage.phase_ms).to_string())
    .bind(end.usage.output_bytes)
    .bind(layer.bytes as i64)
    .bind(layer.inodes as i64)
    .bind(snapshot.map(|s| s.id.to_string()))
    .fetch_optional(&mut **tx)
    .await?;
    let Some(row) = row else { return Ok(false) };
    let message: String = row.try_get(0)?;
    let stopped = row.try_get::<i64, _>(1)? != 0;
    match &end.message {
        MessageFate::Again { .. } if stopped => settle_stopped(tx, id, &message, now).await?,
        MessageFate::Settled(outcome, reason) => {
            query(
                "UPDATE messages SET outcome = $2, reason = $3, settled_at = $4
                 WHERE id = $1 AND outcome IS NULL",
            )
            .bind(&message)
            .bind(outcome.as_str())
            .bind(reason)
            .bind(now)
            .execute(&mut **tx)
            .await?;
        }
        MessageFate::Again { after, counts } => {
            query("UPDATE messages SET claimable_at = $2, attempts = attempts + $3 WHERE id = $1")
                .bind(&message)
                .bind(tx.now() + after)
                .bind(i64::from(*counts))
                .execute(&mut **tx)
                .await?;
        }
    }
    if let Some(delivery) = &end.delivery {
        owe(tx, delivery).await?;
    }
    Ok(true)
}

/// What a person stopped does not run again, whatever interrupted its tick.
async fn settle_stopped(tx: &mut Tx, tick: TickId, message: &str, now: i64) -> Result<(), DbError> {
    let notice = format!(
        "{}, changes {}",
        Apology::Stopped,
        Changes::Discarded.as_str()
    );
    query("UPDATE ticks SET outcome = $2, notice = $3 WHERE id = $1")
        .bind(tick.to_string())
        .bind(TickOutcome::Cancelled.as_str())
        .bind(&notice)
        .execute(&mut **tx)
        .await?;
    let row =
        query("UPDATE messages SET outcome = $2, settled_at = $3 WHERE id = $1 RETURNING thread")
            .bind(message)
            .bind(MessageOutcome::Noticed.as_str())
            .bind(now)
            .fetch_one(&mut **tx)
            .await?;
    let thread = parse("messages", message, "thread", &row.try_get::<String, _>(0)?)?;
    let id = parse("messages", message, "id", message)?;
    owe(tx, &NewDelivery::notice(thread, id, Some(tick), notice)).await
}
