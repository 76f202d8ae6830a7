//! `mayfly agent …`.

use std::{cell::RefCell, ffi::OsStr};

use mayfly_domain::SandboxRef;
use mayfly_orchestrator::view::{AgentView, MessageView};
use serde::Serialize;

use super::{
    attach, portable, send,
    states::{self, Shown},
};
use crate::{
    cli::{AgentVerb, Context, Waiting},
    client::once,
    door,
    exit::{Exit, Failure},
    http::{ExportBody, wire::CreateBody},
    render,
};

pub(crate) async fn run(context: &Context, verb: AgentVerb) -> Result<Exit, Failure> {
    let config = &context.loaded.config;
    let screen = context.screen;
    match verb {
        AgentVerb::New {
            profile,
            sandbox,
            message,
            waiting,
        } => return new(context, profile, sandbox, message.as_deref(), &waiting).await,
        AgentVerb::Send {
            agent,
            text,
            file,
            output,
            sandbox,
            waiting,
        } => {
            let inputs = file.iter().filter(|path| path.as_os_str() == "-").count();
            if inputs + usize::from(text == "-") > 1 {
                let told = "standard input is one thing only: name - once";
                return Err(Failure::new(Exit::Usage, told));
            }
            let given = attach::Given::new(file, config.attachments)?;
            let text = send::read(&text)?;
            let post = send::Post::new(context, text, sandbox, &waiting).with(given, output);
            let sent = door::through(config, async |client| {
                let post = &post;
                post.deliver(client, &agent).await
            });
            let view = sent.await.map_err(|failure| post.told(failure))?;
            return send::ended(context, &view, &waiting, &post.saved());
        }
        AgentVerb::List => {
            let agents = door::through(config, async |client| Ok(client.agents().await?)).await?;
            if agents.is_empty() && !screen.json {
                screen.notice("no agents yet: mayfly agent new makes one");
            }
            screen.show(&agents, |agents, screen| render::agents(agents, screen));
        }
        AgentVerb::Show { agent } => {
            let view = door::through(config, async |client| Ok(client.agent(&agent).await?));
            screen.show(&view.await?, render::agent);
        }
        AgentVerb::Log { agent, graph: true } => return states::graph(context, &agent).await,
        AgentVerb::Log { agent, .. } => {
            let ticks = door::through(config, async |client| Ok(client.ticks(&agent).await?));
            let ticks = ticks.await?;
            if ticks.is_empty() && !screen.json {
                screen.notice(&format!("no ticks yet: mayfly agent send {agent} TEXT"));
            }
            screen.show(&ticks, |ticks, screen| render::ticks(ticks, screen));
        }
        AgentVerb::Diff {
            agent,
            from,
            to,
            stat,
            name_only,
        } => {
            let shown = match (stat, name_only) {
                (true, _) => Shown::Stat,
                (_, true) => Shown::Names,
                _ => Shown::Lines,
            };
            return states::diff(context, &agent, from.as_deref(), to.as_deref(), shown).await;
        }
        AgentVerb::Files {
            agent,
            tick,
            path,
            recursive,
        } => return states::files(context, &agent, tick, path, recursive).await,
        AgentVerb::Cat { agent, tick, path } => {
            return states::cat(context, &agent, &tick, &path).await;
        }
        AgentVerb::Rollback { agent, tick } => {
            let view = door::through(config, async |client| {
                let back = client.rollback(&agent, tick.clone()).await;
                once(back, &format!("mayfly agent show {agent}"))
            });
            screen.show(&view.await?, |view, _| render::rollback(view));
        }
        AgentVerb::Fork { agent, tick } => {
            let view = door::through(config, async |client| {
                once(client.fork(&agent, tick.clone()).await, "mayfly agent list")
            });
            screen.show(&view.await?, |view, _| view.short.clone());
        }
        AgentVerb::Export {
            agent,
            tick,
            output,
            compress,
            without_base,
        } => {
            let body = ExportBody {
                agent,
                tick,
                into: output,
                compress,
                without_base,
            };
            return portable::export(context, body).await;
        }
        AgentVerb::Import { from } => return portable::import(context, &from).await,
        AgentVerb::Rm { agent, force } => {
            door::through(config, async |client| {
                once(client.remove(&agent, force).await, "mayfly agent list")
            })
            .await?;
            let removed = Removed { removed: &agent };
            screen.show(&removed, |_, _| format!("agent {agent} is removed"));
        }
        AgentVerb::Stop { agent, all } => {
            let view = door::through(config, async |client| {
                let stop = client.stop(&agent, all).await;
                once(stop, &format!("mayfly agent log {agent}"))
            });
            screen.show(&view.await?, |view, _| render::stop(view));
        }
    }
    Ok(Exit::Ok)
}

/// `agent rm --json`.
#[derive(Serialize)]
struct Removed<'a> {
    removed: &'a str,
}

/// `agent new --json`.
#[derive(Serialize)]
struct Made<'a> {
    agent: &'a AgentView,
    message: Option<&'a MessageView>,
}

async fn new(
    context: &Context,
    profile: Option<String>,
    sandbox: Option<SandboxRef>,
    message: Option<&OsStr>,
    waiting: &Waiting,
) -> Result<Exit, Failure> {
    let config = &context.loaded.config;
    let screen = context.screen;
    let post = match message {
        Some(text) => Some(send::Post::new(context, send::read(text)?, None, waiting)),
        None => None,
    };
    let body = CreateBody { profile, sandbox };
    // Kept over a second try, so that it makes no second agent.
    let made: RefCell<Option<AgentView>> = RefCell::new(None);
    let done = door::through(config, async |client| {
        let known = made.borrow().clone();
        let agent = match known {
            Some(agent) => agent,
            None => {
                let agent = once(client.create(&body).await, "mayfly agent list")?;
                if post.is_some() && !screen.json {
                    screen.notice(&format!("agent {}", agent.short));
                }
                made.borrow_mut().insert(agent).clone()
            }
        };
        let message = match &post {
            Some(post) => Some(post.deliver(client, &agent.id.to_string()).await?),
            None => None,
        };
        Ok((agent, message))
    });
    let (agent, message) = done.await.map_err(|failure| match &post {
        Some(post) if made.borrow().is_some() => post.told(failure),
        _ => failure,
    })?;
    if screen.json {
        screen.json(&Made {
            agent: &agent,
            message: message.as_ref(),
        });
    }
    match message {
        Some(view) if screen.json => Ok(send::exit(&view, waiting)),
        Some(view) => send::ended(context, &view, waiting, &[]),
        None => {
            if !screen.json {
                screen.answer(&agent.short);
            }
            Ok(Exit::Ok)
        }
    }
}
