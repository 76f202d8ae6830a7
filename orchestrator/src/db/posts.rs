//! Posts of platforms and the messages they become part of: one event, one transaction.

mod kept;
mod known;
mod moved;

use std::{borrow::Cow, time::Duration};

use mayfly_domain::{AgentId, Channel, Event, Happened, MessageId, Place, PostId, Posted, Pressed};
use sqlx::Row as _;

use super::{
    Db, DbError, Tx,
    agents::Agent,
    arrivals::{applied, forget_words},
    messages::{Lane, insert_message},
    orders::{self, Ask},
    pairing::{self, Tried},
    query,
};
use crate::{
    inbox::{
        access::{Access, Verdict},
        courtesy::Courtesy,
        decide::{self, Becomes, Edit, Known, Part, Progress, Why},
    },
    orders::grammar::{self, Order},
};
use kept::{bury, forget_files, grow, keep, open, park_late, restart, retell, want_files};
use known::{album_of, bot_turns, earlier, is_deleted, thread_of_post};

pub(super) use moved::{began_as, move_channel};

const MINUTE: i64 = 60 * 1000;
const BARE: &str =
    "Say what is to be done, here or with the mention. `!help` tells what else can be said.";
const LATE_COMMAND: &str = "This command came long after it was given, and was not done.";

/// What came of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// All that it means is written.
    Done {
        /// A lane that has something new, and when it may be looked at, from now.
        lane: Option<(AgentId, Duration)>,
        /// What its author may be shown.
        shown: Option<Courtesy>,
    },
    /// It opens a conversation: nothing is written, to be called again with an agent.
    WantsAgent {
        /// Of this profile.
        profile: String,
        /// What its author may be shown meanwhile.
        shown: Option<Courtesy>,
    },
}

impl Applied {
    fn nothing() -> Self {
        Applied::Done {
            lane: None,
            shown: None,
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
        let access = &*match platform_of(event) {
            Some(platform) => pairing::with_paired(&mut tx, platform, access).await?,
            None => Cow::Borrowed(access),
        };
        if let Some(tried) = pairing::tried(&mut tx, event, access).await? {
            let shown = match &tried {
                // Applied anew, now that its author may speak.
                Tried::Paired(asks) => {
                    forget_words(&mut tx, seq, Some(asks)).await?;
                    None
                }
                Tried::Refused(why, shown) => {
                    forget_words(&mut tx, seq, None).await?;
                    applied(&mut tx, seq, why, None).await?;
                    shown.clone()
                }
            };
            crate::faults::point("apply.inside");
            tx.commit().await?;
            return Ok(Applied::Done { lane: None, shown });
        }
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

/// Where rights are asked for.
fn platform_of(event: &Event) -> Option<&str> {
    let channel = match &event.happened {
        Happened::Posted(posted) | Happened::Edited(posted) => &posted.id.channel,
        Happened::Pressed(pressed) => &pressed.on.channel,
        Happened::Deleted(_) | Happened::Moved { .. } | Happened::Ignored(_) => return None,
    };
    Some(&channel.platform)
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
    if is_deleted(tx, &event.id).await? {
        return Ok(ignored("deleted by its author"));
    }
    let mut event = in_its_conversation(tx, event).await?;
    let lane = Lane::of(tx, &event.thread).await?;
    let ask = order_in(&event, lane.is_some());
    event.text = grammar::to_the_agent(&event.text).to_owned();
    let channel = began_as(tx, &event.thread.channel()).await?;
    let known = known(tx, &event, access, &channel, lane.is_some()).await?;
    let whole = match &known.post {
        Some((told, _)) => decide::joined(told, &event),
        None => event.clone(),
    };
    let becomes = match decide::posted(&known, &event) {
        Ok(becomes) => becomes,
        Err(why) => return nothing(tx, &known, &whole, why).await,
    };
    let lane = match (lane, fresh) {
        (Some(lane), _) => lane,
        (None, Some(agent)) => open(tx, &whole.thread, agent).await?,
        (None, None) => {
            let message = ask.is_none() && matches!(becomes, Becomes::Message { .. });
            let wants = Applied::WantsAgent {
                profile: access.profile_of(&channel).to_owned(),
                shown: message.then(|| Courtesy::Seen(whole.id.clone())),
            };
            return Ok((wants, String::new(), None));
        }
    };
    let ask = match (&becomes, ask) {
        (Becomes::Prompted, _) => Some(Ask::Mistake(BARE.to_owned())),
        (Becomes::Message { .. }, ask) => ask,
        (Becomes::Parked, Some(_)) => Some(Ask::Mistake(LATE_COMMAND.to_owned())),
        _ => None,
    };
    if let Some(ask) = ask {
        let id = orders::give(tx, &lane, &whole.author, &ask).await?;
        keep(tx, &whole, Some(id)).await?;
        return Ok(part_of(id, "command", Applied::nothing()));
    }
    let (mut done, state, id) = message(tx, &lane, &whole, becomes).await?;
    if let Applied::Done { shown, .. } = &mut done
        && fresh.is_some()
    {
        // It was, when its agent was wanted.
        *shown = None;
    }
    Ok((done, state, id))
}

/// What answers us belongs to the conversation of what it answers.
async fn in_its_conversation(tx: &mut Tx, event: &Posted) -> Result<Posted, DbError> {
    let mut event = event.clone();
    if let Some(answered) = &event.answers
        && let Some(thread) = thread_of_post(tx, &event.id.channel, answered).await?
    {
        event.thread = thread;
    }
    Ok(event)
}

async fn known(
    tx: &mut Tx,
    event: &Posted,
    access: &Access,
    channel: &Channel,
    bound: bool,
) -> Result<Known, DbError> {
    let most = access.max_bot_turns;
    let age = tx.now() - event.at;
    Ok(Known {
        bound,
        verdict: access.judge(event, channel),
        bot_turns: match event.by_bot {
            true => (bot_turns(tx, &event.thread, most).await?, most),
            false => (0, most),
        },
        group: match &event.group {
            Some(album) => album_of(tx, &event.id, album).await?,
            None => None,
        },
        post: earlier(tx, &event.id).await?,
        // Slack's commands have no time.
        late: event.at > 0 && age > i64::from(access.max_age_minutes) * MINUTE,
    })
}

async fn nothing(tx: &mut Tx, known: &Known, whole: &Posted, why: Why) -> Result<Outcome, DbError> {
    // What people say who are not served is not ours to keep.
    if !matches!(why, Why::Stranger | Why::ClosedChannel) {
        let part = known.post.as_ref().and_then(|(_, part)| *part);
        keep(tx, whole, part.map(|part| part.message)).await?;
    }
    Ok(ignored(why.as_str()))
}

/// A post becomes a message or part of one.
async fn message(
    tx: &mut Tx,
    lane: &Lane,
    whole: &Posted,
    becomes: Becomes,
) -> Result<Outcome, DbError> {
    let new = MessageId::new();
    let author = (&whole.author, whole.words_of.as_ref());
    let (message, after) = match becomes {
        Becomes::Message { after } => {
            insert_message(tx, lane, new, author, &whole.text, after).await?;
            want_files(tx, new, &whole.files).await?;
            (new, after)
        }
        Becomes::Parked => {
            insert_message(tx, lane, new, author, &whole.text, Duration::ZERO).await?;
            want_files(tx, new, &whole.files).await?;
            park_late(tx, lane, new, whole).await?;
            keep(tx, whole, Some(new)).await?;
            return Ok(part_of(new, "late", Applied::nothing()));
        }
        Becomes::Prompted => return Ok(ignored(Why::Empty.as_str())),
        Becomes::FollowsUp { text, files } => {
            insert_message(tx, lane, new, author, &text, Duration::ZERO).await?;
            want_files(tx, new, &files).await?;
            (new, Duration::ZERO)
        }
        Becomes::Joins {
            message,
            files,
            text,
            after,
        } => {
            want_files(tx, message, &files).await?;
            grow(tx, message, text.as_deref(), after).await?;
            (message, after)
        }
        Becomes::Restarts {
            message,
            files,
            text,
        } => {
            want_files(tx, message, &files).await?;
            grow(tx, message, text.as_deref(), Duration::ZERO).await?;
            restart(tx, message).await?;
            (message, Duration::ZERO)
        }
    };
    keep(tx, whole, Some(message)).await?;
    let done = Applied::Done {
        lane: Some((lane.agent, after)),
        shown: Some(Courtesy::Seen(whole.id.clone())),
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
    let own = event.words_of.is_none() && !event.by_bot;
    let read = Order::read(&event.text, mentioned).filter(|_| heard && own)?;
    Some(match read {
        Ok(order) => Ask::Order(order),
        Err(told) => Ask::Mistake(told),
    })
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
                text: grammar::to_the_agent(&event.text).to_owned(),
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
            let whole = Posted {
                text: grammar::to_the_agent(&event.text).to_owned(),
                ..told
            };
            if let Some(ask) = order_in(event, true) {
                let id = orders::give(tx, &lane, &event.author, &ask).await?;
                keep(tx, &whole, Some(id)).await?;
                return Ok(part_of(id, "command", Applied::nothing()));
            }
            message(
                tx,
                &lane,
                &whole,
                Becomes::FollowsUp {
                    text: whole.text.clone(),
                    files: Vec::new(),
                },
            )
            .await
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
    let others: i64 =
        query("SELECT count(*) FROM posts WHERE message = $1 AND NOT (channel = $2 AND id = $3)")
            .bind(part.message.to_string())
            .bind(id.channel.to_string())
            .bind(&id.id)
            .fetch_one(&mut **tx)
            .await?
            .try_get(0)?;
    query("UPDATE posts SET message = NULL WHERE channel = $1 AND id = $2")
        .bind(id.channel.to_string())
        .bind(&id.id)
        .execute(&mut **tx)
        .await?;
    if others > 0 {
        retell(tx, part.message).await?;
        forget_files(tx, part.message, &told.files).await?;
    } else {
        query(
            "UPDATE messages SET outcome = 'withdrawn', reason = 'deleted by its author',
             settled_at = $2 WHERE id = $1 AND outcome IS NULL",
        )
        .bind(part.message.to_string())
        .bind(tx.now())
        .execute(&mut **tx)
        .await?;
    }
    Ok(part_of(part.message, "deleted", Applied::nothing()))
}
