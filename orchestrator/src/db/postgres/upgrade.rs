//! Migrations of a PostgreSQL database: tried, after a backup, and once for all who start.
//!
//! An upgrade goes in three steps over releases: expand (new tables and columns, which older programs
//! pass over), backfill, contract. A contracting migration raises `installation.minimum_version`; until
//! then programs of the release before may run, and start, beside this one.

use std::{path::PathBuf, process::Stdio};

use sqlx::{
    AnyConnection, Connection as _, Executor as _, Row as _,
    migrate::{MigrateError, Migration, Migrator},
};
use tokio::process::Command;

use super::{
    super::{DbError, copy, error::reason, installation::version, place::Server},
    Refused, WRITERS,
};
use crate::faults;

static MIGRATIONS: Migrator = sqlx::migrate!("../migrations/postgres");

/// Held by the one process that upgrades.
const ALONE: &str = "SELECT pg_advisory_lock(7521962890042319)";
/// [`WRITERS`] for as long as the connection lives: workers of the release before write in between, and would each
/// have a lock that the other one wants.
const WRITE_ALONE: &str = "SELECT pg_advisory_lock(7521962890042318)";
/// Whoever freezes between two migrations is in no transaction, and holds up all writers. PostgreSQL 13 cannot tell.
const NOTICED: &str = "SELECT set_config('idle_session_timeout', '10s', false)
     WHERE CAST(current_setting('server_version_num') AS BIGINT) >= 140000";
const OURS: &str = env!("CARGO_PKG_VERSION");

/// The connection is of no use after it but to be closed.
pub(super) async fn bring_up_to_date(
    connection: &mut AnyConnection,
    server: &Server,
) -> Result<(), DbError> {
    connection.execute("SET lock_timeout = '10min'").await?;
    connection.execute(ALONE).await?;
    connection.execute("SET lock_timeout = '30s'").await?;
    let applied = applied(connection).await?;
    if applied
        .iter()
        .any(|number| !MIGRATIONS.version_exists(*number))
    {
        newer(connection, server).await?;
    }
    let is_new = |migration: &&Migration| !applied.contains(&migration.version);
    let pending: Vec<&Migration> = MIGRATIONS.iter().filter(is_new).collect();
    if !applied.is_empty() && !pending.is_empty() {
        try_out(connection, &pending, server).await?;
        keep_before_upgrade(server).await?;
    }
    let run = Migrator {
        migrations: MIGRATIONS.migrations.clone(),
        ignore_missing: true,
        ..Migrator::DEFAULT
    };
    if !pending.is_empty() {
        connection.execute(NOTICED).await?;
        // Let go when the connection is closed.
        connection.execute(WRITE_ALONE).await?;
        faults::point("upgrade.alone");
    }
    run.run(connection).await.map_err(|error| match error {
        MigrateError::VersionMismatch(number) => {
            let database = server.database().to_owned();
            Refused::Foreign { database, number }.into()
        }
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            tables(server, reason(&error)).into()
        }
        other => DbError::from(tables(server, other.to_string())),
    })
}

/// How many migrations are done, and how many the next start does; refused where that start would be.
pub(super) async fn compare(
    connection: &mut AnyConnection,
    server: &Server,
) -> Result<(usize, usize), DbError> {
    let applied = applied(connection).await?;
    if applied
        .iter()
        .any(|number| !MIGRATIONS.version_exists(*number))
    {
        newer(connection, server).await?;
    }
    let pending = MIGRATIONS
        .iter()
        .filter(|migration| !applied.contains(&migration.version));
    let pending = pending.count();
    let may = "SELECT CASE WHEN has_schema_privilege(current_schema(), 'CREATE') THEN 1 ELSE 0 END";
    let row = sqlx::query(may).fetch_one(connection).await?;
    if pending > 0 && row.try_get::<i64, _>(0)? == 0 {
        let reason = "it may not make tables in the schema".to_owned();
        return Err(tables(server, reason).into());
    }
    Ok((applied.len(), pending))
}

fn tables(server: &Server, reason: String) -> Refused {
    Refused::Tables {
        database: server.database().to_owned(),
        user: server.user(),
        reason,
    }
}

/// Numbers of the migrations that were done.
async fn applied(connection: &mut AnyConnection) -> Result<Vec<i64>, DbError> {
    let made = "SELECT count(*) FROM pg_class WHERE oid = to_regclass('_sqlx_migrations')";
    let made = sqlx::query(made).fetch_one(&mut *connection).await?;
    if made.try_get::<i64, _>(0)? == 0 {
        return Ok(Vec::new());
    }
    let done = sqlx::query("SELECT version FROM _sqlx_migrations WHERE success");
    let rows = done.fetch_all(connection).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// A newer version was here: it says whether this one may still be.
async fn newer(connection: &mut AnyConnection, server: &Server) -> Result<(), DbError> {
    let asked = sqlx::query("SELECT minimum_version, written_by FROM installation");
    let row = asked.fetch_optional(connection).await?;
    let Some(row) = row else { return Ok(()) };
    let (least, theirs): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    if version(&least) <= version(OURS) {
        tracing::info!(
            theirs,
            ours = OURS,
            "a newer version has been here: this one may still run"
        );
        return Ok(());
    }
    Err(DbError::Newer {
        place: server.shown(),
        ours: OURS,
        theirs: Some(theirs),
        kept: copy::kept_before(server.kept(), OURS),
    })
}

/// What fails here has changed nothing.
async fn try_out(
    connection: &mut AnyConnection,
    pending: &[&Migration],
    server: &Server,
) -> Result<(), DbError> {
    let mut trial = connection.begin().await?;
    trial.execute(WRITERS).await?;
    for migration in pending {
        let tried = trial.execute(migration.sql.clone()).await;
        tried.map_err(|error| {
            let number = migration.version;
            tables(
                server,
                format!("a trial of migration {number}: {}", reason(&error)),
            )
        })?;
    }
    Ok(trial.rollback().await?)
}

/// The database as it is, in a file of the data dir under this version's name.
async fn keep_before_upgrade(server: &Server) -> Result<(), DbError> {
    if server.backed_up() == Some(OURS) {
        return Ok(());
    }
    let refused = |reason: String| Refused::NoBackup {
        database: server.database().to_owned(),
        ours: OURS,
        reason,
    };
    let kept = copy::before(server.kept(), OURS);
    let aside = copy::before(server.kept(), "part");
    dump(server, &aside).await.map_err(refused)?;
    let settled = copy::put_in_place(&aside, &kept);
    settled.map_err(|error| refused(format!("{}: {error}", kept.display())))?;
    tracing::info!(kept = %kept.display(), "the database is upgraded: this is how it was before");
    Ok(())
}

async fn dump(server: &Server, into: &PathBuf) -> Result<(), String> {
    let mut command = Command::new("pg_dump");
    command
        .args(["--format=custom", "--no-password", "--file"])
        .arg(into)
        .arg("--dbname")
        .arg(server.shown())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    if let Some(password) = server.password() {
        command.env("PGPASSWORD", password);
    }
    let done = command.output().await;
    let done = done.map_err(|error| format!("pg_dump: {error}"))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
    }
}
