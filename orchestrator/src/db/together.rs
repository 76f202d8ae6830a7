//! Messages that share a tick: one of them, the first, has the tick and its outcome; the others are
//! merged into it, which is their outcome, in the transaction that claims it.

use mayfly_domain::MessageId;
use sqlx::{AnyConnection, Row as _};

use super::{
    Db, DbError, Tx,
    deliveries::{NewDelivery, owe},
    messages::{COLUMNS, Message, message},
    query,
    remote::waits_for_files,
};

/// Who may go into one tick with a lane's next message.
#[derive(Debug, Clone)]
pub struct Together {
    /// The lane's next message, as it was when it was looked at.
    pub first: MessageId,
    /// Others of its conversation, in their order.
    pub others: Vec<MessageId>,
}

/// Merges what still may be merged into the message that is being claimed for the first time. What
/// comes after one that may not stays where it is, so that the order holds.
pub(super) async fn merge(
    tx: &mut Tx,
    first: &Message,
    together: &Together,
) -> Result<(), DbError> {
    if together.first != first.id || has_ticks(tx, first.id).await? {
        return Ok(());
    }
    for id in &together.others {
        if waits_for_files(tx, *id).await? {
            break;
        }
        let merged = query(
            "UPDATE messages SET outcome = 'merged', merged_into = $2, settled_at = $3, reason = $4
             WHERE id = $1 AND outcome IS NULL AND agent = $5 AND thread = $6 AND claimable_at <= $3
             AND NOT EXISTS (SELECT 1 FROM ticks t WHERE t.message = messages.id)",
        )
        .bind(id.to_string())
        .bind(first.id.to_string())
        .bind(tx.now())
        .bind(format!("part of message {}", first.id.short()))
        .bind(first.agent.to_string())
        .bind(first.thread.to_string())
        .execute(&mut **tx)
        .await?
        .rows_affected();
        if merged == 0 {
            break;
        }
    }
    Ok(())
}

async fn has_ticks(tx: &mut Tx, id: MessageId) -> Result<bool, DbError> {
    let row = query("SELECT count(*) FROM ticks WHERE message = $1")
        .bind(id.to_string())
        .fetch_one(&mut **tx)
        .await?;
    Ok(row.try_get::<i64, _>(0)? > 0)
}

/// What was merged into a message, in its order.
pub(super) async fn merged_on(
    connection: &mut AnyConnection,
    into: MessageId,
) -> Result<Vec<Message>, DbError> {
    let sql =
        format!("SELECT {COLUMNS} FROM messages m WHERE m.merged_into = $1 ORDER BY m.seq, m.id");
    let rows = query(sqlx::AssertSqlSafe(sql))
        .bind(into.to_string())
        .fetch_all(connection)
        .await?;
    rows.iter().map(message).collect()
}

/// A message ends without a tick: what was merged into it waits for one of its own again.
pub(super) async fn release(tx: &mut Tx, from: MessageId) -> Result<(), DbError> {
    query(
        "UPDATE messages SET outcome = NULL, merged_into = NULL, settled_at = NULL, reason = NULL
         WHERE merged_into = $1",
    )
    .bind(from.to_string())
    .execute(&mut **tx)
    .await?;
    Ok(())
}

impl Db {
    /// What was merged into a message, in its order.
    pub async fn merged_into(&self, into: MessageId) -> Result<Vec<Message>, DbError> {
        merged_on(&mut *self.reader().acquire().await?, into).await
    }

    /// What was merged into a message, from this one on, waits for a tick of its own again.
    pub async fn part_from(&self, first: MessageId, from: &Message) -> Result<(), DbError> {
        query(
            "UPDATE messages SET outcome = NULL, merged_into = NULL, settled_at = NULL,
               reason = NULL
             WHERE merged_into = $1 AND (seq, id) >= ($2, $3) AND NOT EXISTS (SELECT 1 FROM ticks t
               WHERE t.message = $1 AND t.outcome IS NULL)",
        )
        .bind(first.to_string())
        .bind(from.seq)
        .bind(from.id.to_string())
        .execute(self.writer())
        .await?;
        Ok(())
    }

    /// Open messages of the same conversation that come after this one, in their order.
    pub async fn waiting_behind(
        &self,
        first: &Message,
        most: i64,
    ) -> Result<Vec<Message>, DbError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM messages m WHERE m.agent = $1 AND m.thread = $2
             AND m.outcome IS NULL AND m.seq > $3 ORDER BY m.seq, m.id LIMIT $4"
        );
        let rows = query(sqlx::AssertSqlSafe(sql))
            .bind(first.agent.to_string())
            .bind(first.thread.to_string())
            .bind(first.seq)
            .bind(most)
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(message).collect()
    }

    /// Takes a message back that was merged into one whose tick has to run again, with a notice.
    pub async fn withdraw_merged(&self, of: &Message, notice: &str) -> Result<(), DbError> {
        let mut tx = self.begin().await?;
        let done = query(
            "UPDATE messages SET outcome = 'withdrawn', merged_into = NULL, reason = $2,
               settled_at = $3
             WHERE id = $1 AND outcome = 'merged' AND NOT EXISTS (SELECT 1 FROM ticks t
               WHERE t.message = messages.merged_into AND t.outcome IS NULL)",
        )
        .bind(of.id.to_string())
        .bind(notice)
        .bind(self.now())
        .execute(&mut *tx)
        .await?
        .rows_affected();
        if done == 1 {
            let notice = NewDelivery::notice(of.thread, of.id, None, notice.to_owned());
            owe(&mut tx, &notice).await?;
        }
        tx.commit().await?;
        Ok(())
    }
}
