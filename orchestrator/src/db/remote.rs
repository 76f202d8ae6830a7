//! Files on platforms' servers that messages wait for.

use mayfly_domain::{AgentId, BlobHash, MessageId, RemoteFile, ThreadKey, file_names};
use sqlx::{AnyConnection, Row as _, any::AnyRow};

use super::{
    Db, DbError, Tx,
    deliveries::{NewDelivery, owe},
    parse, query,
};
use crate::clock;

/// A file that is to be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Whose.
    pub message: MessageId,
    /// Its place among the message's files.
    pub position: i64,
    /// Where the message came from.
    pub thread: ThreadKey,
    /// The file.
    pub file: RemoteFile,
    /// Tries so far.
    pub attempts: u32,
    /// Files that the message has already.
    pub before: i64,
    /// Their bytes.
    pub bytes_before: u64,
}

impl Db {
    /// Files that may be tried now, oldest messages first, and of each message so many.
    pub async fn wanted_files(&self, most: i64, of_one: i64) -> Result<Vec<Wanted>, DbError> {
        let now = self.now();
        let rows = query(
            "SELECT r.message, r.position, t.key, r.file, r.attempts,
               (SELECT count(*) FROM message_files f WHERE f.message = r.message),
               (SELECT CAST(COALESCE(SUM(f.size), 0) AS BIGINT) FROM message_files f
                 WHERE f.message = r.message)
             FROM (SELECT w.*, row_number() OVER (PARTITION BY w.message ORDER BY w.position) AS place
                     FROM remote_files w
                    WHERE w.state = 'wanted' AND (w.next_at <= $1 OR w.next_at > $2)) r
             JOIN messages m ON m.id = r.message JOIN threads t ON t.id = m.thread
             WHERE r.place <= $4 AND (m.outcome IS NULL OR m.outcome IN ('parked', 'merged'))
             ORDER BY r.message, r.position LIMIT $3",
        )
        .bind(now)
        .bind(now + clock::LONGEST_PAUSE)
        .bind(most)
        .bind(of_one)
        .fetch_all(self.reader())
        .await?;
        rows.iter().map(wanted).collect()
    }

    /// It is in the blob store. The agent whose message has all its files now.
    pub async fn file_is_here(
        &self,
        wanted: &Wanted,
        blob: &BlobHash,
        size: u64,
    ) -> Result<Option<AgentId>, DbError> {
        let mut tx = self.begin().await?;
        let rows = query("SELECT name FROM message_files WHERE message = $1 ORDER BY position")
            .bind(wanted.message.to_string())
            .fetch_all(&mut *tx)
            .await?;
        let mut names = Vec::new();
        for row in &rows {
            names.push(row.try_get::<String, _>(0)?);
        }
        names.push(wanted.file.name.clone());
        let name = file_names(names.iter().map(String::as_str)).pop();
        query(
            "INSERT INTO message_files (message, position, name, blob, size)
             VALUES ($1, (SELECT COALESCE(MAX(position) + 1, 0) FROM message_files WHERE message = $1),
               $2, $3, $4)",
        )
        .bind(wanted.message.to_string())
        .bind(name)
        .bind(blob.as_str())
        .bind(size as i64)
        .execute(&mut *tx)
        .await?;
        let agent = settle(&mut tx, wanted, "here", None).await?;
        crate::faults::point("fetch.inside");
        tx.commit().await?;
        Ok(agent)
    }

    /// It is tried again at this time.
    pub async fn file_waits(
        &self,
        wanted: &Wanted,
        why: &str,
        next_at: i64,
    ) -> Result<Option<AgentId>, DbError> {
        query(
            "UPDATE remote_files SET attempts = attempts + 1, reason = $3, next_at = $4
             WHERE message = $1 AND position = $2",
        )
        .bind(wanted.message.to_string())
        .bind(wanted.position)
        .bind(why)
        .bind(next_at)
        .execute(self.writer())
        .await?;
        Ok(None)
    }

    /// The same, and this was no try.
    pub async fn file_has_no_room(
        &self,
        wanted: &Wanted,
        why: &str,
        next_at: i64,
    ) -> Result<Option<AgentId>, DbError> {
        query(
            "UPDATE remote_files SET reason = $3, next_at = $4 WHERE message = $1 AND position = $2",
        )
        .bind(wanted.message.to_string())
        .bind(wanted.position)
        .bind(why)
        .bind(next_at)
        .execute(self.writer())
        .await?;
        Ok(None)
    }

    /// It cannot be had, and its thread is told.
    pub async fn file_is_missing(
        &self,
        wanted: &Wanted,
        why: &str,
        told: &str,
    ) -> Result<Option<AgentId>, DbError> {
        let mut tx = self.begin().await?;
        let id = wanted.message.to_string();
        let row = query("SELECT thread FROM messages WHERE id = $1")
            .bind(&id)
            .fetch_one(&mut *tx)
            .await?;
        let thread = parse("messages", &id, "thread", &row.try_get::<String, _>(0)?)?;
        let remark = NewDelivery::remark(thread, wanted.message, told.to_owned());
        owe(&mut tx, &remark).await?;
        let agent = settle(&mut tx, wanted, "failed", Some(why)).await?;
        tx.commit().await?;
        Ok(agent)
    }

    /// Whether a message waits for files.
    pub async fn waits_for_files(&self, message: MessageId) -> Result<bool, DbError> {
        let row = query(WAITS)
            .bind(message.to_string())
            .fetch_one(self.reader())
            .await?;
        Ok(row.try_get::<i64, _>(0)? > 0)
    }
}

/// The same inside of a claim.
pub(super) async fn waits_for_files(
    connection: &mut AnyConnection,
    message: MessageId,
) -> Result<bool, DbError> {
    let row = query(WAITS)
        .bind(message.to_string())
        .fetch_one(connection)
        .await?;
    Ok(row.try_get::<i64, _>(0)? > 0)
}

/// Also files of what was merged into it.
const WAITS: &str = "SELECT count(*) FROM remote_files WHERE state = 'wanted' AND (message = $1
    OR message IN (SELECT id FROM messages WHERE merged_into = $1))";

async fn settle(
    tx: &mut Tx,
    wanted: &Wanted,
    state: &str,
    why: Option<&str>,
) -> Result<Option<AgentId>, DbError> {
    query("UPDATE remote_files SET state = $3, reason = $4 WHERE message = $1 AND position = $2")
        .bind(wanted.message.to_string())
        .bind(wanted.position)
        .bind(state)
        .bind(why)
        .execute(&mut **tx)
        .await?;
    if waits_for_files(tx, wanted.message).await? {
        return Ok(None);
    }
    let id = wanted.message.to_string();
    let row = query("SELECT agent FROM messages WHERE id = $1")
        .bind(&id)
        .fetch_one(&mut **tx)
        .await?;
    let agent: String = row.try_get(0)?;
    Ok(Some(parse("messages", &id, "agent", &agent)?))
}

fn wanted(row: &AnyRow) -> Result<Wanted, DbError> {
    let (id, key, file): (String, String, String) =
        (row.try_get(0)?, row.try_get(2)?, row.try_get(3)?);
    let file = serde_json::from_str(&file).map_err(|_| DbError::Row {
        table: "remote_files",
        id: id.clone(),
        column: "file",
    })?;
    Ok(Wanted {
        message: parse("remote_files", &id, "message", &id)?,
        position: row.try_get(1)?,
        thread: parse("threads", &id, "key", &key)?,
        file,
        attempts: row.try_get::<i64, _>(4)?.max(0) as u32,
        before: row.try_get(5)?,
        bytes_before: row.try_get::<i64, _>(6)?.max(0) as u64,
    })
}
