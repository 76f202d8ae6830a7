//! `mayfly page`.

use std::io;

use crate::{
    cli::Context,
    client::Client,
    data_dir::{self, DataDirError},
    exit::{Exit, Failure},
};

/// A server for a moment has no page, so only one that runs is asked.
pub(crate) async fn run(context: &Context) -> Result<Exit, Failure> {
    let path = &context.loaded.config.data_dir;
    let refused = |error| Failure::new(Exit::DataDir, error);
    data_dir::check_path(path).map_err(refused)?;
    let client = Client::new(data_dir::socket(path));
    match client.probe().await {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(refused(DataDirError::NoPermission(path.clone())));
        }
        Err(_) => {
            let told = format!(
                "no server runs on {}, and the page is served by one: start mayfly serve",
                path.display()
            );
            return Err(Failure::new(Exit::Unavailable, told));
        }
    }
    let view = client.page_link().await?;
    context.screen.show(&view, |view, _| view.link.clone());
    Ok(Exit::Ok)
}
