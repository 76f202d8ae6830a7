//! Messages: what arrivals add up to.

use mayfly_domain::{
    AgentId, Author, MessageId, MessageOutcome, SandboxRef, ThreadId, ThreadKey, chat::Button,
};
use std::time::Duration;

use sqlx::{Row as _, any::AnyRow};

use super::{
    Db, DbError, Tx,
    deliveries::{NewDelivery, owe},
    ids,
    orders::add_buttons,
    parse, parse_opt, query,
    together::release,
};
use crate::orders::grammar::Order;

/// In `wait_noticed`: a person said that the message waits for its files. Told it is no more.
const PATIENT: i64 = 2;

/// A message's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its id.
    pub id: MessageId,
    /// Whose lane it is in.
    pub agent: AgentId,
    /// The conversation it came from.
    pub thread: ThreadId,
    /// Its place in the thread.
    pub seq: i64,
    /// Who wrote it.
    pub author: Author,
    /// What was written.
    pub text: String,
    /// Image for its tick only.
    pub sandbox: Option<SandboxRef>,
    /// Unix ms.
    pub created_at: i64,
    /// Not before this time, unix ms.
    pub claimable_at: i64,
    /// Interrupted ticks so far.
    pub attempts: u32,
    /// Its outcome; none while open.
    pub outcome: Option<MessageOutcome>,
    /// Why it is parked or withdrawn.
    pub reason: Option<String>,
    /// The message whose tick it became part of.
    pub merged_into: Option<MessageId>,
    /// Whoever wrote what its author only passes on.
    pub words_of: Option<Author>,
}

pub(super) const COLUMNS: &str = "m.id, m.agent, m.thread, m.seq, m.author_id, m.author_name, \
     m.text, m.sandbox, m.created_at, m.claimable_at, m.attempts, m.outcome, m.reason, \
     m.merged_into, m.words_of";
/// How many they are.
pub(super) const WIDTH: usize = 15;

pub(super) fn message(row: &AnyRow) -> Result<Message, DbError> {
    let id: String = row.try_get(0)?;
    let text = |column: usize| -> Result<String, DbError> { Ok(row.try_get(column)?) };
    let optional = |column: usize| -> Result<Option<String>, DbError> { Ok(row.try_get(column)?) };
    let outcome = optional(11)?;
    let bad = |column| DbError::Row {
        table: "messages",
        id: id.clone(),
        column,
    };
    Ok(Message {
        id: parse("messages", &id, "id", &id)?,
        agent: parse("messages", &id, "agent", &text(1)?)?,
        thread: parse("messages", &id, "thread", &text(2)?)?,
        seq: row.try_get(3)?,
        author: Author {
            id: text(4)?,
            name: text(5)?,
        },
        text: text(6)?,
        sandbox: parse_opt("messages", &id, "sandbox", optional(7)?.as_deref())?,
        created_at: row.try_get(8)?,
        claimable_at: row.try_get(9)?,
        attempts: u32::try_from(row.try_get::<i64, _>(10)?).map_err(|_| bad("attempts"))?,
        outcome: outcome
            .map(|text| MessageOutcome::parse(&text).ok_or_else(|| bad("outcome")))
            .transpose()?,
        reason: optional(12)?,
        merged_into: parse_opt("messages", &id, "merged_into", optional(13)?.as_deref())?,
        words_of: optional(14)?
            .map(|told| serde_json::from_str(&told).map_err(|_| bad("words_of")))
            .transpose()?,
    })
}

/// What the queue has to know of a lane: its next message, claimable or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Whose lane.
    pub agent: AgentId,
    /// Of which profile.
    pub profile: String,
    /// Who wrote the message, on which platform.
    pub user: String,
    /// Not before this time, unix ms.
    pub claimable_at: i64,
}

const WAITING: &str = "SELECT m.agent, a.profile, m.author_id, t.key, m.claimable_at
     FROM messages m JOIN agents a ON a.id = m.agent JOIN threads t ON t.id = m.thread
     WHERE m.outcome IS NULL AND m.id =
       (SELECT n.id FROM messages n WHERE n.agent = m.agent AND n.outcome IS NULL
        ORDER BY n.seq, n.id LIMIT 1)";

fn waiting(row: &AnyRow) -> Result<Waiting, DbError> {
    let (agent, key): (String, String) = (row.try_get(0)?, row.try_get(3)?);
    let author: String = row.try_get(2)?;
    let thread: ThreadKey = parse("threads", &agent, "key", &key)?;
    Ok(Waiting {
        agent: parse("messages", &agent, "agent", &agent)?,
        profile: row.try_get(1)?,
        user: format!("{}/{author}", thread.platform),
        claimable_at: row.try_get(4)?,
    })
}

/// A thread with its agent, and the next place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lane {
    pub(super) thread: ThreadId,
    pub(super) agent: AgentId,
    seq: i64,
}

impl Lane {
    /// Takes the next place, where a living agent has the thread. The thread's row is taken first:
    /// commit order becomes lane order.
    pub(super) async fn of(tx: &mut Tx, thread: &ThreadKey) -> Result<Option<Lane>, DbError> {
        let row = query(
            "UPDATE threads SET next_seq = next_seq + 1 WHERE key = $1
             AND EXISTS (SELECT 1 FROM agents a WHERE a.id = threads.agent AND a.removed_at IS NULL)
             RETURNING id, agent, next_seq",
        )
        .bind(thread.to_string())
        .fetch_optional(&mut **tx)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let (id, agent): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        Ok(Some(Lane {
            thread: parse("threads", &id, "id", &id)?,
            agent: parse("threads", &id, "agent", &agent)?,
            seq: row.try_get(2)?,
        }))
    }
}

/// A message in its lane, which may start after this time.
pub(super) async fn insert_message(
    tx: &mut Tx,
    lane: &Lane,
    id: MessageId,
    (author, words_of): (&Author, Option<&Author>),
    text: &str,
    after: Duration,
) -> Result<(), DbError> {
    let words_of = words_of.map(|author| serde_json::json!(author).to_string());
    query(
        "INSERT INTO messages (id, agent, thread, seq, author_id, author_name, text, created_at,
         claimable_at, words_of) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    )
    .bind(id.to_string())
    .bind(lane.agent.to_string())
    .bind(lane.thread.to_string())
    .bind(lane.seq)
    .bind(&author.id)
    .bind(&author.name)
    .bind(text)
    .bind(tx.now())
    .bind(tx.now() + after.as_millis() as i64)
    .bind(words_of)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

impl Db {
    /// One message.
    pub async fn message(&self, id: MessageId) -> Result<Option<Message>, DbError> {
        let sql = format!("SELECT {COLUMNS} FROM messages m WHERE m.id = $1");
        let row = query(sqlx::AssertSqlSafe(sql))
            .bind(id.to_string())
            .fetch_optional(self.reader())
            .await?;
        row.as_ref().map(message).transpose()
    }

    /// The next message of an agent's lane, claimable or not.
    pub async fn next_message(&self, agent: AgentId) -> Result<Option<Message>, DbError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM messages m WHERE m.agent = $1 AND m.outcome IS NULL
             ORDER BY m.seq, m.id LIMIT 1"
        );
        let row = query(sqlx::AssertSqlSafe(sql))
            .bind(agent.to_string())
            .fetch_optional(self.reader())
            .await?;
        row.as_ref().map(message).transpose()
    }

    /// The lanes of agents without an open tick, the longest waiting first.
    pub async fn lanes_to_run(&self) -> Result<Vec<Waiting>, DbError> {
        let rest = "AND NOT EXISTS
               (SELECT 1 FROM ticks o WHERE o.agent = m.agent AND o.outcome IS NULL)
             ORDER BY m.created_at, m.id";
        let sql = format!("{WAITING} {rest}");
        let rows = query(sqlx::AssertSqlSafe(sql))
            .fetch_all(self.reader())
            .await?;
        // One that cannot be read keeps no other.
        let readable = rows.iter().filter_map(|row| {
            let waiting = waiting(row);
            waiting
                .inspect_err(|error| tracing::error!(%error, "a lane that waits"))
                .ok()
        });
        Ok(readable.collect())
    }

    /// One lane; none if nothing waits in it.
    pub async fn lane_to_run(&self, agent: AgentId) -> Result<Option<Waiting>, DbError> {
        let sql = format!("{WAITING} AND m.agent = $1");
        let row = query(sqlx::AssertSqlSafe(sql))
            .bind(agent.to_string())
            .fetch_optional(self.reader())
            .await?;
        row.as_ref().map(waiting).transpose()
    }

    /// Parks the next message of a lane with a notice, where no tick is open for it.
    pub async fn park_next(&self, agent: AgentId, reason: &str) -> Result<(), DbError> {
        let Some(next) = self.next_message(agent).await? else {
            return Ok(());
        };
        self.settle_untouched(&next, MessageOutcome::Parked, reason)
            .await?;
        Ok(())
    }

    /// Open messages of the same agent before this one.
    pub async fn ahead_of(&self, of: &Message) -> Result<i64, DbError> {
        let row = query(
            "SELECT count(*) FROM messages WHERE agent = $1 AND outcome IS NULL AND seq < $2",
        )
        .bind(of.agent.to_string())
        .bind(of.seq)
        .fetch_one(self.reader())
        .await?;
        Ok(row.try_get(0)?)
    }

    /// Messages whose ids end with these characters: parked ones, and those whose reply is.
    pub async fn parked_ending(&self, suffix: &str) -> Result<Vec<MessageId>, DbError> {
        let rows = query(
            "SELECT id FROM messages WHERE REPLACE(id, '-', '') LIKE $1 AND id IN
               (SELECT id FROM messages WHERE outcome = 'parked'
                UNION SELECT message FROM deliveries WHERE state = 'parked') LIMIT 2",
        )
        .bind(format!("%{suffix}"))
        .fetch_all(self.reader())
        .await?;
        ids("messages", &rows)
    }

    /// Opens a parked message again with fresh attempts. False if it is not parked any more.
    pub async fn unpark(&self, id: MessageId) -> Result<bool, DbError> {
        let done = query(
            "UPDATE messages SET outcome = NULL, reason = NULL, settled_at = NULL, attempts = 0,
             wait_noticed = 0, claimable_at = $2 WHERE id = $1 AND outcome = 'parked'
             AND EXISTS (SELECT 1 FROM agents a WHERE a.id = messages.agent AND a.removed_at IS NULL)",
        )
        .bind(id.to_string())
        .bind(self.now())
        .execute(self.writer())
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Opens a parked message again, to wait for its files. False if it is not parked any more.
    pub async fn unpark_to_wait(&self, agent: AgentId, id: MessageId) -> Result<bool, DbError> {
        let done = query(
            "UPDATE messages SET outcome = NULL, reason = NULL, settled_at = NULL, attempts = 0,
             wait_noticed = $4, claimable_at = $3 WHERE id = $1 AND agent = $2 AND outcome = 'parked'
             AND EXISTS (SELECT 1 FROM agents a WHERE a.id = $2 AND a.removed_at IS NULL)",
        )
        .bind(id.to_string())
        .bind(agent.to_string())
        .bind(self.now())
        .bind(PATIENT)
        .execute(self.writer())
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Whether a person said that this one waits for its files.
    pub async fn is_patient(&self, id: MessageId) -> Result<bool, DbError> {
        let row = query("SELECT count(*) FROM messages WHERE id = $1 AND wait_noticed = $2")
            .bind(id.to_string())
            .bind(PATIENT)
            .fetch_one(self.reader())
            .await?;
        Ok(row.try_get::<i64, _>(0)? > 0)
    }

    /// Withdraws what waits in a lane (`stop all`), each with a notice.
    pub async fn withdraw_waiting(
        &self,
        agent: AgentId,
        notice: &str,
    ) -> Result<Vec<MessageId>, DbError> {
        let now = self.now();
        let mut tx = self.begin().await?;
        let rows = query(
            "UPDATE messages SET outcome = 'withdrawn', reason = $2, settled_at = $3
             WHERE agent = $1 AND outcome IS NULL AND NOT EXISTS
               (SELECT 1 FROM ticks t WHERE t.message = messages.id AND t.outcome IS NULL)
             RETURNING id, thread",
        )
        .bind(agent.to_string())
        .bind(notice)
        .bind(now)
        .fetch_all(&mut *tx)
        .await?;
        let mut withdrawn = Vec::new();
        for row in &rows {
            let (id, thread): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            let message: MessageId = parse("messages", &id, "id", &id)?;
            let thread = parse("messages", &id, "thread", &thread)?;
            owe(
                &mut tx,
                &NewDelivery::notice(thread, message, None, notice.to_owned()),
            )
            .await?;
            withdrawn.push(message);
        }
        tx.commit().await?;
        Ok(withdrawn)
    }

    /// Withdraws one message that waits, with a notice; false where it does not wait any more.
    pub async fn withdraw(&self, of: &Message, notice: &str) -> Result<bool, DbError> {
        self.settle_untouched(of, MessageOutcome::Withdrawn, notice)
            .await
    }

    /// Ends a message that no tick runs, with a notice; false where there was none to end.
    async fn settle_untouched(
        &self,
        of: &Message,
        outcome: MessageOutcome,
        notice: &str,
    ) -> Result<bool, DbError> {
        self.settle_with(of, outcome, notice, &[]).await
    }

    /// Parks a message, where no tick is open for it, with what a person can choose.
    pub async fn park_with(
        &self,
        of: &Message,
        notice: &str,
        choices: &[(Button, Order)],
    ) -> Result<bool, DbError> {
        self.settle_with(of, MessageOutcome::Parked, notice, choices)
            .await
    }

    async fn settle_with(
        &self,
        of: &Message,
        outcome: MessageOutcome,
        notice: &str,
        choices: &[(Button, Order)],
    ) -> Result<bool, DbError> {
        let mut tx = self.begin().await?;
        let done = query(
            "UPDATE messages SET outcome = $4, reason = $2, settled_at = $3
             WHERE id = $1 AND outcome IS NULL AND NOT EXISTS
               (SELECT 1 FROM ticks t WHERE t.message = messages.id AND t.outcome IS NULL)",
        )
        .bind(of.id.to_string())
        .bind(notice)
        .bind(self.now())
        .bind(outcome.as_str())
        .execute(&mut *tx)
        .await?
        .rows_affected();
        if done == 1 {
            release(&mut tx, of.id).await?;
            let notice = NewDelivery::notice(of.thread, of.id, None, notice.to_owned());
            owe(&mut tx, &notice).await?;
            add_buttons(&mut tx, &notice, choices).await?;
        }
        tx.commit().await?;
        Ok(done == 1)
    }

    /// Tells a thread once that its message waits for an engine or an image. Not an outcome.
    pub async fn notice_waiting(&self, of: &Message, notice: &str) -> Result<(), DbError> {
        let mut tx = self.begin().await?;
        let first = query(
            "UPDATE messages SET wait_noticed = 1 WHERE id = $1 AND wait_noticed = 0
             AND outcome IS NULL",
        )
        .bind(of.id.to_string())
        .execute(&mut *tx)
        .await?
        .rows_affected();
        if first == 1 {
            owe(
                &mut tx,
                &NewDelivery::waiting(of.thread, of.id, notice.to_owned()),
            )
            .await?;
        }
        tx.commit().await?;
        Ok(())
    }
}
