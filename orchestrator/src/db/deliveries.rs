//! Replies owed to threads.

use mayfly_domain::{
    AgentId, DeliveryId, MessageId, Reply, ReplyFile, ThreadId, ThreadKey, TickId, chat::Button,
};
use sqlx::{Row as _, any::AnyRow};

use super::{
    Db, DbError, Tx,
    orders::{Said, say},
    parse, parse_opt, query,
};
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
    /// More about a reply, for example a file that could not be sent; not an outcome.
    Remark,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Kind::Answer => "answer",
            Kind::Notice => "notice",
            Kind::Waiting => "waiting",
            Kind::Remark => "remark",
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

    /// More about a reply.
    pub fn remark(thread: ThreadId, message: MessageId, text: String) -> Self {
        NewDelivery {
            kind: Kind::Remark,
            ..NewDelivery::notice(thread, message, None, text)
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

/// Whose deliveries are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// Those to threads of this platform.
    Platform(&'static str),
    /// Those to threads of any other platform.
    NoneOf(Vec<&'static str>),
}

impl Whose {
    pub(super) fn names(&self) -> &[&'static str] {
        match self {
            Whose::Platform(name) => std::slice::from_ref(name),
            Whose::NoneOf(names) => names,
        }
    }

    /// About a thread's key; the names, each with a `/`, are bound from parameter `first` on.
    pub(super) fn condition(&self, first: usize) -> String {
        let begins = |(at, name): (usize, &&str)| {
            format!("substr(t.key, 1, {}) = ${}", name.len() + 1, first + at)
        };
        let any: Vec<String> = self.names().iter().enumerate().map(begins).collect();
        match self {
            Whose::Platform(_) => any.join(" OR "),
            Whose::NoneOf(names) if names.is_empty() => "1 = 1".to_owned(),
            Whose::NoneOf(_) => format!("NOT ({})", any.join(" OR ")),
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
    /// The message it belongs to.
    pub message: MessageId,
    /// Since when, unix ms.
    pub created_at: i64,
    /// How often it was tried.
    pub attempts: u32,
    /// Text and files.
    pub reply: Reply,
    /// Below the text.
    pub buttons: Vec<Button>,
}

/// What could not be delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undelivered {
    /// The delivery.
    pub id: DeliveryId,
    /// The message it belongs to; none where it answers a command.
    pub message: Option<MessageId>,
    /// Since when it is owed, unix ms.
    pub created_at: i64,
    /// Why, with the way out.
    pub reason: String,
    /// How its text begins.
    pub begins: String,
}

fn undelivered(row: &AnyRow) -> Result<Undelivered, DbError> {
    let id: String = row.try_get(0)?;
    let message: Option<String> = row.try_get(1)?;
    Ok(Undelivered {
        message: parse_opt("deliveries", &id, "message", message.as_deref())?,
        created_at: row.try_get(2)?,
        reason: row.try_get(3)?,
        begins: row.try_get(4)?,
        id: parse("deliveries", &id, "id", &id)?,
    })
}

pub(super) async fn owe(tx: &mut Tx, delivery: &NewDelivery) -> Result<(), DbError> {
    query(
        "INSERT INTO deliveries (id, thread, message, tick, kind, text, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(delivery.id.to_string())
    .bind(delivery.thread.to_string())
    .bind(delivery.message.to_string())
    .bind(delivery.tick.map(|id| id.to_string()))
    .bind(delivery.kind.as_str())
    .bind(&delivery.reply.text)
    .bind(tx.now())
    .execute(&mut **tx)
    .await?;
    for (position, file) in delivery.reply.files.iter().enumerate() {
        query(
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
    /// The oldest delivery of each thread, where it may be tried now, oldest first. What comes
    /// later in a thread waits for what comes first. One that cannot be read is parked.
    pub async fn owed(&self, whose: &Whose, limit: i64) -> Result<Vec<Owed>, DbError> {
        let sql = format!(
            "SELECT d.id, t.key, d.attempts, d.text, d.message, d.created_at, d.buttons FROM deliveries d JOIN threads t ON t.id = d.thread
             WHERE d.state = 'owed' AND (d.next_at <= $1 OR d.next_at > $2) AND {}
             AND NOT EXISTS (SELECT 1 FROM deliveries o WHERE o.thread = d.thread
                 AND o.state = 'owed' AND (o.created_at, o.id) < (d.created_at, d.id))
             ORDER BY d.created_at, d.id LIMIT $3",
            whose.condition(4)
        );
        let now = self.now();
        let query = query(sqlx::AssertSqlSafe(sql))
            .bind(now)
            // Written before the clock stepped back.
            .bind(now + clock::LONGEST_PAUSE)
            .bind(limit);
        let names = whose.names().iter();
        let query = names.fold(query, |query, name| query.bind(format!("{name}/")));
        let rows = query.fetch_all(self.reader()).await?;
        let mut owed = Vec::new();
        for row in &rows {
            match self.owed_row(row).await {
                Ok(one) => owed.push(one),
                // One that cannot be read would hold up its thread for ever.
                Err(error) if error.is_lasting() => {
                    let reason = crate::observe::chain(&error);
                    tracing::error!(error = reason, "delivery not readable: parked");
                    let id: String = row.try_get(0)?;
                    self.settle_failed(&id, &reason, None).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(owed)
    }

    async fn owed_row(&self, row: &AnyRow) -> Result<Owed, DbError> {
        let id: String = row.try_get(0)?;
        let files = self.files_of(&id).await?;
        Ok(Owed {
            thread: parse("threads", &id, "key", &row.try_get::<String, _>(1)?)?,
            message: parse("deliveries", &id, "message", &row.try_get::<String, _>(4)?)?,
            created_at: row.try_get(5)?,
            buttons: match row.try_get::<Option<String>, _>(6)? {
                Some(buttons) => serde_json::from_str(&buttons).map_err(|_| DbError::Row {
                    table: "deliveries",
                    id: id.clone(),
                    column: "buttons",
                })?,
                None => Vec::new(),
            },
            attempts: row.try_get::<i64, _>(2)?.max(0) as u32,
            reply: Reply {
                text: row.try_get(3)?,
                files,
            },
            id: parse("deliveries", &id, "id", &id)?,
        })
    }

    /// The platform shows it, all but the parts that `more` is about.
    pub async fn delivered(
        &self,
        owed: &Owed,
        platform_id: &str,
        more: &[Said],
    ) -> Result<(), DbError> {
        let mut tx = self.begin().await?;
        let row = query(
            "UPDATE deliveries SET state = 'sent', platform_id = $2, sent_at = $3
             WHERE id = $1 AND state = 'owed' RETURNING thread",
        )
        .bind(owed.id.to_string())
        .bind(platform_id)
        .bind(self.now())
        .fetch_optional(&mut *tx)
        .await?;
        // What it was made of is not needed any more; its posts are known by themselves.
        query("DELETE FROM parts WHERE delivery = $1")
            .bind(owed.id.to_string())
            .execute(&mut *tx)
            .await?;
        if let Some(row) = row {
            let id = owed.id.to_string();
            let thread = parse("deliveries", &id, "thread", &row.try_get::<String, _>(0)?)?;
            for said in more {
                say(&mut tx, thread, owed.message, said).await?;
            }
        }
        tx.commit().await?;
        Ok(())
    }

    /// It is looked at again at `next_at`, and this was no failure.
    pub async fn delivery_waits(&self, id: DeliveryId, next_at: i64) -> Result<(), DbError> {
        query("UPDATE deliveries SET next_at = $2 WHERE id = $1 AND state = 'owed'")
            .bind(id.to_string())
            .bind(next_at)
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
        self.settle_failed(&id.to_string(), reason, next_at).await
    }

    async fn settle_failed(
        &self,
        id: &str,
        reason: &str,
        next_at: Option<i64>,
    ) -> Result<(), DbError> {
        let state = if next_at.is_some() { "owed" } else { "parked" };
        query(
            "UPDATE deliveries SET state = $2, reason = $3, next_at = $4, attempts = attempts + 1
             WHERE id = $1",
        )
        .bind(id)
        .bind(state)
        .bind(reason)
        .bind(next_at.unwrap_or(0))
        .execute(self.writer())
        .await?;
        Ok(())
    }

    /// What of an agent's could not be delivered, newest first, and at most so many.
    pub async fn undelivered(
        &self,
        agent: AgentId,
        most: i64,
    ) -> Result<Vec<Undelivered>, DbError> {
        let rows = query(
            "SELECT d.id, m.id, d.created_at, COALESCE(d.reason, ''),
               substr(ltrim(d.text), 1, 256)
             FROM deliveries d JOIN threads t ON t.id = d.thread
             LEFT JOIN messages m ON m.id = d.message
             WHERE t.agent = $1 AND d.state = 'parked'
             ORDER BY d.created_at DESC, d.id DESC LIMIT $2",
        )
        .bind(agent.to_string())
        .bind(most)
        .fetch_all(self.reader())
        .await?;
        rows.iter().map(undelivered).collect()
    }

    /// What could not be delivered of an agent's is owed again, from where it was left. How much.
    pub async fn owe_again(&self, agent: AgentId) -> Result<u64, DbError> {
        let of = "thread IN (SELECT id FROM threads WHERE agent = $1)";
        self.owe_again_where(of, &agent.to_string()).await
    }

    /// The same for what belongs to one message.
    pub async fn owe_again_of(&self, message: MessageId) -> Result<u64, DbError> {
        self.owe_again_where("message = $1", &message.to_string())
            .await
    }

    async fn owe_again_where(&self, which: &str, id: &str) -> Result<u64, DbError> {
        let mut tx = self.begin().await?;
        // Posts that others removed before are not counted again.
        let tries = format!(
            "UPDATE parts SET forgiven = lost
             WHERE delivery IN (SELECT id FROM deliveries WHERE state = 'parked' AND {which})"
        );
        let again = format!(
            "UPDATE deliveries SET state = 'owed', next_at = 0, attempts = 0, reason = NULL
             WHERE state = 'parked' AND {which}"
        );
        let mut count = 0;
        for sql in [tries, again] {
            let done = query(sqlx::AssertSqlSafe(sql))
                .bind(id)
                .execute(&mut *tx)
                .await?;
            count = done.rows_affected();
        }
        tx.commit().await?;
        Ok(count)
    }

    /// How many deliveries are owed.
    pub async fn count_owed(&self) -> Result<i64, DbError> {
        let row = query("SELECT count(*) FROM deliveries WHERE state = 'owed'")
            .fetch_one(self.reader())
            .await?;
        Ok(row.try_get(0)?)
    }

    async fn files_of(&self, delivery: &str) -> Result<Vec<ReplyFile>, DbError> {
        let rows = query(
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
