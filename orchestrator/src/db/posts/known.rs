//! What is known of a post, its album, its author and its conversation when an event comes.

use mayfly_domain::{Channel, MessageId, PostId, Posted, ThreadKey};
use sqlx::{AnyConnection, Row as _};

use super::super::{DbError, Tx, parse, parse_opt, query};
use crate::{
    inbox::decide::{Part, Progress},
    tick::phase::Phase,
};

/// What earlier events told of a post of somebody else's, and the message it is part of.
pub(super) async fn earlier(
    tx: &mut Tx,
    id: &PostId,
) -> Result<Option<(Posted, Option<Part>)>, DbError> {
    let row = query("SELECT told, message FROM posts WHERE channel = $1 AND id = $2")
        .bind(id.channel.to_string())
        .bind(&id.id)
        .fetch_optional(&mut **tx)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let told: Option<String> = row.try_get(0)?;
    let Some(told) = told.and_then(|told| serde_json::from_str(&told).ok()) else {
        return Ok(None);
    };
    let message: Option<String> = row.try_get(1)?;
    let message = parse_opt("posts", &id.id, "message", message.as_deref())?;
    let part = match message {
        Some(message) => Some(progress(tx, message).await?),
        None => None,
    };
    Ok(Some((told, part)))
}

pub(super) async fn album_of(
    tx: &mut Tx,
    id: &PostId,
    album: &str,
) -> Result<Option<Part>, DbError> {
    let row = query(
        "SELECT message FROM posts WHERE channel = $1 AND album = $2 AND message IS NOT NULL LIMIT 1",
    )
    .bind(id.channel.to_string())
    .bind(album)
    .fetch_optional(&mut **tx)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let message: String = row.try_get(0)?;
    let message = parse("posts", album, "message", &message)?;
    Ok(Some(progress(tx, message).await?))
}

async fn progress(tx: &mut Tx, message: MessageId) -> Result<Part, DbError> {
    // A merged message is as far as the one that has its tick.
    let row = query(
        "SELECT f.outcome,
           CASE WHEN EXISTS (SELECT 1 FROM ticks t WHERE t.message = f.id) THEN 1 ELSE 0 END,
           (SELECT max(t.phase) FROM ticks t WHERE t.message = f.id AND t.outcome IS NULL)
         FROM messages m JOIN messages f ON f.id = COALESCE(m.merged_into, m.id) WHERE m.id = $1",
    )
    .bind(message.to_string())
    .fetch_optional(&mut **tx)
    .await?;
    let Some(row) = row else {
        let progress = Progress::Settled;
        return Ok(Part { message, progress });
    };
    let outcome: Option<String> = row.try_get(0)?;
    let phase: Option<String> = row.try_get(2)?;
    let early = [Phase::Spawn, Phase::Scope].map(Phase::as_str);
    let opening = phase.is_none_or(|phase| early.contains(&phase.as_str()));
    let progress = match (outcome, row.try_get::<i64, _>(1)?) {
        (Some(_), _) => Progress::Settled,
        (None, 0) => Progress::Waits,
        (None, _) if opening => Progress::Opening,
        (None, _) => Progress::Begun,
    };
    Ok(Part { message, progress })
}

pub(super) async fn thread_of_post(
    tx: &mut Tx,
    channel: &Channel,
    post: &str,
) -> Result<Option<ThreadKey>, DbError> {
    // What others said to each other is no conversation of ours.
    let sql = "SELECT thread FROM posts WHERE channel = $1 AND id = $2
        AND (told IS NULL OR message IS NOT NULL) AND thread != ''";
    let row = query(sql)
        .bind(channel.to_string())
        .bind(post)
        .fetch_optional(&mut **tx)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let key: String = row.try_get(0)?;
    Ok(Some(parse("posts", post, "thread", &key)?))
}

/// Messages of programs since a person last wrote, in a thread or in any thread of its channel,
/// whichever are more: a program that opens a thread with each of its posts is bound as well.
pub(super) async fn bot_turns(tx: &mut Tx, thread: &ThreadKey, most: u32) -> Result<u32, DbError> {
    let here = turns_in(tx, IN_THREAD, &thread.to_string(), most).await?;
    let channel = format!("{}/", thread.channel());
    Ok(here.max(turns_in(tx, IN_CHANNEL, &channel, most).await?))
}

/// Newest messages first, as an index has them: no more are read than are asked for.
const IN_THREAD: &str = "SELECT told FROM posts WHERE thread = $1 AND told IS NOT NULL
    AND message IS NOT NULL ORDER BY created_at DESC, id DESC LIMIT $2";
const IN_CHANNEL: &str = "SELECT told FROM posts WHERE place = $1 AND told IS NOT NULL
    AND message IS NOT NULL ORDER BY created_at DESC, id DESC LIMIT $2";

async fn turns_in(tx: &mut Tx, said: &'static str, key: &str, most: u32) -> Result<u32, DbError> {
    let rows = query(said)
        .bind(key)
        .bind(i64::from(most) + 1)
        .fetch_all(&mut **tx)
        .await?;
    let mut turns = 0;
    for row in rows {
        let told: String = row.try_get(0)?;
        match serde_json::from_str::<Posted>(&told) {
            Ok(told) if told.by_bot => turns += 1,
            _ => break,
        }
    }
    Ok(turns)
}

pub(super) async fn is_deleted(tx: &mut AnyConnection, id: &PostId) -> Result<bool, DbError> {
    let row = query("SELECT deleted FROM posts WHERE channel = $1 AND id = $2")
        .bind(id.channel.to_string())
        .bind(&id.id)
        .fetch_optional(tx)
        .await?;
    Ok(row.is_some_and(|row| row.try_get::<i64, _>(0).unwrap_or_default() > 0))
}

#[cfg(test)]
mod tests {
    use sqlx::Row as _;

    use super::{IN_CHANNEL, IN_THREAD, query};
    use crate::db::{Db, Place};

    #[tokio::test]
    async fn programs_turns_are_counted_in_an_index_and_not_sorted() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(&Place::embedded(dir.path())).await.unwrap();
        for (said, index) in [
            (IN_THREAD, "posts_said (thread=?)"),
            (IN_CHANNEL, "posts_said_in (place=?)"),
        ] {
            let asked = format!("EXPLAIN QUERY PLAN {said}");
            let steps = query(sqlx::AssertSqlSafe(asked))
                .bind("chat/w/c/")
                .bind(6_i64)
                .fetch_all(db.reader())
                .await
                .unwrap();
            let steps: Vec<String> = steps.iter().map(|step| step.get("detail")).collect();
            assert_eq!(steps, [format!("SEARCH posts USING INDEX {index}")]);
        }
        db.close().await;
    }
}
