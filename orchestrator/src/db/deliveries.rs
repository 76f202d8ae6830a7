//! Replies owed to threads.

use mayfly_domain::{DeliveryId, MessageId, Reply, ReplyFile, ThreadId, ThreadKey, TickId};
use sqlx::Row as _;

use super::{Db, DbError, Tx, parse};
use crate::clock;

/// What a delivery is to the message it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The agent's reply.
    Answer,
    /// Why there is none.
    Notice,
    /// That the message waits; not an outcome.
    Waiting,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Kind::Answer => "answer",
            Kind::Notice => "notice",
            Kind::Waiting => "waiting",
        }
    }
}

/// A delivery to be recorded.
#[derive(Debug, Clone)]
pub struct NewDelivery {
    /// Its id.
    pub id: DeliveryId,
    /// Where to.
    pub thread: ThreadId,
    /// The message it belongs to.
    pub message: MessageId,
    /// The tick that made it.
    pub tick: Option<TickId>,
    /// See [`Kind`].
    pub kind: Kind,
    /// Text and files.
    pub reply: Reply,
}

impl NewDelivery {
    /// A notice in place of an answer.
    pub fn notice(
        thread: ThreadId,
        message: MessageId,
        tick: Option<TickId>,
        text: String,
    ) -> Self {
        let reply = Reply {
            text,
            files: Vec::new(),
        };
        NewDelivery {
            id: DeliveryId::new(),
            thread,
            message,
            tick,
            kind: Kind::Notice,
            reply,
        }
    }

    /// A sign that the message waits.
    pub fn waiting(thread: ThreadId, message: MessageId, text: String) -> Self {
        NewDelivery {
            kind: Kind::Waiting,
            ..NewDelivery::notice(thread, message, None, text)
        }
    }
}

/// A delivery that is owed.
#[derive(Debug, Clone)]
pub struct Owed {
    /// Its id.
    pub id: DeliveryId,
    /// Where to.
    pub thread: ThreadKey,
    /// How often it was tried.
    pub attempts: u32,
    /// Text and files.
    pub reply: Reply,
}

pub(super) async fn owe(tx: &mut Tx, delivery: &NewDelivery) -> Result<(), DbError> {
    sqlx::query(
        "INSERT INTO deliveries (id, thread, message, tick, kind, text, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(delivery.id.to_string())
    .bind(delivery.thread.to_string())
    .bind(delivery.message.to_string())
    .bind(delivery.tick.map(|id| id.to_string()))
    .bind(delivery.kind.as_str())
    .bind(&delivery.reply.text)
    .bind(clock::unix_ms())
    .execute(&mut **tx)
    .await?;
    for (position, file) in delivery.reply.files.iter().enumerate() {
        sqlx::query(
            "INSERT INTO delivery_files (delivery, position, name, blob, size)
             VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(delivery.id.to_string())
        .bind(position as i64)
        .bind(&file.name)
        .bind(file.blob.as_str())
        .bind(file.size as i64)
        .execute(&mut **tx)
        .await?;
    }
    Ok(())
}

impl Db {
    /// Deliveries that may be tried now, oldest first.
    pub async fn owed(&self, limit: i64) -> Result<Vec<Owed>, DbError> {
        let rows = sqlx::query(
            "SELECT d.id, t.key, d.attempts, d.text FROM deliveries d JOIN threads t ON t.id = d.thread
             WHERE d.state = 'owed' AND d.next_at <= $1 ORDER BY d.created_at, d.id LIMIT $2",
        )
        .bind(clock::unix_ms())
        .bind(limit)
        .fetch_all(self.reader())
        .await?;
        let mut owed = Vec::new();
        for row in &rows {
            let id: String = row.try_get(0)?;
            let files = self.files_of(&id).await?;
            owed.push(Owed {
                thread: parse("threads", &id, "key", &row.try_get::<String, _>(1)?)?,
                attempts: row.try_get::<i64, _>(2)?.max(0) as u32,
                reply: Reply {
                    text: row.try_get(3)?,
                    files,
                },
                id: parse("deliveries", &id, "id", &id)?,
            });
        }
        Ok(owed)
    }

    /// What the thread was told about a message: its newest answer or notice.
    pub async fn reply_to(&self, message: MessageId) -> Result<Option<Reply>, DbError> {
        let row = sqlx::query(
            "SELECT id, text FROM deliveries WHERE message = $1 AND kind <> 'waiting'
             ORDER BY created_at DESC, id DESC LIMIT 1",
        )
        .bind(message.to_string())
        .fetch_optional(self.reader())
        .await?;
        let Some(row) = row else { return Ok(None) };
        let files = self.files_of(&row.try_get::<String, _>(0)?).await?;
        Ok(Some(Reply {
            text: row.try_get(1)?,
            files,
        }))
    }

    /// The newest sign that a message waits.
    pub async fn waiting_sign(&self, message: MessageId) -> Result<Option<String>, DbError> {
        let row = sqlx::query(
            "SELECT text FROM deliveries WHERE message = $1 AND kind = 'waiting'
             ORDER BY created_at DESC LIMIT 1",
        )
        .bind(message.to_string())
        .fetch_optional(self.reader())
        .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// The platform shows it.
    pub async fn delivered(&self, id: DeliveryId, platform_id: &str) -> Result<(), DbError> {
        sqlx::query(
            "UPDATE deliveries SET state = 'sent', platform_id = $2, sent_at = $3 WHERE id = $1",
        )
        .bind(id.to_string())
        .bind(platform_id)
        .bind(clock::unix_ms())
        .execute(self.writer())
        .await?;
        Ok(())
    }

    /// It failed; try again at `next_at`, or park it where that cannot help.
    pub async fn delivery_failed(
        &self,
        id: DeliveryId,
        reason: &str,
        next_at: Option<i64>,
    ) -> Result<(), DbError> {
        let state = if next_at.is_some() { "owed" } else { "parked" };
        sqlx::query(
            "UPDATE deliveries SET state = $2, reason = $3, next_at = $4, attempts = attempts + 1
             WHERE id = $1",
        )
        .bind(id.to_string())
        .bind(state)
        .bind(reason)
        .bind(next_at.unwrap_or(0))
        .execute(self.writer())
        .await?;
        Ok(())
    }

    /// How many deliveries are owed.
    pub async fn count_owed(&self) -> Result<i64, DbError> {
        let row = sqlx::query("SELECT count(*) FROM deliveries WHERE state = 'owed'")
            .fetch_one(self.reader())
            .await?;
        Ok(row.try_get(0)?)
    }

    async fn files_of(&self, delivery: &str) -> Result<Vec<ReplyFile>, DbError> {
        let rows = sqlx::query(
            "SELECT name, blob, size FROM delivery_files WHERE delivery = $1 ORDER BY position",
        )
        .bind(delivery)
        .fetch_all(self.reader())
        .await?;
        rows.iter()
            .map(|row| {
                Ok(ReplyFile {
                    name: row.try_get(0)?,
                    blob: parse(
                        "delivery_files",
                        delivery,
                        "blob",
                        &row.try_get::<String, _>(1)?,
                    )?,
                    size: row.try_get::<i64, _>(2)?.max(0) as u64,
                })
            })
            .collect()
    }
}
