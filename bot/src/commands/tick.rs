//! `mayfly tick …`.

use crate::{
    cli::Context,
    door,
    exit::{Exit, Failure},
    render,
};

pub(crate) async fn show(context: &Context, tick: &str) -> Result<Exit, Failure> {
    let config = &context.loaded.config;
    let detail = door::through(config, async |client| Ok(client.tick(tick).await?)).await?;
    context.screen.show(&detail, render::tick);
    Ok(Exit::Ok)
}
