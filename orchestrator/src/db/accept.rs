//! Accepting messages: what many send at once is on the disk by one sync.
//!
//! Whoever has the turn stores what all others have brought by then, each behind a savepoint of its own, and
//! commits once. Nobody is told before that. Whoever was stored by a caller that gave up, or whose commit
//! failed, brings it again: the key makes a second time the first.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use mayfly_domain::{Accepted, Arrival, AttachmentError, AttachmentLimits, MessageId, NewMessage};
use sqlx::Row as _;
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::{
    Db, DbError, Tx,
    attachments::{attach, uploaded},
    messages::{Lane, insert_message},
    parse, query,
};

/// Stored by one transaction: some milliseconds of work, so that other writers do not wait long.
const AT_ONCE: usize = 64;

/// What accepting an arrival came to.
#[derive(Debug)]
pub enum Acceptance {
    /// Stored, now or by an earlier call with the same key.
    Accepted(Accepted),
    /// Its files cannot come with it.
    Files(AttachmentError),
    /// The key belongs to another text or other files.
    KeyReused,
    /// No living agent has this thread.
    NoAgent,
}

/// What waits to be stored.
#[derive(Debug, Default)]
pub(super) struct Accepting {
    turn: tokio::sync::Mutex<()>,
    brought: Mutex<VecDeque<Brought>>,
}

#[derive(Debug)]
struct Brought {
    arrival: Arrival,
    limits: AttachmentLimits,
    told: oneshot::Sender<Told>,
}

type Told = Result<Acceptance, DbError>;
type Answer = oneshot::Receiver<Told>;

impl Accepting {
    fn brought(&self) -> std::sync::MutexGuard<'_, VecDeque<Brought>> {
        self.brought.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Vec<Brought> {
        let mut brought = self.brought();
        // Whoever has gone brings it again, if at all.
        brought.retain(|one| !one.told.is_closed());
        let many = brought.len().min(AT_ONCE);
        brought.drain(..many).collect()
    }
}

impl Db {
    /// Stores an arrival, the message's place in its lane and its files in one transaction.
    pub async fn accept(
        &self,
        arrival: &Arrival,
        limits: &AttachmentLimits,
    ) -> Result<Acceptance, DbError> {
        loop {
            let (told, mut answer) = oneshot::channel();
            self.accepting.brought().push_back(Brought {
                arrival: arrival.clone(),
                limits: *limits,
                told,
            });
            let answer = tokio::select! {
                biased;
                answer = &mut answer => answer.ok(),
                _turn = self.accepting.turn.lock() => self.answer_in_turn(answer).await?,
            };
            // None where whoever stored it gave up.
            if let Some(answer) = answer {
                return answer;
            }
        }
    }

    async fn answer_in_turn(&self, mut answer: Answer) -> Result<Option<Told>, DbError> {
        loop {
            match answer.try_recv() {
                Ok(answer) => return Ok(Some(answer)),
                Err(TryRecvError::Closed) => return Ok(None),
                Err(TryRecvError::Empty) => self.accept_all(self.accepting.next()).await?,
            }
        }
    }

    async fn accept_all(&self, all: Vec<Brought>) -> Result<(), DbError> {
        let mut tx = match self.begin().await {
            Ok(tx) => tx,
            Err(error) => {
                // Nothing was stored, and they have waited as long as this one.
                let down = || DbError::Sql(sqlx::Error::PoolTimedOut);
                all.into_iter()
                    .for_each(|one| drop(one.told.send(Err(down()))));
                return Err(error);
            }
        };
        let mut done = Vec::new();
        for Brought {
            arrival,
            limits,
            told,
        } in all
        {
            query("SAVEPOINT one").execute(&mut *tx).await?;
            let answer = accept(&mut tx, &arrival, &limits).await;
            let new = matches!(&answer, Ok(Acceptance::Accepted(accepted)) if accepted.new);
            if !new {
                let back = query("ROLLBACK TO SAVEPOINT one").execute(&mut *tx).await;
                // A full disk ends the whole transaction: what it said is the reason.
                if let Err(gone) = back {
                    return Err(answer.err().unwrap_or(gone));
                }
            }
            query("RELEASE SAVEPOINT one").execute(&mut *tx).await?;
            done.push((told, answer));
        }
        crate::faults::point("accept.inside");
        tx.commit().await?;
        for (told, answer) in done {
            // Whoever brought it may have gone meanwhile.
            let _ = told.send(answer);
        }
        Ok(())
    }
}

async fn accept(
    tx: &mut Tx,
    arrival: &Arrival,
    limits: &AttachmentLimits,
) -> Result<Acceptance, DbError> {
    let now = tx.now();
    let Some(lane) = Lane::of(tx, &arrival.thread).await? else {
        return Ok(Acceptance::NoAgent);
    };
    let earlier =
        query("SELECT a.message, a.raw FROM arrivals a WHERE a.thread = $1 AND a.key = $2")
            .bind(lane.thread.to_string())
            .bind(&arrival.key)
            .fetch_optional(&mut **tx)
            .await?;
    if let Some(earlier) = earlier {
        let raw: Vec<u8> = earlier.try_get(1)?;
        let message: Option<String> = earlier.try_get(0)?;
        return Ok(match message {
            Some(message) if raw == arrival.raw => Acceptance::Accepted(Accepted {
                message: parse("arrivals", &arrival.key, "message", &message)?,
                agent: lane.agent,
                new: false,
            }),
            _ => Acceptance::KeyReused,
        });
    }
    let id = MessageId::new();
    let named = arrival.message.as_ref().map_or(&[][..], |m| &m.files);
    let files = match uploaded(tx, named).await? {
        Ok(files) => files,
        Err(unknown) => return Ok(Acceptance::Files(unknown)),
    };
    if let Err(error) = limits.check(&files) {
        return Ok(Acceptance::Files(error));
    }
    query(
        "INSERT INTO arrivals (thread, key, raw, message, received_at)
         VALUES ($1, $2, $3, $4, $5)",
    )
    .bind(lane.thread.to_string())
    .bind(&arrival.key)
    .bind(&arrival.raw)
    .bind(arrival.message.as_ref().map(|_| id.to_string()))
    .bind(now)
    .execute(&mut **tx)
    .await?;
    if let Some(message) = &arrival.message {
        let NewMessage { author, text, .. } = message;
        insert_message(tx, &lane, id, (author, None), text, Duration::ZERO).await?;
        if let Some(sandbox) = &message.sandbox {
            query("UPDATE messages SET sandbox = $2 WHERE id = $1")
                .bind(id.to_string())
                .bind(sandbox.to_string())
                .execute(&mut **tx)
                .await?;
        }
        attach(tx, id, &files).await?;
    }
    Ok(Acceptance::Accepted(Accepted {
        message: id,
        agent: lane.agent,
        new: true,
    }))
}
