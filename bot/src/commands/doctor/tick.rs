//! One real tick of an agent that is made for it and removed after it.

use std::time::{Duration, Instant};

use mayfly_domain::MessageOutcome;
use mayfly_orchestrator::{agent::profile::SHELL, view::MessageView};
use rand::RngCore;

use super::{Check, State};
use crate::{
    client::Client,
    config::Config,
    door,
    exit::Failure,
    http::wire::{CreateBody, SendBody},
    render,
};

/// Long enough for a base that must first be copied out of a large image.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) async fn check(config: &Config) -> Check {
    let since = Instant::now();
    match door::through(config, attempt).await {
        Ok(view) => judge(&view, since.elapsed()),
        Err(failure) => Check::not(
            State::Fail,
            "tick",
            failure.sentence,
            "mend what is named above, then run mayfly doctor again",
        ),
    }
}

async fn attempt(client: &Client) -> Result<MessageView, Failure> {
    let body = CreateBody {
        profile: Some(SHELL.to_owned()),
        sandbox: None,
    };
    let agent = client.create(&body).await?.id.to_string();
    let ended = talk(client, &agent).await;
    if let Ok(MessageView { outcome: None, .. }) = ended {
        let _ = client.stop(&agent, true).await;
    }
    let removed = client.remove(&agent, true).await;
    let ended = ended?;
    if ended.outcome.is_some() {
        removed?;
    }
    Ok(ended)
}

async fn talk(client: &Client, agent: &str) -> Result<MessageView, Failure> {
    let mut random = [0; 16];
    rand::rng().fill_bytes(&mut random);
    let body = SendBody {
        text: "echo \"mayfly $((40 + 2)) $(id -u)\" | tee note && cat note > /dev/null".to_owned(),
        files: Vec::new(),
        author: Some("doctor".to_owned()),
        sandbox: None,
    };
    let sent = client.send(agent, &body, &hex::encode(random)).await?;
    Ok(client.message(&sent.id.to_string(), PATIENCE).await?)
}

fn judge(view: &MessageView, took: Duration) -> Check {
    let reply = view.reply.as_ref().map_or("", |reply| reply.text.trim());
    match view.outcome {
        Some(MessageOutcome::Answered) if reply.contains("mayfly 42") => {
            Check::ok("tick", format!("one real tick in {} ms", took.as_millis()))
        }
        Some(_) => Check::not(
            State::Fail,
            "tick",
            format!("the shell agent answered: {reply}"),
            "profiles.shell must run the message as a command and be able to write its folder",
        ),
        None => Check::not(
            State::Fail,
            "tick",
            format!(
                "no answer within {} s: {}",
                PATIENCE.as_secs(),
                render::state(view)
            ),
            "see the log of mayfly serve",
        ),
    }
}
