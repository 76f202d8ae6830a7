//! Messages: accepted, waited for, stopped, parked, retried.

use std::time::Duration;

use mayfly_domain::{
    AgentId, Apology, Arrival, Inbox as _, InboxError, MessageId, NewMessage, check_caption,
    check_text,
};

use super::{
    Commands, RequestError, Send, StopScope, agents::unavailable, enough, internal, not_found,
    only, suffix,
};
use crate::{
    db::{DbError, messages::Message, shown::ShownMessage},
    tick::state::Cause,
    trouble::Source,
    view::{MessageView, Page, ReplyView, StopView, Wanted},
};

/// Longest idempotency key, in bytes.
const MAX_KEY: usize = 255;
const PARKED_HINT: &str = " among the parked: `mayfly parked list` shows all";

impl Commands {
    /// Accepts a message; durable when it returns.
    pub async fn send(&self, agent: AgentId, send: Send) -> Result<MessageView, RequestError> {
        let judged = match send.files.is_empty() {
            true => check_text(send.text.as_bytes()),
            false => check_caption(send.text.as_bytes()),
        };
        judged.map_err(|error| RequestError::Invalid(error.to_string()))?;
        self.limits.check_count(send.files.len())?;
        self.row(agent).await?;
        if let Some(sandbox) = send.sandbox.as_ref().filter(|_| self.role.has_engine()) {
            self.images.resolve(sandbox).await.map_err(unavailable)?;
        }
        let key = match send.idempotency_key {
            None => format!("mayfly:{}", MessageId::new()),
            Some(key) if key.is_empty() || key.len() > MAX_KEY => {
                return Err(RequestError::Invalid(format!(
                    "an idempotency key has 1 to {MAX_KEY} bytes, this one has {}",
                    key.len()
                )));
            }
            Some(key) => key,
        };
        let message = NewMessage {
            text: send.text,
            author: send.author,
            sandbox: send.sandbox,
            files: send.files,
        };
        let arrival = Arrival {
            thread: self.db.thread_of(agent).await?,
            key,
            raw: serde_json::to_vec(&message).expect("messages are plain"),
            message: Some(message),
        };
        let accepted = self
            .inbox
            .accept(arrival)
            .await
            .map_err(|error| match error {
                InboxError::KeyReused(_) => RequestError::Conflict(error.to_string()),
                InboxError::Files(error) => error.into(),
                InboxError::NoAgent(_) => not_found("agent", agent, ""),
                InboxError::Storage(cause) => match cause.downcast::<DbError>() {
                    Ok(error) => (*error).into(),
                    Err(cause) => internal(&*cause),
                },
            })?;
        self.begun.cancel();
        self.message(accepted.message).await
    }

    /// One message.
    pub async fn message(&self, id: MessageId) -> Result<MessageView, RequestError> {
        let shown = self.db.shown_message(id).await?;
        let shown = shown.ok_or_else(|| not_found("message", id, ""))?;
        self.message_view(shown).await
    }

    /// A page of what was said to an agent and what became of it, newest first.
    pub async fn newest_messages(
        &self,
        agent: AgentId,
        wanted: Wanted<MessageId>,
    ) -> Result<Page<MessageView>, RequestError> {
        self.row(agent).await?;
        let most = wanted.most;
        let found = self.db.newest_messages(agent, wanted.after, most + 1);
        let page = Page::cut(found.await?, most, |shown| shown.message.id.to_string());
        let mut items = Vec::new();
        for shown in page.items {
            items.push(self.message_view(shown).await?);
        }
        let next = page.next;
        Ok(Page { items, next })
    }

    /// Waits until the message has an outcome or the time is over; then as [`Commands::message`].
    pub async fn wait(
        &self,
        id: MessageId,
        patience: Duration,
    ) -> Result<MessageView, RequestError> {
        self.bell
            .until(patience, || async {
                let message = self.db.message(id).await?;
                let settled = message.is_none_or(|message| message.outcome.is_some());
                Ok::<_, RequestError>(settled.then_some(()))
            })
            .await?;
        self.message(id).await
    }

    /// Ends the running tick; what waits stays, or is withdrawn with a notice.
    pub async fn stop(&self, agent: AgentId, scope: StopScope) -> Result<StopView, RequestError> {
        self.row(agent).await?;
        let withdrawn = match scope {
            StopScope::Running => Vec::new(),
            StopScope::All => {
                self.db
                    .withdraw_waiting(agent, "withdrawn by `stop all` before it ran")
                    .await?
            }
        };
        let stopping = self.db.request_cancel(agent).await?;
        if let Some(tick) = stopping {
            self.running.ask(tick, Cause::Stopped);
        }
        self.bell.ring();
        Ok(StopView {
            stopping,
            withdrawn,
            waiting: self.shown(agent).await?.waiting.max(0) as u64,
        })
    }

    /// Messages that wait for a person, or whose reply does, oldest first.
    pub async fn parked(&self) -> Result<Vec<MessageView>, RequestError> {
        let mut views = Vec::new();
        for shown in self.db.parked().await? {
            views.push(self.message_view(shown).await?);
        }
        Ok(views)
    }

    /// The parked message with this id or end of one.
    pub async fn parked_message(&self, text: &str) -> Result<MessageId, RequestError> {
        let digits = suffix("message", text, PARKED_HINT)?;
        only(
            "message",
            text,
            &self.db.parked_ending(&digits).await?,
            PARKED_HINT,
        )
    }

    /// Puts a parked message back into its lane with fresh attempts; of one that is not parked, what
    /// could not be delivered is sent again.
    pub async fn retry(&self, text: &str) -> Result<MessageView, RequestError> {
        let id = self.parked_message(text).await?;
        enough("message", text)?;
        let delivers = !self.db.unpark(id).await? && self.db.owe_again_of(id).await? > 0;
        if delivers {
            self.bell.ring();
            return self.message(id).await;
        }
        let view = self.message(id).await?;
        if view.outcome.is_some() {
            return Err(RequestError::Conflict(format!(
                "message {} is not parked any more",
                id.short()
            )));
        }
        self.begun.cancel();
        self.lanes.offer(view.agent, Duration::ZERO).await;
        Ok(view)
    }

    /// A parked message runs when its files are there, however long that takes. False if it is not
    /// parked any more.
    pub async fn wait_for_files(&self, agent: AgentId, text: &str) -> Result<bool, RequestError> {
        let Ok(id) = text.parse() else {
            return Ok(false);
        };
        let waits = self.db.unpark_to_wait(agent, id).await?;
        if waits {
            self.begun.cancel();
            self.lanes.offer(agent, Duration::ZERO).await;
        }
        Ok(waits)
    }

    async fn message_view(&self, shown: ShownMessage) -> Result<MessageView, RequestError> {
        let ShownMessage {
            message,
            tick,
            files,
            reply,
            undelivered,
        } = shown;
        let (ahead, progress) = match message.outcome {
            Some(_) => (0, None),
            None => (
                self.db.ahead_of(&message).await?,
                self.progress(&message, tick).await?,
            ),
        };
        Ok(MessageView {
            id: message.id,
            agent: message.agent,
            seq: message.seq,
            author: message.author.name,
            files,
            text: message.text,
            created_at: message.created_at,
            outcome: message.outcome,
            reason: message.reason,
            merged_into: message.merged_into,
            attempts: message.attempts,
            ahead: ahead as u64,
            tick,
            progress,
            reply: reply.map(|reply| ReplyView {
                text: reply.text,
                files: reply.files,
            }),
            undelivered,
        })
    }

    /// What happens to an open message right now.
    async fn progress(
        &self,
        message: &Message,
        tick: Option<mayfly_domain::TickId>,
    ) -> Result<Option<String>, RequestError> {
        if let Some(tick) = tick
            && let Some(row) = self.db.tick(tick).await?
            && row.outcome.is_none()
        {
            return Ok(row.progress);
        }
        if let Some(reason) = self.trouble.of(Source::Lane(message.agent)) {
            return Ok(Some(Apology::Waiting { reason }.to_string()));
        }
        if message.attempts > 0 && self.db.until(message.claimable_at) > 0 {
            return Ok(Some(format!(
                "waiting to run again (attempt {})",
                message.attempts + 1
            )));
        }
        let place = self
            .lanes
            .place(message.agent)
            .await
            .map(|place| match place {
                0 => "next in the queue".to_owned(),
                before => format!("in the queue behind {before} other agents"),
            });
        let agent = self.db.agent(message.agent).await?;
        let lacks = agent.and_then(|agent| self.reserves.waits_for(&agent.profile));
        let both: Vec<String> = place.into_iter().chain(lacks).collect();
        Ok((!both.is_empty()).then(|| both.join("; ")))
    }
}
