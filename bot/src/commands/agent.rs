//! `mayfly agent …`.

use std::{cell::RefCell, ffi::OsStr};

use mayfly_domain::SandboxRef;
use mayfly_orchestrator::view::{AgentView, MessageView};
use serde::Serialize;

use super::{
    portable, send,
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
    match verb {
        AgentVerb::New {
            profile,
            sandbox,
            message,
            waiting,
        } => new(context, profile, sandbox, message.as_deref(), &waiting).await,
        AgentVerb::Send {
            agent,
            text,
            sandbox,
            waiting,
        } => say(context, &agent, &text, sandbox, &waiting).await,
        AgentVerb::List => list(context).await,
        AgentVerb::Show { agent } => show(context, &agent).await,
        AgentVerb::Stop { agent, all } => stop(context, &agent, all).await,
        AgentVerb::Rm { agent, force } => remove(context, &agent, force).await,
        AgentVerb::Log { agent, graph: true } => states::graph(context, &agent).await,
        AgentVerb::Log { agent, .. } => log(context, &agent).await,
        AgentVerb::Diff {
            agent,
            from,
            to,
            stat,
            name_only,
        } => {
            let shown = Shown::of(stat, name_only);
            states::diff(context, &agent, from.as_deref(), to.as_deref(), shown).await
        }
        AgentVerb::Files {
            agent,
            tick,
            path,
            recursive,
        } => states::files(context, &agent, tick, path, recursive).await,
        AgentVerb::Cat { agent, tick, path } => states::cat(context, &agent, &tick, &path).await,
        AgentVerb::Rollback { agent, tick } => rollback(context, &agent, tick).await,
        AgentVerb::Fork { agent, tick } => fork(context, &agent, tick).await,
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
            portable::export(context, body).await
        }
        AgentVerb::Import { from } => portable::import(context, &from).await,
    }
}

async fn say(
    context: &Context,
    agent: &str,
    text: &OsStr,
    sandbox: Option<SandboxRef>,
    waiting: &Waiting,
) -> Result<Exit, Failure> {
    let post = send::Post::new(context, send::read(text)?, sandbox, waiting);
    let sent = door::through(&context.loaded.config, async |client| {
        let post = &post;
        post.deliver(client, agent).await
    });
    let view = sent.await.map_err(|failure| post.told(failure))?;
    send::ended(context, &view, waiting)
}

async fn list(context: &Context) -> Result<Exit, Failure> {
    let (config, screen) = (&context.loaded.config, context.screen);
    let agents = door::through(config, async |client| Ok(client.agents().await?)).await?;
    if agents.is_empty() && !screen.json {
        screen.notice("no agents yet: mayfly agent new makes one");
    }
    screen.show(&agents, |agents, screen| render::agents(agents, screen));
    Ok(Exit::Ok)
}

async fn show(context: &Context, agent: &str) -> Result<Exit, Failure> {
    let config = &context.loaded.config;
    let view = door::through(config, async |client| Ok(client.agent(agent).await?));
    context.screen.show(&view.await?, render::agent);
    Ok(Exit::Ok)
}

async fn log(context: &Context, agent: &str) -> Result<Exit, Failure> {
    let (config, screen) = (&context.loaded.config, context.screen);
    let ticks = door::through(config, async |client| Ok(client.ticks(agent).await?)).await?;
    if ticks.is_empty() && !screen.json {
        screen.notice(&format!("no ticks yet: mayfly agent send {agent} TEXT"));
    }
    screen.show(&ticks, |ticks, screen| render::ticks(ticks, screen));
    Ok(Exit::Ok)
}

async fn rollback(context: &Context, agent: &str, tick: Option<String>) -> Result<Exit, Failure> {
    let view = door::through(&context.loaded.config, async |client| {
        let back = client.rollback(agent, tick.clone()).await;
        once(back, &format!("mayfly agent show {agent}"))
    });
    let view = view.await?;
    context.screen.show(&view, |view, _| render::rollback(view));
    Ok(Exit::Ok)
}

async fn fork(context: &Context, agent: &str, tick: Option<String>) -> Result<Exit, Failure> {
    let view = door::through(&context.loaded.config, async |client| {
        once(client.fork(agent, tick.clone()).await, "mayfly agent list")
    });
    let view = view.await?;
    context.screen.show(&view, |view, _| view.short.clone());
    Ok(Exit::Ok)
}

async fn remove(context: &Context, agent: &str, force: bool) -> Result<Exit, Failure> {
    door::through(&context.loaded.config, async |client| {
        once(client.remove(agent, force).await, "mayfly agent list")
    })
    .await?;
    let removed = Removed { removed: agent };
    let told = format!("agent {agent} is removed");
    context.screen.show(&removed, |_, _| told.clone());
    Ok(Exit::Ok)
}

async fn stop(context: &Context, agent: &str, all: bool) -> Result<Exit, Failure> {
    let view = door::through(&context.loaded.config, async |client| {
        let stop = client.stop(agent, all).await;
        once(stop, &format!("mayfly agent log {agent}"))
    });
    let view = view.await?;
    context.screen.show(&view, |view, _| render::stop(view));
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
        Some(view) => send::ended(context, &view, waiting),
        None => {
            if !screen.json {
                screen.answer(&agent.short);
            }
            Ok(Exit::Ok)
        }
    }
}
