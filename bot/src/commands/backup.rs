//! `mayfly backup`, `mayfly restore`, `mayfly doctor --layers`.

use std::path::{Path, PathBuf};

use mayfly_domain::AgentId;
use mayfly_orchestrator::{
    backup::{
        BackupView, ImageLeft, Manifest, ManifestError,
        inspect::{Damage, LayersView},
        restore::{self, RestoreError, RestoreView},
    },
    db::DbError,
};
use tokio_util::sync::CancellationToken;

use crate::{
    cli::Context,
    client::once,
    data_dir::{self, DataDir, Purpose},
    door::{self, Signals},
    exit::{Exit, Failure},
    http::{BackupBody, LayersBody},
    screen::Screen,
};

/// A damaged installation is backed up as far as it goes, and said to be damaged.
pub(crate) async fn take(
    context: &Context,
    folder: &Path,
    with_images: bool,
) -> Result<Exit, Failure> {
    let screen = context.screen;
    let body = BackupBody {
        into: absolute(folder)?,
        with_images,
    };
    let spinner = screen.spinner();
    spinner.set_message("backing up");
    let look = body.into.display().to_string();
    let taken = door::through(&context.loaded.config, async |client| {
        once(client.backup(&body).await, &look)
    });
    let taken = taken.await;
    spinner.finish_and_clear();
    let view = taken?;
    screen.show(&view, |view, _| backed_up(view));
    for folder in &view.damaged {
        screen.notice(&format!(
            "mayfly: {folder} is damaged and not in the backup: see mayfly doctor --layers"
        ));
    }
    for image in &view.images {
        screen.notice(&format!("mayfly: {}", lacks(image)));
    }
    Ok(match view.damaged.is_empty() {
        true => Exit::Ok,
        false => Exit::Damaged,
    })
}

pub(crate) async fn restore(context: &Context, folder: &Path) -> Result<Exit, Failure> {
    door::root()?;
    let screen = context.screen;
    if !context.loaded.config.database.url.is_empty() {
        let sentence = "restore makes an embedded database, and database.url names PostgreSQL: bring that back with \
             pg_restore from what pg_dump made, and the data dir from its copy";
        return Err(Failure::new(Exit::Refused, sentence));
    }
    let (folder, data_dir) = (absolute(folder)?, &context.loaded.config.data_dir);
    // Before a data dir is made for it.
    Manifest::read(&folder).map_err(|error| failure(error.into()))?;
    data_dir::check_path(data_dir).map_err(|error| Failure::new(Exit::DataDir, error))?;
    let held = DataDir::hold(data_dir, Purpose::Restore);
    let held = held.map_err(|error| Failure::new(Exit::DataDir, error))?;
    let mut signals = Signals::new()?;
    let stop = CancellationToken::new();
    let spinner = screen.spinner();
    spinner.set_message("restoring");
    let restoring = restore::restore(&folder, held.path(), stop.clone());
    tokio::pin!(restoring);
    let restored = tokio::select! {
        restored = &mut restoring => restored,
        () = signals.next() => {
            stop.cancel();
            restoring.await
        }
    };
    spinner.finish_and_clear();
    let view = restored.map_err(failure)?;
    screen.show(&view, |view, _| brought_back(view, data_dir));
    for folder in &view.damaged {
        screen.notice(&format!(
            "mayfly: {folder} was damaged before the backup: see mayfly doctor --layers"
        ));
    }
    for image in &view.images {
        screen.notice(&format!("mayfly: {}", lacks(image)));
    }
    Ok(Exit::Ok)
}

pub(crate) async fn layers(context: &Context, against: Option<&Path>) -> Result<Exit, Failure> {
    let screen = context.screen;
    let body = LayersBody {
        against: against.map(absolute).transpose()?,
    };
    if let Some(folder) = &body.against {
        Manifest::read(folder).map_err(|error| failure(error.into()))?;
    }
    let spinner = screen.spinner();
    spinner.set_message("looking at layers");
    let looked = door::through(&context.loaded.config, async |client| {
        Ok(client.layers(&body).await?)
    });
    let looked = looked.await;
    spinner.finish_and_clear();
    let view = looked?;
    screen.show(&view, found);
    Ok(match view.damaged.is_empty() {
        true => Exit::Ok,
        false => Exit::Damaged,
    })
}

/// The server's working folder is another one.
fn absolute(folder: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(folder).map_err(|error| Failure::new(Exit::Usage, error))
}

fn failure(error: RestoreError) -> Failure {
    let exit = match &error {
        RestoreError::Manifest(ManifestError::Absent(_)) => Exit::NotFound,
        RestoreError::Manifest(ManifestError::Unfinished { .. } | ManifestError::Format { .. }) => {
            Exit::NoBackup
        }
        RestoreError::Manifest(ManifestError::Damaged { .. }) => Exit::Damaged,
        RestoreError::Damaged { .. } => Exit::Damaged,
        RestoreError::NotEmpty { .. } => Exit::DataDir,
        RestoreError::NoRoom { .. } => Exit::Unavailable,
        RestoreError::Db(DbError::Newer { .. }) => Exit::NoBackup,
        RestoreError::Db(error) if error.is_full() => Exit::Unavailable,
        RestoreError::Db(_) => Exit::Damaged,
        RestoreError::Target(_) => Exit::DataDir,
        RestoreError::Stopped => Exit::Interrupted,
    };
    Failure::new(exit, error)
}

fn backed_up(view: &BackupView) -> String {
    let mib = view.bytes.div_ceil(1 << 20);
    let path = view.path.display();
    format!("{path}: {} layers, {mib} MiB", view.layers)
}

fn brought_back(view: &RestoreView, data_dir: &Path) -> String {
    let agents = match view.agents {
        1 => "1 agent is".to_owned(),
        count => format!("{count} agents are"),
    };
    format!(
        "{agents} in data dir {}, as installation {}: mayfly serve goes on with them; never \
         go on with the original too",
        data_dir.display(),
        view.installation
    )
}

fn lacks(image: &ImageLeft) -> String {
    match &image.registry {
        Some(name) => format!(
            "image {} is not in the backup: when it is needed the engine asks for {name}",
            image.id
        ),
        None => format!(
            "image {} is not in the backup and no registry has it: bring it along with docker \
             save and docker load, or take the backup with --with-images",
            image.id
        ),
    }
}

fn found(view: &LayersView, screen: Screen) -> String {
    let mut text = String::new();
    for damage in &view.damaged {
        let what = screen.red(&damage.folder);
        text += &format!("{what}: {}; {}\n", damage.damage, hurt(damage));
    }
    let (all, compared) = (view.looked_at, view.compared);
    let bad = view.damaged.len();
    text + &format!("{all} layers and bases, {compared} compared with a backup, {bad} damaged\n")
}

fn hurt(damage: &Damage) -> String {
    let names = |agents: &[AgentId]| {
        let short: Vec<String> = agents.iter().map(|agent| agent.short()).collect();
        short.join(", ")
    };
    match (&damage.agents[..], &damage.earlier[..]) {
        ([], []) => "no living agent needs it".to_owned(),
        ([], earlier) => format!("earlier ticks of {} are lost", names(earlier)),
        (now, []) => format!("agent {} needs it", names(now)),
        (now, earlier) => format!(
            "agent {} needs it, and earlier ticks of {}",
            names(now),
            names(earlier)
        ),
    }
}
