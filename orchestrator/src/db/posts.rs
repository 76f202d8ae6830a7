//! Posts of platforms and the messages they become part of: one event, one transaction.

use mayfly_domain::{
    AgentId, Channel, Event, Happened, MessageId, Place, PostId, Posted, Pressed, RemoteFile,
    ThreadKey,
};
use sqlx::{AnyConnection, Row as _};

use super::{
    Db, DbError, Tx,
    agents::{Agent, insert_agent},
    arrivals::applied,
    deliveries::{NewDelivery, owe},
    messages::{Lane, insert_message},
    orders::{self, Ask},
    parse, parse_opt,
};
use crate::{
    clock,
    inbox::{
        access::{Access, Verdict},
        decide::{self, Becomes, Edit, Known, Part, Progress, Why},
    },
    orders::grammar::Order,
};

const MINUTE: i64 = 60 * 1000;

/// What came of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// All that it means is written.
    Done {
        /// A lane that has something new, and when it may be looked at, from now.
        lane: Option<(AgentId, std::time::Duration)>,
        /// A post that became part of a message: its author may be shown that it was seen.
        seen: Option<PostId>,
    },
    /// It opens a conversation: nothing is written, to be called again with an agent of this profile.
    WantsAgent(String),
}

impl Applied {
    fn nothing() -> Self {
        Applied::Done {
            lane: None,
            seen: None,
        }
    }
}

impl Db {
    /// Applies an event. `fresh` is the agent of a conversation that it opens.
    pub async fn apply(
        &self,
        seq: i64,
        event: &Event,
        access: &Access,
        fresh: Option<&Agent>,
    ) -> Result<Applied, DbError> {
        let mut tx = self.begin().await?;
        let (done, state, message) = match &event.happened {
            Happened::Posted(posted) => post(&mut tx, posted, access, fresh).await?,
            Happened::Edited(posted) => edit(&mut tx, posted, access).await?,
            Happened::Deleted(id) => delete(&mut tx, id).await?,
            Happened::Moved { from, to } => {
                tracing::info!(%from, %to, "a chat has a new id");
                move_channel(&mut tx, from, to).await?;
                (Applied::nothing(), "moved".to_owned(), None)
            }
            Happened::Pressed(pressed) => press(&mut tx, pressed, access).await?,
            Happened::Ignored(why) => (Applied::nothing(), why.clone(), None),
        };
        if let Applied::Done { .. } = done {
            applied(&mut tx, seq, &state, message.as_deref()).await?;
            crate::faults::point("apply.inside");
            tx.commit().await?;
        }
        Ok(done)
    }
}

/// What happened, the word for it, and the message it is part of.
type Outcome = (Applied, String, Option<String>);

fn ignored(why: &str) -> Outcome {
    (Applied::nothing(), why.to_owned(), None)
}

fn part_of(message: MessageId, state: &str, done: Applied) -> Outcome {
    (done, state.to_owned(), Some(message.to_string()))
}

async fn post(
    tx: &mut Tx,
    event: &Posted,
    access: &Access,
    fresh: Option<&Agent>,
) -> Result<Outcome, DbError> {
    let mut event = event.clone();
    if let Some(answered) = &event.answers
        && let Some(thread) = thread_of_post(tx, &event.id.channel, answered).await?
    {
        event.thread = thread;
    }
    let lane = Lane::of(tx, &event.thread).await?;
    if is_deleted(tx, &event.id).await? {
        return Ok(ignored("deleted by its author"));
    }
    let earlier = earlier(tx, &event.id).await?;
    let group = match &event.group {
        Some(album) => album_of(tx, &event.id, album).await?,
        None => None,
    };
    let order = order_in(&event, lane.is_some());
    let channel = began_as(tx, &event.thread.channel()).await?;
    let known = Known {
        bound: lane.is_some(),
        verdict: access.judge(&event, &channel),
        bot_turns: (
            bot_turns(tx, &event.thread, access.max_bot_turns).await?,
            access.max_bot_turns,
        ),
        group,
        post: earlier.clone(),
        // Slack's commands have no time.
        late: event.at > 0
            && order.is_none()
            && clock::unix_ms() - event.at > i64::from(access.max_age_minutes) * MINUTE,
    };
    let whole = match &earlier {
        Some((told, _)) => decide::joined(told, &event),
        None => event.clone(),
    };
    let becomes = decide::posted(&known, &event);
    let message = match &becomes {
        Becomes::Nothing(why) => {
            let message = earlier.and_then(|(_, part)| part).map(|part| part.message);
            // What people say who are not served is not ours to keep.
            if !matches!(why, Why::Stranger | Why::ClosedChannel) {
                keep(tx, &whole, message).await?;
            }
            return Ok(ignored(why.as_str()));
        }
        Becomes::Joins { message, .. } => *message,
        Becomes::Message { .. } | Becomes::Parked | Becomes::FollowsUp { .. } => MessageId::new(),
    };
    let lane = match (lane, fresh) {
        (Some(lane), _) => lane,
        (None, Some(agent)) => open(tx, &whole.thread, agent).await?,
        (None, None) => {
            let profile = access.profile_of(&channel).to_owned();
            return Ok((Applied::WantsAgent(profile), String::new(), None));
        }
    };
    if let (Becomes::Message { .. }, Some(ask)) = (&becomes, order) {
        let id = orders::give(tx, &lane, &whole.author, &ask).await?;
        keep(tx, &whole, Some(id)).await?;
        return Ok(part_of(id, "command", Applied::nothing()));
    }
    let after = match becomes {
        Becomes::Message { after } => {
            insert_message(tx, &lane, message, &whole.author, &whole.text, after).await?;
            want_files(tx, message, &whole.files).await?;
            after
        }
        Becomes::Parked => {
            let after = std::time::Duration::ZERO;
            insert_message(tx, &lane, message, &whole.author, &whole.text, after).await?;
            park_late(tx, &lane, message, &whole).await?;
            keep(tx, &whole, Some(message)).await?;
            return Ok(part_of(message, "late", Applied::nothing()));
        }
        Becomes::FollowsUp { files } => {
            let after = std::time::Duration::ZERO;
            insert_message(tx, &lane, message, &whole.author, "", after).await?;
            want_files(tx, message, &files).await?;
            after
        }
        Becomes::Joins {
            files, text, after, ..
        } => {
            want_files(tx, message, &files).await?;
            grow(tx, message, text.as_deref(), after).await?;
            after
        }
        Becomes::Nothing(_) => unreachable!("returned above"),
    };
    keep(tx, &whole, Some(message)).await?;
    let done = Applied::Done {
        lane: Some((lane.agent, after)),
        seen: Some(whole.id.clone()),
    };
    Ok(part_of(message, "message", done))
}

async fn press(tx: &mut Tx, pressed: &Pressed, access: &Access) -> Result<Outcome, DbError> {
    let channel = began_as(tx, &pressed.thread.channel()).await?;
    if !access.admits(&channel, &pressed.by.id, &pressed.roles) {
        return Ok(ignored(Why::Stranger.as_str()));
    }
    Ok(ignored(match orders::press(tx, pressed).await? {
        true => "pressed",
        false => "an unknown button",
    }))
}

/// What a post says to Mayfly itself, where it may.
fn order_in(event: &Posted, bound: bool) -> Option<Ask> {
    let mentioned = event.to_us && event.place != Place::Direct;
    let heard = bound || event.to_us || event.place == Place::Direct;
    let read = Order::read(&event.text, mentioned).filter(|_| heard && !event.by_bot)?;
    Some(match read {
        Ok(order) => Ask::Order(order),
        Err(told) => Ask::Mistake(told),
    })
}

/// Its thread is told once for all that came late together.
async fn park_late(
    tx: &mut Tx,
    lane: &Lane,
    message: MessageId,
    whole: &Posted,
) -> Result<(), DbError> {
    let now = clock::unix_ms();
    let hours = (now - whole.at) / (60 * MINUTE);
    let reason = format!("it came {hours} h after it was written");
    sqlx::query(
        "UPDATE messages SET outcome = 'parked', reason = $2, settled_at = $3 WHERE id = $1",
    )
    .bind(message.to_string())
    .bind(&reason)
    .bind(now)
    .execute(&mut **tx)
    .await?;
    let told: i64 = sqlx::query(
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

async fn edit(tx: &mut Tx, event: &Posted, access: &Access) -> Result<Outcome, DbError> {
    let Some((told, Some(part))) = earlier(tx, &event.id).await? else {
        return Ok(ignored("edit of what is no message"));
    };
    let channel = began_as(tx, &told.thread.channel()).await?;
    let may = access.judge(event, &channel) == Verdict::May;
    match decide::edited(&told, part, event) {
        Edit::Replaces(message) if may => {
            let whole = Posted {
                text: event.text.clone(),
                ..told
            };
            keep(tx, &whole, Some(message)).await?;
            retell(tx, message).await?;
            Ok(part_of(message, "edited", Applied::nothing()))
        }
        Edit::Message if may => {
            let Some(lane) = Lane::of(tx, &told.thread).await? else {
                return Ok(ignored("edit where no agent is"));
            };
            let message = MessageId::new();
            let after = std::time::Duration::ZERO;
            insert_message(tx, &lane, message, &event.author, &event.text, after).await?;
            let whole = Posted {
                text: event.text.clone(),
                ..told
            };
            keep(tx, &whole, Some(message)).await?;
            let done = Applied::Done {
                lane: Some((lane.agent, after)),
                seen: Some(event.id.clone()),
            };
            Ok(part_of(message, "message", done))
        }
        _ => Ok(ignored("edit without effect")),
    }
}

/// A post that is gone before its tick began takes its part of the message with it.
async fn delete(tx: &mut Tx, id: &PostId) -> Result<Outcome, DbError> {
    let known = earlier(tx, id).await?;
    let begun = |part: &Option<Part>| part.is_some_and(|part| part.progress != Progress::Waits);
    if !known.as_ref().is_some_and(|(_, part)| begun(part)) {
        bury(tx, id).await?;
    }
    let Some((told, Some(part))) = known else {
        return Ok(ignored("deletion of what is no message"));
    };
    if part.progress != Progress::Waits {
        return Ok(ignored("deleted after it began"));
    }
    let others: i64 = sqlx::query(
        "SELECT count(*) FROM posts WHERE message = $1 AND NOT (channel = $2 AND id = $3)",
    )
    .bind(part.message.to_string())
    .bind(id.channel.to_string())
    .bind(&id.id)
    .fetch_one(&mut **tx)
    .await?
    .try_get(0)?;
    sqlx::query("UPDATE posts SET message = NULL WHERE channel = $1 AND id = $2")
        .bind(id.channel.to_string())
        .bind(&id.id)
        .execute(&mut **tx)
        .await?;
    if others > 0 {
        retell(tx, part.message).await?;
        forget_files(tx, part.message, &told.files).await?;
    } else {
        sqlx::query(
            "UPDATE messages SET outcome = 'withdrawn', reason = 'deleted by its author',
             settled_at = $2 WHERE id = $1 AND outcome IS NULL",
        )
        .bind(part.message.to_string())
        .bind(clock::unix_ms())
        .execute(&mut **tx)
        .await?;
    }
    Ok(part_of(part.message, "deleted", Applied::nothing()))
}

/// Posts keep their ids' channel, since the new one counts anew.
pub(super) async fn move_channel(
    tx: &mut AnyConnection,
    from: &Channel,
    to: &Channel,
) -> Result<(), DbError> {
    let (from, to) = (from.to_string(), to.to_string());
    let rest = from.chars().count() as i64 + 1;
    sqlx::query(
        "INSERT INTO moved_channels (channel, began_as)
         VALUES ($2, COALESCE((SELECT began_as FROM moved_channels WHERE channel = $1), $1))
         ON CONFLICT (channel) DO NOTHING",
    )
    .bind(&from)
    .bind(&to)
    .execute(&mut *tx)
    .await?;
    for (table, column, free) in [
        // Somebody may have spoken in the new chat before its word came.
        (
            "threads",
            "key",
            "AND NOT EXISTS (SELECT 1 FROM threads o WHERE o.key = $2 || SUBSTR(threads.key, $3))",
        ),
        ("posts", "thread", ""),
    ] {
        let sql = format!(
            "UPDATE {table} SET {column} = $2 || SUBSTR({column}, $3)
             WHERE SUBSTR({column}, 1, $3) = $1 || '/' {free}"
        );
        sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(&from)
            .bind(&to)
            .bind(rest)
            .execute(&mut *tx)
            .await?;
    }
    // Where somebody spoke in the new chat before, what is owed goes there.
    for (table, open) in [
        ("deliveries", "state = 'owed'"),
        ("orders", "state != 'done'"),
    ] {
        let sql = format!(
            "UPDATE {table} SET thread = (SELECT n.id FROM threads n JOIN threads o
                 ON n.key = $2 || SUBSTR(o.key, $3) WHERE o.id = {table}.thread)
             WHERE {open} AND thread IN (SELECT o.id FROM threads o JOIN threads n
                 ON n.key = $2 || SUBSTR(o.key, $3) WHERE SUBSTR(o.key, 1, $3) = $1 || '/')"
        );
        sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(&from)
            .bind(&to)
            .bind(rest)
            .execute(&mut *tx)
            .await?;
    }
    Ok(())
}

/// What earlier events told of a post of somebody else's, and the message it is part of.
async fn earlier(tx: &mut Tx, id: &PostId) -> Result<Option<(Posted, Option<Part>)>, DbError> {
    let row = sqlx::query("SELECT told, message FROM posts WHERE channel = $1 AND id = $2")
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

async fn album_of(tx: &mut Tx, id: &PostId, album: &str) -> Result<Option<Part>, DbError> {
    let row = sqlx::query(
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
    let row = sqlx::query(
        "SELECT outcome, EXISTS (SELECT 1 FROM ticks t WHERE t.message = m.id) + 0
         FROM messages m WHERE m.id = $1",
    )
    .bind(message.to_string())
    .fetch_optional(&mut **tx)
    .await?;
    let Some(row) = row else {
        let progress = Progress::Settled;
        return Ok(Part { message, progress });
    };
    let outcome: Option<String> = row.try_get(0)?;
    let progress = match (outcome, row.try_get::<i64, _>(1)?) {
        (Some(_), _) => Progress::Settled,
        (None, 0) => Progress::Waits,
        (None, _) => Progress::Begun,
    };
    Ok(Part { message, progress })
}

async fn thread_of_post(
    tx: &mut Tx,
    channel: &Channel,
    post: &str,
) -> Result<Option<ThreadKey>, DbError> {
    // What others said to each other is no conversation of ours.
    let sql = "SELECT thread FROM posts WHERE channel = $1 AND id = $2
        AND (told IS NULL OR message IS NOT NULL) AND thread != ''";
    let row = sqlx::query(sql)
        .bind(channel.to_string())
        .bind(post)
        .fetch_optional(&mut **tx)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let key: String = row.try_get(0)?;
    Ok(Some(parse("posts", post, "thread", &key)?))
}

/// Messages of programs since a person last wrote in a thread.
async fn bot_turns(tx: &mut Tx, thread: &ThreadKey, most: u32) -> Result<u32, DbError> {
    let rows = sqlx::query(
        "SELECT told FROM posts WHERE thread = $1 AND told IS NOT NULL AND message IS NOT NULL
         ORDER BY created_at DESC, id DESC LIMIT $2",
    )
    .bind(thread.to_string())
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

async fn keep(tx: &mut Tx, whole: &Posted, message: Option<MessageId>) -> Result<(), DbError> {
    let told = serde_json::to_string(whole).expect("posts are plain");
    sqlx::query(
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
    .bind(clock::unix_ms())
    .execute(&mut **tx)
    .await?;
    Ok(())
}

async fn open(tx: &mut Tx, thread: &ThreadKey, agent: &Agent) -> Result<Lane, DbError> {
    // The agent that had it was removed.
    sqlx::query(
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

async fn want_files(tx: &mut Tx, message: MessageId, files: &[RemoteFile]) -> Result<(), DbError> {
    for file in files {
        let told = serde_json::to_string(file).expect("files are plain");
        sqlx::query(
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

async fn forget_files(
    tx: &mut Tx,
    message: MessageId,
    files: &[RemoteFile],
) -> Result<(), DbError> {
    for file in files {
        let told = serde_json::to_string(file).expect("files are plain");
        sqlx::query("DELETE FROM remote_files WHERE message = $1 AND file = $2")
            .bind(message.to_string())
            .bind(told)
            .execute(&mut **tx)
            .await?;
    }
    Ok(())
}

async fn grow(
    tx: &mut AnyConnection,
    message: MessageId,
    text: Option<&str>,
    after: std::time::Duration,
) -> Result<(), DbError> {
    let text = text.unwrap_or_default();
    sqlx::query(
        "UPDATE messages SET claimable_at = $3, text = CASE WHEN $2 = '' THEN text
           WHEN text = '' THEN $2 ELSE text || $4 || $2 END WHERE id = $1",
    )
    .bind(message.to_string())
    .bind(text)
    .bind(clock::unix_ms() + after.as_millis() as i64)
    .bind("\n")
    .execute(tx)
    .await?;
    Ok(())
}

/// A message says what its posts say.
async fn retell(tx: &mut AnyConnection, message: MessageId) -> Result<(), DbError> {
    let rows = sqlx::query(
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
    sqlx::query("UPDATE messages SET text = $2 WHERE id = $1")
        .bind(message.to_string())
        .bind(texts.join("\n"))
        .execute(tx)
        .await?;
    Ok(())
}

/// A post that is gone stays gone, whatever is told of it later.
async fn bury(tx: &mut AnyConnection, id: &PostId) -> Result<(), DbError> {
    sqlx::query(
        "INSERT INTO posts (channel, id, thread, deleted, created_at) VALUES ($1, $2, '', 1, $3)
         ON CONFLICT (channel, id) DO UPDATE SET deleted = 1",
    )
    .bind(id.channel.to_string())
    .bind(&id.id)
    .bind(clock::unix_ms())
    .execute(tx)
    .await?;
    Ok(())
}

async fn is_deleted(tx: &mut AnyConnection, id: &PostId) -> Result<bool, DbError> {
    let row = sqlx::query("SELECT deleted FROM posts WHERE channel = $1 AND id = $2")
        .bind(id.channel.to_string())
        .bind(&id.id)
        .fetch_optional(tx)
        .await?;
    Ok(row.is_some_and(|row| row.try_get::<i64, _>(0).unwrap_or_default() > 0))
}

/// The channel by the id that it had when the configuration was written.
pub(super) async fn began_as(
    tx: &mut AnyConnection,
    channel: &Channel,
) -> Result<Channel, DbError> {
    let row = sqlx::query("SELECT began_as FROM moved_channels WHERE channel = $1")
        .bind(channel.to_string())
        .fetch_optional(tx)
        .await?;
    let Some(row) = row else {
        return Ok(channel.clone());
    };
    let key: String = row.try_get(0)?;
    let whole: ThreadKey = parse("moved_channels", &key, "began_as", &format!("{key}/"))?;
    Ok(whole.channel())
}
