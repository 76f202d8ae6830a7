//! Each command, by the function that every other face calls.

use std::{
    fs::File,
    io::{self, Seek as _, SeekFrom, Write},
};

use mayfly_domain::{MessageOutcome, Pressed, Reply, ReplyFile, TickId};

use super::{Orders, grammar::Order, told};
use crate::{
    command::{
        RequestError, StopScope, internal,
        portable::{ExportAs, ExportTo},
    },
    db::orders::{Ask, OpenOrder, Said},
    snapshot::DiffWanted,
    view::Wanted,
};

/// Largest archive that is sent into a thread, in bytes.
const MOST: u64 = 20 << 20;
/// Most texts that are counted of those that could not be delivered.
const MANY: i64 = 1000;

impl Orders {
    /// Does it; what is to be said, if anything.
    pub(super) async fn answer(&self, order: &OpenOrder) -> Option<Said> {
        match &order.ask {
            Ask::Mistake(told) => Some(told::plain(told.clone())),
            Ask::Order(wanted) => Some(self.allowed(order, wanted).await),
            Ask::Pressed {
                order: wanted,
                pressed,
                label,
            } => self.pressed(order, wanted.as_ref(), pressed, label).await,
            Ask::Stale(pressed) => {
                self.answer_press(pressed, told::STALE).await;
                Some(told::plain(told::STALE))
            }
        }
    }

    async fn allowed(&self, order: &OpenOrder, wanted: &Order) -> Said {
        match self.may(order, wanted).await {
            Ok(()) => self.done(order, wanted).await,
            Err(told) => told::plain(told),
        }
    }

    /// Whoever opened the thread and admins may change what others did.
    async fn may(&self, order: &OpenOrder, wanted: &Order) -> Result<(), String> {
        let access = self.accesses.get(&order.thread.platform);
        let channel = self.db.channel_began_as(&order.thread.channel()).await;
        let channel = channel.map_err(|error| error.to_string())?;
        let admins = access.and_then(|access| access.admins(&channel));
        let who = &order.author.id;
        if !wanted.is_weighty() || admins.is_none_or(|admins| admins.contains(who)) {
            return Ok(());
        }
        let opener = self.db.opener(order.agent).await;
        match opener {
            Ok(Some(opener)) if opener != *who => Err(
                "That is for whoever opened this conversation, and for the admins of this channel."
                    .to_owned(),
            ),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn done(&self, order: &OpenOrder, wanted: &Order) -> Said {
        let done = match wanted {
            Order::Help => Ok(told::help()),
            Order::New => self.renew(order).await,
            Order::Status => self.status(order).await,
            Order::Stop { what, of } => self.stop(order, what.is_some(), of.as_deref()).await,
            Order::History { count } => self.history(order, *count).await,
            Order::Diff { tick, to } => self.diff(order, tick.as_deref(), to.as_deref()).await,
            Order::Rollback { tick, confirmed } => {
                self.rollback(order, tick.as_deref(), *confirmed).await
            }
            Order::Fork { tick } => self.fork(order, tick.as_deref()).await,
            Order::Open { fork, asked_at } => self.open(order, *fork, *asked_at).await,
            Order::Retry { message } => self.retry(order, message.as_deref()).await,
            Order::Usage => self.usage(order).await,
            Order::Export => self.export(order).await,
            Order::SendAgain { file } => Ok(self.send_again(file).await),
            Order::Wait { message } => self.wait(order, message).await,
            Order::GoOn { tick, message } => self.go_on(order, tick, message).await,
            Order::Nothing => Ok(told::plain("Nothing was changed.")),
        };
        done.unwrap_or_else(|error| match error {
            RequestError::Unanswered(_) if !wanted.repeats() => told::unknown(),
            error => told::plain(format!("Not done: {error}.")),
        })
    }

    async fn renew(&self, order: &OpenOrder) -> Result<Said, RequestError> {
        let old = self.commands.agent(order.agent).await?;
        if self.commands.renew(order.agent, &order.thread).await? {
            return Ok(told::plain(format!(
                "A fresh agent listens here now. The one before is `{}`, by command line.",
                old.short
            )));
        }
        Ok(told::plain(
            "Not yet: messages of this conversation wait or run. `!stop all` ends them.",
        ))
    }

    async fn status(&self, order: &OpenOrder) -> Result<Said, RequestError> {
        let agent = self.commands.agent(order.agent).await?;
        let progress = match agent.running {
            Some(tick) => self.db.tick(tick).await?.and_then(|tick| tick.progress),
            None => None,
        };
        let undelivered = self.db.undelivered(order.agent, MANY).await?;
        Ok(told::status(&agent, progress.as_deref(), &undelivered))
    }

    async fn stop(
        &self,
        order: &OpenOrder,
        all: bool,
        of: Option<&str>,
    ) -> Result<Said, RequestError> {
        if let Some(of) = of {
            let running = self.db.open_tick(order.agent).await?;
            if running.is_none_or(|tick| tick.message.to_string() != of) {
                return Ok(told::plain("That is over already."));
            }
        }
        let scope = match all {
            true => StopScope::All,
            false => StopScope::Running,
        };
        let stopped = self.commands.stop(order.agent, scope).await?;
        let mut lines = vec![match stopped.stopping {
            Some(tick) => format!("Tick `{}` is being stopped.", tick.short()),
            None => "Nothing runs.".to_owned(),
        }];
        if !stopped.withdrawn.is_empty() {
            lines.push(format!("{} withdrawn.", stopped.withdrawn.len()));
        }
        if stopped.waiting > 0 {
            lines.push(format!("{} more wait and will run.", stopped.waiting));
        }
        Ok(told::plain(lines.join(" ")))
    }

    async fn history(&self, order: &OpenOrder, count: u8) -> Result<Said, RequestError> {
        let wanted = Wanted {
            after: None,
            most: u32::from(count),
        };
        let page = self.commands.newest_ticks(order.agent, wanted).await?;
        Ok(told::history(&page.items))
    }

    pub(super) async fn tick(&self, text: Option<&str>) -> Result<Option<TickId>, RequestError> {
        match text {
            Some(text) => self.commands.tick_to_go_to(text).await.map(Some),
            None => Ok(None),
        }
    }

    async fn diff(
        &self,
        order: &OpenOrder,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Said, RequestError> {
        let (from, to) = (self.tick(from).await?, self.tick(to).await?);
        let wanted = DiffWanted {
            most: told::CHANGES,
            renames: true,
            text: false,
        };
        let diff = self.commands.diff(order.agent, from, to, wanted).await?;
        Ok(told::diff(&diff))
    }

    async fn rollback(
        &self,
        order: &OpenOrder,
        to: Option<&str>,
        confirmed: bool,
    ) -> Result<Said, RequestError> {
        let tick = self.tick(to).await?;
        if !confirmed {
            let target = match tick {
                Some(tick) => format!("after tick `{}`", tick.short()),
                None => "before the last tick".to_owned(),
            };
            let sure = Order::Rollback {
                tick: to.map(str::to_owned),
                confirmed: true,
            };
            let text = format!("Go back to the files and the conversation {target}?");
            return Ok(told::question(text, "Roll back", sure));
        }
        let back = self.commands.rollback(order.agent, tick).await?;
        let to = match back.to {
            Some(tick) => format!("after tick `{}`", tick.short()),
            None => "before the first tick".to_owned(),
        };
        let left = back.left.map_or(String::new(), |tick| {
            format!(" `!rollback {}` goes forward again.", tick.short())
        });
        Ok(told::plain(format!(
            "The files and the conversation are those {to}.{left}"
        )))
    }

    async fn retry(&self, order: &OpenOrder, message: Option<&str>) -> Result<Said, RequestError> {
        let wanted = match message {
            Some(text) => Some(text.to_owned()),
            None => self
                .db
                .newest_parked(order.agent)
                .await?
                .map(|id| id.to_string()),
        };
        let Some(wanted) = wanted else {
            return Ok(match self.db.owe_again(order.agent).await? {
                0 => told::plain("No message of this conversation is parked."),
                again => told::plain(format!(
                    "{} that could not be delivered come again.",
                    told::count(again, "text")
                )),
            });
        };
        let of_another =
            || RequestError::Conflict("that message is of another conversation".into());
        let id = self.commands.parked_message(&wanted).await?;
        let message = self.commands.message(id).await?;
        if message.agent != order.agent {
            return Err(of_another());
        }
        self.commands.retry(&id.to_string()).await?;
        Ok(told::plain(match message.outcome {
            Some(MessageOutcome::Parked) => "It runs again.",
            _ => "What could not be delivered comes again.",
        }))
    }

    async fn wait(&self, order: &OpenOrder, message: &str) -> Result<Said, RequestError> {
        let waits = self.commands.wait_for_files(order.agent, message).await?;
        Ok(told::plain(match waits {
            true => "It waits, and runs by itself once its files are there.",
            false => "That message is not parked any more.",
        }))
    }

    async fn go_on(
        &self,
        order: &OpenOrder,
        tick: &str,
        message: &str,
    ) -> Result<Said, RequestError> {
        let tick = self.tick(Some(tick)).await?;
        self.commands.rollback(order.agent, tick).await?;
        self.retry(order, Some(message)).await
    }

    async fn usage(&self, order: &OpenOrder) -> Result<Said, RequestError> {
        let ticks = self.commands.ticks(order.agent).await?;
        Ok(told::usage(&ticks))
    }

    async fn send_again(&self, file: &ReplyFile) -> Said {
        match self.blobs.read(&file.blob).await {
            Ok(_) => told::file(file.clone()),
            Err(error) => {
                tracing::warn!(blob = file.blob.as_str(), %error, "a file is not sent again");
                told::plain(format!(
                    "The file \"{}\" is not kept here any more: ask the agent for it.",
                    file.name
                ))
            }
        }
    }

    async fn export(&self, order: &OpenOrder) -> Result<Said, RequestError> {
        let prepared = self
            .commands
            .prepare_export(order.agent, None, ExportAs::default())
            .await?;
        let most = self.platforms.get(order.thread.platform.as_str());
        let most = most.map_or(MOST, |platform| platform.max_file().min(MOST));
        let (file, mut written) = temporary()?;
        let capped = Capped { file, left: most };
        let wrote = prepared.write(ExportTo::Tar(Box::new(capped))).await;
        let short = order.agent.short();
        if written.metadata().map_or(0, |meta| meta.len()) >= most {
            return Ok(told::plain(format!(
                "The archive has more than {} MiB, too much for a thread: `mayfly agent export {short} -o {short}.tar` writes it.",
                most >> 20
            )));
        }
        wrote?;
        written
            .seek(SeekFrom::Start(0))
            .map_err(|error| internal(&error))?;
        let kept = self.blobs.put_file(written, most).await;
        let (blob, size) = kept.map_err(|error| internal(&error))?;
        let file = ReplyFile {
            name: format!("agent-{short}.tar"),
            blob,
            size,
        };
        let reply = Reply {
            text: "`mayfly agent import` brings it to life elsewhere.".to_owned(),
            files: vec![file],
        };
        Ok(Said {
            reply,
            ..Said::default()
        })
    }

    async fn pressed(
        &self,
        order: &OpenOrder,
        wanted: Option<&Order>,
        pressed: &Pressed,
        label: &str,
    ) -> Option<Said> {
        let Some(wanted) = wanted else {
            self.answer_press(pressed, "Somebody else has decided already.")
                .await;
            return None;
        };
        if let Err(told) = self.may(order, wanted).await {
            self.answer_press(pressed, &told).await;
            // Whoever may decide still can.
            if let Err(error) = self.db.unpress(&pressed.button).await {
                tracing::warn!(%error, "a button stays used up");
            }
            return Some(told::plain(told));
        }
        let said = self.done(order, wanted).await;
        self.answer_press(pressed, label).await;
        // A post of progress is the outbox's: a second writer's word could stand over the reply.
        if !order.ask.is_stop() {
            self.close_question(order, pressed, label).await;
        }
        Some(said)
    }

    /// The question says how it was decided, without buttons.
    async fn close_question(&self, order: &OpenOrder, pressed: &Pressed, label: &str) {
        let Some(platform) = self.platforms.get(order.thread.platform.as_str()) else {
            return;
        };
        let line = platform.line(&format!("{label}: {}", pressed.by.name), &[]);
        let edit = platform.edit(&order.thread, &pressed.on.id, &line);
        if let Ok(Err(error)) = tokio::time::timeout(platform.patience(), edit).await {
            tracing::debug!(%error, "the buttons stay");
        }
    }

    async fn answer_press(&self, pressed: &Pressed, text: &str) {
        let Some(platform) = self.platforms.get(pressed.thread.platform.as_str()) else {
            return;
        };
        let answer = platform.answer(pressed, text);
        if let Ok(Err(error)) = tokio::time::timeout(platform.patience(), answer).await {
            tracing::debug!(%error, "a press is not answered");
        }
    }
}

/// Takes so many bytes and no more.
struct Capped {
    file: File,
    left: u64,
}

impl Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        if most == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let written = self.file.write(&bytes[..bytes.len().min(most)])?;
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A file without a name: to write, and the same to read from its beginning afterwards.
fn temporary() -> Result<(File, File), RequestError> {
    let made = tempfile::tempfile().and_then(|file| Ok((file.try_clone()?, file)));
    made.map_err(|error| internal(&error))
}
