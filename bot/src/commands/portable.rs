//! `mayfly agent export`, `mayfly agent import`.

use std::path::{Path, PathBuf};

use mayfly_orchestrator::snapshot::oci::Exported;

use crate::{
    cli::Context,
    client::once,
    door,
    exit::{Exit, Failure},
    http::{ExportBody, ImportBody},
};

pub(crate) async fn export(context: &Context, mut body: ExportBody) -> Result<Exit, Failure> {
    body.into = absolute(&body.into)?;
    let look = body.into.display().to_string();
    let done = door::through(&context.loaded.config, async |client| {
        once(client.export(&body).await, &look)
    });
    let done = done.await?;
    context.screen.show(&done, |done: &Exported, _| {
        format!(
            "{look}: {} layers, {} bytes, {}",
            done.layers, done.bytes, done.digest
        )
    });
    Ok(Exit::Ok)
}

pub(crate) async fn import(context: &Context, from: &Path) -> Result<Exit, Failure> {
    let body = ImportBody {
        from: absolute(from)?,
    };
    let done = door::through(&context.loaded.config, async |client| {
        once(client.import(&body).await, "mayfly agent list")
    });
    let view = done.await?;
    context
        .screen
        .show(&view, |view, _| view.agent.short.clone());
    if !context.screen.json {
        for note in &view.notes {
            context.screen.notice(note);
        }
    }
    Ok(Exit::Ok)
}

/// The server has another working directory.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::new(Exit::Usage, error))
}
