//! Events of platforms: stored raw in the order they came, applied one after the other.

use mayfly_domain::{Event, Incoming, Mark, Recent};
use sqlx::{AnyConnection, Row as _};

use super::{Db, DbError, Tx, parse, query};

/// An event that is to be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewArrival {
    /// Its place among all.
    pub seq: i64,
    /// What it says; none where it was not understood.
    pub event: Option<Event>,
}

impl Db {
    /// Stores events and the adapter's mark in one transaction. Events that came before are the
    /// first ones again. Returns how many are new.
    pub async fn take_events(
        &self,
        events: &[Incoming],
        mark: Option<&Mark>,
    ) -> Result<u64, DbError> {
        let now = self.now();
        let mut tx = self.begin().await?;
        let mut new = 0;
        for incoming in events {
            new += insert(&mut tx, incoming, now).await?;
        }
        if let Some(mark) = mark {
            query(
                "INSERT INTO marks (platform, name, value, at) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (platform, name) DO UPDATE SET value = excluded.value, at = excluded.at",
            )
            .bind(&mark.platform)
            .bind(&mark.name)
            .bind(&mark.value)
            .bind(now)
            .execute(&mut *tx)
            .await?;
        }
        crate::faults::point("take.inside");
        tx.commit().await?;
        Ok(new)
    }

    /// The latest mark of this name, and when it was made.
    pub async fn mark(&self, platform: &str, name: &str) -> Result<Option<(String, i64)>, DbError> {
        let row = query("SELECT value, at FROM marks WHERE platform = $1 AND name = $2")
            .bind(platform)
            .bind(name)
            .fetch_optional(self.reader())
            .await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some((row.try_get(0)?, row.try_get(1)?)))
    }

    /// Conversations of a platform that have an agent, with the newest post that is known.
    pub async fn recent(&self, platform: &str, most: usize) -> Result<Vec<Recent>, DbError> {
        let rows = query(
            "SELECT t.key, p.id, p.created_at FROM threads t JOIN posts p ON p.thread = t.key
             AND p.id = (SELECT q.id FROM posts q WHERE q.thread = t.key
                 ORDER BY q.created_at DESC, q.id DESC LIMIT 1)
             JOIN agents a ON a.id = t.agent AND a.removed_at IS NULL
             WHERE t.key >= $1 || '/' AND t.key < $1 || '0'
             ORDER BY p.created_at DESC LIMIT $2",
        )
        .bind(platform)
        .bind(most as i64)
        .fetch_all(self.reader())
        .await?;
        rows.iter()
            .map(|row| {
                let key: String = row.try_get(0)?;
                Ok(Recent {
                    thread: parse("threads", &key, "key", &key)?,
                    newest: row.try_get(1)?,
                    at: row.try_get(2)?,
                })
            })
            .collect()
    }

    /// Forgets events that came before this time (unix ms) and are applied, posts of that time that
    /// are no part of a message, commands and buttons; so many rows of each. True if there are more.
    pub async fn forget_events(&self, before: i64, most: i64) -> Result<bool, DbError> {
        let mut tx = self.begin().await?;
        let mut more = false;
        for (table, key, old) in [
            (
                "arrivals",
                "thread, key",
                "received_at < $1 AND seq > 0 AND state != 'new'",
            ),
            (
                "posts",
                "channel, id",
                "created_at < $1 AND message IS NULL AND (told IS NOT NULL OR deleted = 1)",
            ),
            ("orders", "id", "created_at < $1 AND state = 'done'"),
            ("buttons", "id", "created_at < $1"),
        ] {
            let sql = format!(
                "DELETE FROM {table} WHERE ({key}) IN
                 (SELECT {key} FROM {table} WHERE {old} LIMIT $2)"
            );
            let gone = query(sqlx::AssertSqlSafe(sql))
                .bind(before)
                .bind(most)
                .execute(&mut *tx)
                .await?
                .rows_affected();
            more |= gone >= most.max(0) as u64;
        }
        tx.commit().await?;
        Ok(more)
    }

    /// It is kept, and starts nothing.
    pub async fn give_up_arrival(&self, seq: i64, state: &str) -> Result<(), DbError> {
        query("UPDATE arrivals SET state = $2 WHERE seq = $1 AND state = 'new'")
            .bind(seq)
            .bind(state)
            .execute(self.writer())
            .await?;
        Ok(())
    }

    /// Events after this place that are not applied yet, oldest first.
    pub async fn new_arrivals(&self, after: i64, most: i64) -> Result<Vec<NewArrival>, DbError> {
        let rows = query(
            "SELECT seq, event FROM arrivals WHERE state = 'new' AND seq > $1 ORDER BY seq LIMIT $2",
        )
        .bind(after)
        .bind(most)
        .fetch_all(self.reader())
        .await?;
        rows.iter()
            .map(|row| {
                let event: Option<String> = row.try_get(1)?;
                Ok(NewArrival {
                    seq: row.try_get(0)?,
                    event: event.and_then(|event| serde_json::from_str(&event).ok()),
                })
            })
            .collect()
    }
}

/// What came of an event, in the transaction that did it.
pub(super) async fn applied(
    tx: &mut AnyConnection,
    seq: i64,
    state: &str,
    message: Option<&str>,
) -> Result<(), DbError> {
    query("UPDATE arrivals SET state = $2, message = $3 WHERE seq = $1 AND state = 'new'")
        .bind(seq)
        .bind(state)
        .bind(message)
        .execute(tx)
        .await?;
    Ok(())
}

/// What an event said is not kept: this stands in its place, or nothing.
pub(super) async fn forget_words(
    tx: &mut AnyConnection,
    seq: i64,
    instead: Option<&Event>,
) -> Result<(), DbError> {
    let event = instead.map(|event| serde_json::to_string(event).expect("events are plain"));
    query("UPDATE arrivals SET raw = $2, event = $3 WHERE seq = $1")
        .bind(seq)
        .bind(Vec::new())
        .bind(event)
        .execute(tx)
        .await?;
    Ok(())
}

async fn insert(tx: &mut Tx, incoming: &Incoming, now: i64) -> Result<u64, DbError> {
    let (key, event, state) = match &incoming.event {
        Ok(event) => {
            let told = serde_json::to_string(event).expect("events are plain");
            let key = match event.key.is_empty() {
                true => format!("?{}", digest(&incoming.raw)),
                false => event.key.clone(),
            };
            (key, Some(told), "new")
        }
        Err(_) => (format!("?{}", digest(&incoming.raw)), None, "unknown"),
    };
    let seq: i64 =
        query("UPDATE counters SET value = value + 1 WHERE name = 'arrivals' RETURNING value")
            .fetch_one(&mut **tx)
            .await?
            .try_get(0)?;
    let stored = query(
        "INSERT INTO arrivals (thread, key, raw, received_at, event, seq, state)
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (thread, key) DO NOTHING",
    )
    .bind(&incoming.platform)
    .bind(key)
    .bind(&incoming.raw)
    .bind(now)
    .bind(event)
    .bind(seq)
    .bind(state)
    .execute(&mut **tx)
    .await?;
    Ok(stored.rows_affected())
}

/// What is not understood has no key of its own.
fn digest(raw: &[u8]) -> String {
    use sha2::Digest as _;
    hex::encode(sha2::Sha256::digest(raw))
}
