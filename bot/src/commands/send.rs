//! Sends one message and waits for what becomes of it.

use std::{
    cell::RefCell,
    ffi::OsStr,
    io::{IsTerminal, Read, stderr, stdin},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    time::Duration,
};

use indicatif::ProgressBar;
use mayfly_domain::{MAX_TEXT, MessageOutcome, SandboxRef, check_text};
use mayfly_orchestrator::view::MessageView;
use rand::RngCore;
use tokio::time::Instant;

use super::attach::{self, Given};
use crate::{
    cli::{Context, Waiting},
    client::Client,
    exit::{Exit, Failure},
    http::wire::SendBody,
    render,
    screen::Screen,
};

/// The text as given, or standard input for `-`.
pub(crate) fn read(text: &OsStr) -> Result<String, Failure> {
    let mut bytes = text.as_bytes().to_vec();
    if bytes == b"-" {
        bytes.clear();
        // One byte more than fits, so that more is refused and an endless stream ends.
        let mut input = stdin().lock().take(MAX_TEXT as u64 + 1);
        let read = input.read_to_end(&mut bytes);
        read.map_err(|error| {
            Failure::new(
                Exit::Refused,
                format!("standard input cannot be read: {error}"),
            )
        })?;
        if bytes.len() > MAX_TEXT {
            let sentence = format!(
                "the message has more than {MAX_TEXT} bytes, which is the most that fits: send \
                 long content as a file"
            );
            return Err(Failure::new(Exit::Refused, sentence));
        }
    }
    match check_text(&bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(error) => Err(Failure::new(Exit::Refused, error)),
    }
}

/// A message that may be handed over more than once and counts once.
pub(crate) struct Post {
    body: SendBody,
    given: Given,
    output: Option<PathBuf>,
    saved: RefCell<Vec<PathBuf>>,
    key: String,
    patience: Patience,
    screen: Screen,
    /// What the server took, once it has.
    accepted: RefCell<Option<MessageView>>,
}

#[derive(Clone, Copy)]
enum Patience {
    None,
    Until(Instant),
    Endless,
}

impl Post {
    pub(crate) fn new(
        context: &Context,
        text: String,
        sandbox: Option<SandboxRef>,
        waiting: &Waiting,
    ) -> Self {
        let key = waiting.key.clone().unwrap_or_else(|| {
            let mut random = [0; 16];
            rand::rng().fill_bytes(&mut random);
            hex::encode(random)
        });
        let author = Some(context.loaded.person.clone());
        let longest = Duration::from_secs(86_400 * 365);
        let patience = match waiting {
            Waiting { no_wait: true, .. } => Patience::None,
            Waiting { timeout: None, .. } => Patience::Endless,
            Waiting {
                timeout: Some(seconds),
                ..
            } => Patience::Until(Instant::now() + Duration::from_secs(*seconds).min(longest)),
        };
        Post {
            given: Given::none(),
            output: None,
            saved: RefCell::default(),
            body: SendBody {
                text,
                files: Vec::new(),
                author,
                sandbox,
            },
            key,
            patience,
            screen: context.screen,
            accepted: RefCell::new(None),
        }
    }

    /// Files to go with it, and where those of the reply are saved.
    pub(crate) fn with(self, given: Given, output: Option<PathBuf>) -> Self {
        Post {
            given,
            output,
            ..self
        }
    }

    /// Where the files of the reply are, in the order of the reply.
    pub(crate) fn saved(&self) -> Vec<PathBuf> {
        self.saved.borrow().clone()
    }

    /// Hands over and waits.
    pub(crate) async fn deliver(
        &self,
        client: &Client,
        agent: &str,
    ) -> Result<MessageView, Failure> {
        let body = SendBody {
            files: self.given.upload(client).await?,
            ..self.body.clone()
        };
        let accepted = client.send(agent, &body, &self.key).await?;
        self.accepted.replace(Some(accepted.clone()));
        match self.patience {
            Patience::None => Ok(accepted),
            _ => {
                let spinner = self.screen.spinner();
                let ended = self.wait(client, accepted, &spinner).await;
                spinner.finish_and_clear();
                let ended = ended?;
                if let Some(folder) = &self.output {
                    self.saved
                        .replace(attach::save(client, &ended, folder).await?);
                }
                Ok(ended)
            }
        }
    }

    /// What became of the message when the wait for it was cut short.
    pub(crate) fn told(&self, failure: Failure) -> Failure {
        let cut = failure.exit == Exit::Interrupted || failure.server_gone;
        if !cut {
            return failure;
        }
        let fate = match &*self.accepted.borrow() {
            Some(message) => format!(
                "message {} is accepted and will be answered: see mayfly agent log {}",
                message.id.short(),
                message.agent.short()
            ),
            None => format!(
                "whether the message was accepted is not known: send it again with --key {}, it \
                 counts once",
                self.key
            ),
        };
        Failure {
            sentence: format!("{}; {fate}", failure.sentence),
            ..failure
        }
    }

    async fn wait(
        &self,
        client: &Client,
        accepted: MessageView,
        spinner: &ProgressBar,
    ) -> Result<MessageView, Failure> {
        let mut id = accepted.id.to_string();
        // Somebody who looks sees each step; nobody else needs more than the outcome.
        let look = match stderr().is_terminal() && !self.screen.json {
            true => Duration::from_secs(1),
            false => Duration::from_secs(5),
        };
        let mut view = accepted;
        let mut told = false;
        loop {
            match (view.outcome, view.merged_into) {
                (None, _) => {}
                // It is answered together with others, by the first of them.
                (Some(MessageOutcome::Merged), Some(first)) => {
                    id = first.to_string();
                    view = client.message(&id, Duration::ZERO).await?;
                    continue;
                }
                (Some(_), _) => break,
            }
            spinner.set_message(render::state(&view));
            let asked = client.message(&id, look);
            view = match self.patience {
                Patience::Until(end) => match tokio::time::timeout_at(end, asked).await {
                    Ok(view) => view?,
                    Err(_) => {
                        if !told {
                            self.tell_trouble(client, spinner).await;
                        }
                        return Ok(client.message(&id, Duration::ZERO).await?);
                    }
                },
                _ => asked.await?,
            };
            if view.outcome.is_none() && !told {
                told = self.tell_trouble(client, spinner).await;
            }
        }
        Ok(view)
    }

    /// Says why nothing gets on, if the service knows.
    async fn tell_trouble(&self, client: &Client, spinner: &ProgressBar) -> bool {
        let ready = client.ready().await;
        let problems = ready.map_or_else(|_| Vec::new(), |ready| ready.problems);
        for problem in &problems {
            spinner.suspend(|| self.screen.notice(&format!("waiting: {problem}")));
        }
        !problems.is_empty()
    }
}

/// Prints a message's end: the reply to standard output, all else to standard error.
pub(crate) fn ended(
    context: &Context,
    view: &MessageView,
    waiting: &Waiting,
    saved: &[PathBuf],
) -> Result<Exit, Failure> {
    let screen = context.screen;
    if screen.json {
        screen.json(view);
        return Ok(exit(view, waiting));
    }
    let reply = view.reply.as_ref().map_or("", |reply| reply.text.as_str());
    match view.outcome {
        Some(MessageOutcome::Answered) => {
            screen.answer(reply);
            files(context, view, saved);
        }
        Some(outcome) => {
            let reason = view.reason.as_deref().unwrap_or_default();
            let told = if reply.is_empty() { reason } else { reply };
            screen.notice(&match told {
                "" => format!("message {} was {}", view.id.short(), outcome.as_str()),
                told => told.to_owned(),
            });
            files(context, view, saved);
            if outcome == MessageOutcome::Parked {
                let again = format!("try again with: mayfly parked retry {}", view.id.short());
                screen.notice(&again);
            }
        }
        None if waiting.no_wait => screen.answer(&view.id.to_string()),
        None => screen.notice(&format!(
            "no answer yet ({}): message {} stays on its way, see mayfly agent log {}",
            render::state(view),
            view.id.short(),
            view.agent.short()
        )),
    }
    Ok(exit(view, waiting))
}

/// Tells where the files of the reply are.
fn files(context: &Context, view: &MessageView, saved: &[PathBuf]) {
    let sent = view.reply.as_ref().map_or(&[][..], |reply| &reply.files);
    for (n, file) in sent.iter().enumerate() {
        let size = render::bytes(file.size);
        context.screen.notice(&match (saved.get(n), view.tick) {
            (Some(path), _) => format!("file: {} ({size})", path.display()),
            (None, Some(tick)) => format!(
                "file: {} ({size}), see mayfly agent files {} {} send",
                file.name,
                view.agent.short(),
                tick.short()
            ),
            (None, None) => format!("file: {} ({size})", file.name),
        });
    }
}

pub(crate) fn exit(view: &MessageView, waiting: &Waiting) -> Exit {
    match view.outcome {
        Some(outcome) => outcome.into(),
        None if waiting.no_wait => Exit::Ok,
        None => Exit::Timeout,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_text_is_refused_before_anything_is_sent() {
        let fault = |bytes: &[u8]| read(OsStr::from_bytes(bytes)).unwrap_err();
        assert!(fault(b"").to_string().contains("empty"));
        assert!(
            fault(b"a\xff")
                .to_string()
                .contains("not valid UTF-8 at offset 1")
        );
        assert_eq!(fault(&vec![b'a'; MAX_TEXT + 1]).exit, Exit::Refused);
        assert_eq!(read(OsStr::new("-x")).unwrap(), "-x");
    }
}
