//! `mayfly gc`.

use crate::{
    cli::Context,
    client::once,
    door,
    exit::{Exit, Failure},
    http::wire::GcBody,
    render,
};

pub(crate) async fn run(context: &Context, body: GcBody) -> Result<Exit, Failure> {
    let config = &context.loaded.config;
    let view = door::through(config, async |client| {
        once(client.gc(&body).await, "mayfly gc --dry-run")
    });
    let view = view.await?;
    let held = view.held.clone();
    context.screen.show(&view, |view, _| render::gc(view));
    match held {
        None => Ok(Exit::Ok),
        Some(why) => Err(Failure::new(
            Exit::Refused,
            format!("nothing is removed: {why}"),
        )),
    }
}
