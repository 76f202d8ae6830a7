//! `mayfly adopt`.

use mayfly_orchestrator::service;

use crate::{
    cli::Context,
    data_dir::DataDir,
    exit::{Exit, Failure},
};

pub(crate) async fn run(context: &Context) -> Result<Exit, Failure> {
    let path = &context.loaded.config.data_dir;
    if !path.is_dir() {
        let sentence = format!("there is no data dir {}: nothing to adopt", path.display());
        return Err(Failure::new(Exit::DataDir, sentence));
    }
    let held = DataDir::hold(path).map_err(|error| Failure::new(Exit::DataDir, error))?;
    let adopted = service::adopt(held.path()).await;
    let id = adopted.map_err(|error| Failure::new(Exit::DataDir, error))?;
    context.screen.show(&id, |id, _| {
        format!(
            "data dir {} now belongs to installation {id}",
            path.display()
        )
    });
    Ok(Exit::Ok)
}
