//! A fork and its conversation: one of each, wherever the platform's answer or the process is lost.
//!
//! The command becomes "open it" in the transaction that makes the fork, and notes each call before
//! it is made. Where the platform does not find what an earlier call has opened, a person decides.

use std::time::Duration;

use mayfly_domain::{
    AgentId, MessageId, ThreadKey,
    chat::{CallError, Platform},
};
use tokio::time::{Instant, sleep};

use super::{Orders, grammar::Order, told};
use crate::{
    command::RequestError,
    db::{
        DbError,
        orders::{Ask, Binding, OpenOrder, Said},
    },
    faults, observe,
};

/// How long a conversation is tried to be opened before the thread is told.
const OPENING: Duration = Duration::from_secs(5 * 60);
/// Before the second try; doubled for each further one.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl Orders {
    pub(super) async fn fork(
        &self,
        order: &OpenOrder,
        at: Option<&str>,
    ) -> Result<Said, RequestError> {
        let at = self.tick(at).await?;
        if !self.platforms.contains_key(order.thread.platform.as_str()) {
            return Ok(told::plain(told::NO_PLATFORM));
        }
        let becomes = |fork| {
            let asked_at = None;
            (order.id, order.ask.instead(Order::Open { fork, asked_at }))
        };
        let made = self.commands.fork_asked(order.agent, at, becomes).await;
        let fork = match made {
            Ok(fork) => fork.id,
            // Its commit may have been written all the same.
            Err(error) => self.became(order).await?.ok_or(error)?,
        };
        faults::point("order.forked");
        self.open(order, fork, None).await
    }

    /// `asked_at` is when an earlier start, or an earlier try, asked for it.
    pub(super) async fn open(
        &self,
        order: &OpenOrder,
        fork: AgentId,
        asked_at: Option<i64>,
    ) -> Result<Said, RequestError> {
        let Some(platform) = self.platforms.get(order.thread.platform.as_str()) else {
            return Ok(told::plain(told::NO_PLATFORM));
        };
        let (mut beside, mut asked_at) = (order.thread.clone(), asked_at);
        let (until, mut pause) = (Instant::now() + OPENING, PAUSE);
        loop {
            if asked_at.is_some() && !platform.finds_opened() {
                return Ok(told::perhaps_opened(fork));
            }
            let now = asked_at.unwrap_or_else(|| self.db.now());
            self.note(order, fork, Some(now)).await?;
            let opened = ask(platform.as_ref(), &beside, fork, asked_at).await;
            faults::point("order.opened");
            let error = match opened {
                Ok((thread, link)) => {
                    let root = platform.root(&thread);
                    let bound = Binding { fork, thread, root };
                    return Ok(told::opened(bound, &link));
                }
                Err(error) => error,
            };
            match &error {
                CallError::Unknown(_) => asked_at = Some(now),
                CallError::NotDone(_) | CallError::Limited { .. } => {}
                CallError::Moved(to) => {
                    let from = beside.channel();
                    known(order.id, || self.db.move_channel(&from, to)).await?;
                    beside = to.thread(beside.thread);
                }
                CallError::Gone(_) | CallError::Refused(_) => {
                    return Ok(told::unopened(fork, &error));
                }
            }
            self.note(order, fork, asked_at).await?;
            let wait = match &error {
                CallError::Limited { after, .. } => *after,
                _ => pause,
            };
            if Instant::now() + wait > until {
                return Ok(told::not_opened_yet(fork, asked_at, &error));
            }
            tracing::info!(%fork, %error, "its conversation is opened later");
            sleep(wait).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    async fn note(
        &self,
        order: &OpenOrder,
        fork: AgentId,
        asked_at: Option<i64>,
    ) -> Result<(), RequestError> {
        let ask = order.ask.instead(Order::Open { fork, asked_at });
        known(order.id, || self.db.order_becomes(order.id, &ask)).await?;
        Ok(())
    }

    /// The fork that the command has made, if it has.
    async fn became(&self, order: &OpenOrder) -> Result<Option<AgentId>, DbError> {
        let open = known(order.id, || async {
            self.db.outlast_writers().await?;
            self.db.open_orders().await
        });
        let found = open.await?.into_iter().find(|open| open.id == order.id);
        Ok(found.and_then(|open| match open.ask {
            Ask::Order(Order::Open { fork, .. })
            | Ask::Pressed {
                order: Some(Order::Open { fork, .. }),
                ..
            } => Some(fork),
            _ => None,
        }))
    }
}

/// What the database answers. While it is away it is waited for: a guess would be a second fork.
async fn known<T, Answer>(order: MessageId, ask: impl Fn() -> Answer) -> Result<T, DbError>
where
    Answer: Future<Output = Result<T, DbError>>,
{
    loop {
        match ask().await {
            Err(error) if !error.is_lasting() => {
                tracing::error!(%order, error = observe::chain(&error), "a command waits");
                sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

async fn ask(
    platform: &dyn Platform,
    beside: &ThreadKey,
    fork: AgentId,
    asked_at: Option<i64>,
) -> Result<(ThreadKey, String), CallError> {
    let (title, token) = (told::title(fork), format!("{fork}/open"));
    let opened = platform.open(beside, &title, &token, asked_at);
    let opened = tokio::time::timeout(platform.patience(), opened);
    opened
        .await
        .unwrap_or_else(|_| Err(CallError::Unknown("no answer in time".to_owned())))
}
