//! What people see of messages that have no answer yet.

use mayfly_domain::{DeliveryId, MessageId, ThreadKey};
use sqlx::{Row as _, any::AnyRow};

use super::{
    Db, DbError,
    deliveries::Whose,
    parse,
    parts::{Standing, keep_ours},
    query,
};
use crate::orders::grammar::Order;

/// A post that shows how far a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The platform's id; none while it is not known whether it stands.
    pub post: Option<String>,
    /// When it was first asked for, unix ms.
    pub asked_at: i64,
    /// What it says.
    pub shown: String,
    /// Since when, or when that was last tried.
    pub shown_at: i64,
}

/// A message of which something is or could be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// Which.
    pub message: MessageId,
    /// Where.
    pub thread: ThreadKey,
    /// When it was accepted, unix ms.
    pub created_at: i64,
    /// It has its outcome: nothing of its progress may stay.
    pub settled: bool,
    /// Where its tick is, while one runs.
    pub phase: Option<String>,
    /// Messages of its agent before it.
    pub ahead: i64,
    /// Its post, or the try at one.
    pub progress: Option<Progress>,
}

impl Watched {
    /// The identity of its post, for the platform.
    pub fn token(&self) -> String {
        format!("progress/{}", self.message)
    }

    /// The id of its stop button.
    pub fn stop_button(&self) -> String {
        format!("stop-{}", self.message)
    }
}

impl Db {
    /// Messages that wait or run in threads to which nothing is owed, and those whose progress
    /// still stands though they have their outcome.
    pub async fn watched(&self, whose: &Whose, most: i64) -> Result<Vec<Watched>, DbError> {
        let sql = format!(
            "SELECT m.id, t.key, m.created_at, m.outcome,
               (SELECT k.progress FROM ticks k WHERE k.message = m.id AND k.outcome IS NULL),
               (SELECT count(*) FROM messages o WHERE o.agent = m.agent AND o.outcome IS NULL
                  AND o.seq < m.seq),
               p.post, p.asked_at, p.shown, p.shown_at
             FROM messages m JOIN threads t ON t.id = m.thread
             LEFT JOIN progress p ON p.message = m.id
             WHERE m.id IN (SELECT id FROM messages WHERE outcome IS NULL
                 UNION SELECT message FROM progress)
             AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.thread = m.thread
                 AND d.state = 'owed')
             AND {} ORDER BY m.created_at LIMIT $1",
            whose.condition(2)
        );
        let query = query(sqlx::AssertSqlSafe(sql)).bind(most);
        let names = whose.names().iter();
        let query = names.fold(query, |query, name| query.bind(format!("{name}/")));
        let rows = query.fetch_all(self.reader()).await?;
        rows.iter().map(watched).collect()
    }

    /// Its post is about to be asked for.
    pub async fn progress_asked(&self, of: &Watched, shown: &str) -> Result<(), DbError> {
        let now = self.now();
        let mut tx = self.begin().await?;
        query(
            "INSERT INTO progress (message, asked_at, shown, shown_at) VALUES ($1, $2, $3, $2)
             ON CONFLICT (message) DO UPDATE SET shown = excluded.shown, shown_at = excluded.shown_at",
        )
        .bind(of.message.to_string())
        .bind(now)
        .bind(shown)
        .execute(&mut *tx)
        .await?;
        let message = of.message.to_string();
        let stop = Order::Stop {
            what: None,
            of: Some(message.clone()),
        };
        let stop = (stop, "Stop");
        query(
            "INSERT INTO buttons (id, thread, action, question, created_at)
             SELECT $1, m.thread, $2, $1, $3 FROM messages m WHERE m.id = $4
             ON CONFLICT (id) DO NOTHING",
        )
        .bind(of.stop_button())
        .bind(serde_json::to_string(&stop).expect("commands are plain"))
        .bind(now)
        .bind(message)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Its post stands.
    pub async fn progress_stands(&self, of: &Watched, post: &str) -> Result<(), DbError> {
        let mut tx = self.begin().await?;
        query("UPDATE progress SET post = $2 WHERE message = $1")
            .bind(of.message.to_string())
            .bind(post)
            .execute(&mut *tx)
            .await?;
        keep_ours(&mut tx, &of.thread, post).await?;
        tx.commit().await?;
        Ok(())
    }

    /// It says something else, or should; `unsure` if nobody knows whether and when.
    pub async fn progress_edited(
        &self,
        of: &Watched,
        shown: &str,
        unsure: bool,
    ) -> Result<(), DbError> {
        query(
            "UPDATE progress SET shown = $2, shown_at = $3,
               unsure_at = CASE WHEN $4 = 1 THEN $3 ELSE unsure_at END WHERE message = $1",
        )
        .bind(of.message.to_string())
        .bind(shown)
        .bind(self.now())
        .bind(i64::from(unsure))
        .execute(self.writer())
        .await?;
        Ok(())
    }

    /// Nothing of it stands any more.
    pub async fn progress_gone(&self, of: &Watched) -> Result<(), DbError> {
        query("DELETE FROM progress WHERE message = $1")
            .bind(of.message.to_string())
            .execute(self.writer())
            .await?;
        Ok(())
    }

    /// The post that a message's outcome may take over: one that was made after this time, so that
    /// people were told of it lately.
    pub async fn standing(
        &self,
        delivery: DeliveryId,
        after: i64,
    ) -> Result<Option<Standing>, DbError> {
        let row = query(
            "SELECT p.post, p.unsure_at FROM progress p JOIN deliveries d ON d.message = p.message
             WHERE d.id = $1 AND d.kind IN ('answer', 'notice') AND p.post IS NOT NULL
             AND p.asked_at > $2",
        )
        .bind(delivery.to_string())
        .bind(after)
        .fetch_optional(self.reader())
        .await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(Standing {
            post: row.try_get(0)?,
            unsure_at: row.try_get(1)?,
        }))
    }
}

fn watched(row: &AnyRow) -> Result<Watched, DbError> {
    let id: String = row.try_get(0)?;
    let outcome: Option<String> = row.try_get(3)?;
    let asked_at: Option<i64> = row.try_get(7)?;
    let progress = match asked_at {
        Some(asked_at) => Some(Progress {
            post: row.try_get(6)?,
            asked_at,
            shown: row.try_get(8)?,
            shown_at: row.try_get(9)?,
        }),
        None => None,
    };
    Ok(Watched {
        message: parse("messages", &id, "id", &id)?,
        thread: parse("threads", &id, "key", &row.try_get::<String, _>(1)?)?,
        created_at: row.try_get(2)?,
        settled: outcome.is_some(),
        phase: row.try_get(4)?,
        ahead: row.try_get(5)?,
        progress,
    })
}
