//! The embedded database: one file, one writing connection.

use std::{fs::OpenOptions, os::unix::fs::OpenOptionsExt as _, path::Path, time::Duration};

use sqlx::{
    AnyConnection, AnyPool, Connection as _, Row as _,
    any::AnyPoolOptions,
    migrate::{MigrateError, Migrator},
};

use super::{
    DbError, copy,
    error::{is_full, reason},
};

static MIGRATIONS: Migrator = sqlx::migrate!("../migrations/sqlite");

/// The writer and the readers, of a file that is up to date.
pub(super) async fn open(path: &Path) -> Result<(AnyPool, AnyPool), DbError> {
    let shown = path.display().to_string();
    let open = |error: sqlx::Error| match is_full(&error) {
        true => DbError::Full {
            path: shown.clone(),
        },
        false => DbError::Open {
            path: shown.clone(),
            reason: reason(&error),
        },
    };
    private_file(path).map_err(|error| open(sqlx::Error::Io(error)))?;
    let url = format!("sqlite://{}?mode=rw", path.display());
    // A pool would try what cannot work for as long as one waits for a connection.
    let mut first = AnyConnection::connect(&url).await.map_err(open)?;
    prepare(&mut first).await.map_err(open)?;
    let newest = MIGRATIONS.iter().map(|migration| migration.version).max();
    copy::keep_before_upgrade(&mut first, path, newest.unwrap_or(0))
        .await
        .map_err(open)?;
    first.close().await.map_err(open)?;
    let write = pool(1).connect(&url).await.map_err(open)?;
    if let Err(error) = MIGRATIONS.run(&write).await {
        return Err(match error {
            MigrateError::VersionMissing(_) | MigrateError::VersionTooNew(..) => DbError::Newer {
                place: shown.clone(),
                ours: env!("CARGO_PKG_VERSION"),
                theirs: written_by(&write).await,
                kept: copy::kept_before(path, env!("CARGO_PKG_VERSION")),
            },
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => open(error),
            MigrateError::VersionMismatch(number) => DbError::Open {
                path: shown.clone(),
                reason: format!("its migration {number} is not this build's"),
            },
            other => DbError::Open {
                path: shown.clone(),
                reason: other.to_string(),
            },
        });
    }
    let read = pool(4).connect_lazy(&url).map_err(open)?;
    Ok((write, read))
}

/// The newest version that opened it, if it is not ours.
async fn written_by(pool: &AnyPool) -> Option<String> {
    let asked = sqlx::query("SELECT written_by FROM installation").fetch_optional(pool);
    let theirs: String = asked.await.ok()??.try_get(0).ok()?;
    (theirs != env!("CARGO_PKG_VERSION")).then_some(theirs)
}

/// The database and the files SQLite puts beside it are for their owner only.
fn private_file(path: &Path) -> std::io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))
}

fn pool(connections: u32) -> AnyPoolOptions {
    AnyPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(Duration::from_secs(60))
        // A full disk can end a transaction behind the driver's back: its rollback then fails, it
        // goes on counting the transaction, and would refuse every later one.
        .before_acquire(|connection, _| {
            let clean = !connection.is_in_transaction();
            Box::pin(async move { Ok(clean) })
        })
        .after_connect(|connection, _| Box::pin(prepare(connection)))
}

async fn prepare(connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    use sqlx::Executor as _;
    // The time-out comes first: switching to WAL takes a lock itself.
    for pragma in [
        "PRAGMA busy_timeout=30000",
        "PRAGMA journal_mode=WAL",
        "PRAGMA synchronous=FULL",
        "PRAGMA foreign_keys=ON",
        "PRAGMA cache_size=-2000",
    ] {
        connection.execute(pragma).await?;
    }
    Ok(())
}
