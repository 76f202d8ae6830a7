//! What an event leaves: posts, the messages they add up to, the files those wait for.

use std::time::Duration;

use mayfly_domain::{MessageId, PostId, Posted, RemoteFile, ThreadKey};
use sqlx::{AnyConnection, Row as _};

use super::super::{
    DbError, Tx,
    agents::{Agent, insert_agent},
    deliveries::{NewDelivery, owe},
    messages::Lane,
    query,
};

const MINUTE: i64 = 60 * 1000;

pub(super) async fn keep(
    tx: &mut Tx,
    whole: &Posted,
    message: Option<MessageId>,
) -> Result<(), DbError> {
    let told = serde_json::to_string(whole).expect("posts are plain");
    query(
        "INSERT INTO posts (channel, id, thread, told, album, message, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (channel, id) DO UPDATE
         SET told = excluded.told, message = COALESCE(excluded.message, posts.message)",
    )
    .bind(whole.id.channel.to_string())
    .bind(&whole.id.id)
    .bind(whole.thread.to_string())
    .bind(told)
    .bind(&whole.group)
    .bind(message.map(|id| id.to_string()))
    .bind(tx.now())
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// A post that is gone stays gone, whatever is told of it later.
pub(super) async fn bury(tx: &mut Tx, id: &PostId) -> Result<(), DbError> {
    query(
        "INSERT INTO posts (channel, id, thread, deleted, created_at) VALUES ($1, $2, '', 1, $3)
         ON CONFLICT (channel, id) DO UPDATE SET deleted = 1",
    )
    .bind(id.channel.to_string())
    .bind(&id.id)
    .bind(tx.now())
    .execute(&mut **tx)
    .await?;
    Ok(())
}

pub(super) async fn open(tx: &mut Tx, thread: &ThreadKey, agent: &Agent) -> Result<Lane, DbError> {
    // The agent that had it was removed.
    query(
        "UPDATE threads SET key = 'local/removed/cli/' || agent WHERE key = $1
         AND EXISTS (SELECT 1 FROM agents a WHERE a.id = threads.agent AND a.removed_at IS NOT NULL)",
    )
    .bind(thread.to_string())
    .execute(&mut **tx)
    .await?;
    insert_agent(tx, agent, thread).await?;
    let lane = Lane::of(tx, thread).await?;
    lane.ok_or_else(|| DbError::Row {
        table: "threads",
        id: thread.to_string(),
        column: "agent",
    })
}

pub(super) async fn want_files(
    tx: &mut Tx,
    message: MessageId,
    files: &[RemoteFile],
) -> Result<(), DbError> {
    for file in files {
        let told = serde_json::to_string(file).expect("files are plain");
        query(
            "INSERT INTO remote_files (message, position, file) VALUES ($1,
             (SELECT COALESCE(MAX(position) + 1, 0) FROM remote_files WHERE message = $1), $2)",
        )
        .bind(message.to_string())
        .bind(told)
        .execute(&mut **tx)
        .await?;
    }
    Ok(())
}

pub(super) async fn forget_files(
    tx: &mut Tx,
    message: MessageId,
    files: &[RemoteFile],
) -> Result<(), DbError> {
    for file in files {
        let told = serde_json::to_string(file).expect("files are plain");
        query("DELETE FROM remote_files WHERE message = $1 AND file = $2")
            .bind(message.to_string())
            .bind(told)
            .execute(&mut **tx)
            .await?;
    }
    Ok(())
}

pub(super) async fn grow(
    tx: &mut Tx,
    message: MessageId,
    text: Option<&str>,
    after: Duration,
) -> Result<(), DbError> {
    let text = text.unwrap_or_default();
    query(
        "UPDATE messages SET claimable_at = $3, text = CASE WHEN $2 = '' THEN text
           WHEN text = '' THEN $2 ELSE text || $4 || $2 END WHERE id = $1",
    )
    .bind(message.to_string())
    .bind(text)
    .bind(tx.now() + after.as_millis() as i64)
    .bind("\n")
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// A tick that has not started its program begins anew, since its message has more now.
pub(super) async fn restart(tx: &mut AnyConnection, message: MessageId) -> Result<(), DbError> {
    query(
        "UPDATE ticks SET grown = 1 WHERE outcome IS NULL
         AND message = (SELECT COALESCE(merged_into, id) FROM messages WHERE id = $1)",
    )
    .bind(message.to_string())
    .execute(tx)
    .await?;
    Ok(())
}

/// A message says what its posts say.
pub(super) async fn retell(tx: &mut AnyConnection, message: MessageId) -> Result<(), DbError> {
    let rows = query(
        "SELECT told FROM posts WHERE message = $1 AND told IS NOT NULL ORDER BY created_at, id",
    )
    .bind(message.to_string())
    .fetch_all(&mut *tx)
    .await?;
    let mut texts = Vec::new();
    for row in rows {
        let told: String = row.try_get(0)?;
        if let Ok(told) = serde_json::from_str::<Posted>(&told)
            && !told.text.is_empty()
        {
            texts.push(told.text);
        }
    }
    query("UPDATE messages SET text = $2 WHERE id = $1")
        .bind(message.to_string())
        .bind(texts.join("\n"))
        .execute(tx)
        .await?;
    Ok(())
}

/// Its thread is told once for all that came late together.
pub(super) async fn park_late(
    tx: &mut Tx,
    lane: &Lane,
    message: MessageId,
    whole: &Posted,
) -> Result<(), DbError> {
    let now = tx.now();
    let hours = (now - whole.at) / (60 * MINUTE);
    let reason = format!("it came {hours} h after it was written");
    query("UPDATE messages SET outcome = 'parked', reason = $2, settled_at = $3 WHERE id = $1")
        .bind(message.to_string())
        .bind(&reason)
        .bind(now)
        .execute(&mut **tx)
        .await?;
    let told: i64 = query(
        "SELECT count(*) FROM messages m JOIN deliveries d ON d.message = m.id
         WHERE m.thread = $1 AND m.outcome = 'parked' AND d.kind = 'notice' AND d.created_at > $2",
    )
    .bind(lane.thread.to_string())
    .bind(now - 60 * MINUTE)
    .fetch_one(&mut **tx)
    .await?
    .try_get(0)?;
    if told == 0 {
        let text = format!(
            "Not run: messages of this thread came late ({hours} h after they were written). Say it again if it still matters."
        );
        owe(tx, &NewDelivery::notice(lane.thread, message, None, text)).await?;
    }
    Ok(())
}
