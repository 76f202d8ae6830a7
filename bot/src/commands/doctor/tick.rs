//! One real tick of an agent that is made for it and removed after it, and what the service that
//! ran it says of itself.

use std::time::{Duration, Instant};

use mayfly_domain::MessageOutcome;
use mayfly_orchestrator::{
    agent::profile::SHELL,
    view::{MessageView, PairedView, ReadyView},
};
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

pub(super) async fn checks(config: &Config) -> Vec<Check> {
    let since = Instant::now();
    let done = door::through(config, async |client| {
        let ended = attempt(client).await?;
        Ok((ended, client.ready().await?, client.paired().await?))
    });
    match done.await {
        Ok((view, ready, paired)) => {
            let mut checks = vec![judge(&view, since.elapsed())];
            checks.extend(service(&ready));
            checks.extend((!paired.is_empty()).then(|| people(&paired)));
            checks
        }
        Err(failure) => vec![Check::not(
            State::Fail,
            "tick",
            failure.sentence,
            "mend what is named above, then run mayfly doctor again",
        )],
    }
}

/// Who may speak without being named in the configuration.
fn people(paired: &[PairedView]) -> Check {
    let named = paired
        .iter()
        .map(|one| format!("{} ({})", one.name, one.person));
    Check::ok("paired", named.collect::<Vec<_>>().join(", "))
}

/// Why messages wait, and what the service warns of; each sentence holds its own way out.
fn service(ready: &ReadyView) -> Vec<Check> {
    let told = |state: State, sentence: &String| {
        let (found, mend) = sentence
            .split_once(": ")
            .unwrap_or((sentence, "see the log of mayfly serve"));
        Check::not(state, "service", found, mend)
    };
    let problems = ready.problems.iter().map(|one| told(State::Fail, one));
    let warnings = ready.warnings.iter().map(|one| told(State::Warn, one));
    let all: Vec<Check> = problems.chain(warnings).collect();
    match all.is_empty() {
        true => vec![Check::ok("service", "nothing waits, nothing is left")],
        false => all,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_service_says_of_itself_is_shown_with_its_way_out() {
        let ready = ReadyView {
            ready: false,
            problems: vec!["image x is not on this host: pull it".into()],
            warnings: vec!["the sandbox s cannot be removed: look at it".into()],
        };
        let checks = service(&ready);
        let states: Vec<State> = checks.iter().map(|check| check.state).collect();
        assert_eq!(states, [State::Fail, State::Warn]);
        assert_eq!(checks[0].mend.as_deref(), Some("pull it"));
        assert_eq!(checks[1].found, "the sandbox s cannot be removed");
        let well = ReadyView {
            ready: true,
            problems: Vec::new(),
            warnings: Vec::new(),
        };
        assert_eq!(service(&well)[0].state, State::Ok);
    }
}
