//! `mayfly adopt`.

use mayfly_orchestrator::{
    clock::Lease,
    sandbox::{
        Backend as _,
        docker::{Docker, DockerOptions},
    },
    service,
    supervise::Supervisor,
};

use crate::{
    cli::Context,
    data_dir::{DataDir, Purpose},
    exit::{Exit, Failure},
};

pub(crate) async fn run(context: &Context) -> Result<Exit, Failure> {
    let path = &context.loaded.config.data_dir;
    if !path.is_dir() {
        let sentence = format!("there is no data dir {}: nothing to adopt", path.display());
        return Err(Failure::new(Exit::DataDir, sentence));
    }
    let held = DataDir::hold(path, Purpose::Command);
    let held = held.map_err(|error| Failure::new(Exit::DataDir, error))?;
    let engine = Docker::new(DockerOptions {
        host: Some(context.loaded.config.docker.host.clone()),
        supervisor: Supervisor::default(),
        lease: Lease::default(),
    });
    let engine = engine.engine().await.ok();
    let database = context.loaded.config.database.place(held.path());
    let database = database.map_err(|error| Failure::new(Exit::Configuration, error))?;
    let adopted = service::adopt(&database, held.path(), engine.as_ref()).await;
    let id = adopted.map_err(|error| Failure::new(Exit::DataDir, error))?;
    context.screen.show(&id, |id, _| {
        format!(
            "data dir {} now belongs to installation {id}",
            path.display()
        )
    });
    Ok(Exit::Ok)
}
