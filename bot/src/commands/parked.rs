//! `mayfly parked …`.

use crate::{
    cli::{Context, ParkedVerb},
    client::once,
    door,
    exit::{Exit, Failure},
    render,
};

pub(crate) async fn run(context: &Context, verb: ParkedVerb) -> Result<Exit, Failure> {
    let config = &context.loaded.config;
    let screen = context.screen;
    match verb {
        ParkedVerb::List => {
            let parked = door::through(config, async |client| Ok(client.parked().await?)).await?;
            if parked.is_empty() && !screen.json {
                screen.notice("nothing is parked");
            }
            screen.show(&parked, |parked, screen| render::parked(parked, screen));
        }
        ParkedVerb::Retry { message } => {
            let view = door::through(config, async |client| {
                once(client.retry(&message).await, "mayfly parked list")
            });
            screen.show(&view.await?, |view, _| {
                format!("message {}: {}", view.id.short(), render::state(view))
            });
        }
    }
    Ok(Exit::Ok)
}
