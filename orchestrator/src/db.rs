//! The database is the truth: every row, every transaction, all SQL of the project.
//!
//! One code base for SQLite and PostgreSQL through `AnyPool`: BIGINT, TEXT and BLOB columns only,
//! `$n` placeholders, times as unix milliseconds. On SQLite there is one writing connection whose
//! transactions start as `BEGIN IMMEDIATE`, so no lock error reaches a tick.

pub mod agents;
pub mod arrivals;
pub mod attachments;
pub mod claims;
pub mod copy;
pub mod deliveries;
mod digits;
pub mod endings;
pub mod history;
pub mod images;
pub mod installation;
pub mod messages;
pub mod orders;
pub mod pairing;
pub mod parts;
pub mod pins;
pub mod portable;
pub mod posts;
pub mod progress;
pub mod remote;
pub mod retention;
pub mod shown;
pub mod snapshots;
pub mod ticks;
pub mod together;

use std::{
    fs::OpenOptions,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use sqlx::{
    Any, AnyConnection, AnyPool, Connection as _, Transaction,
    any::{AnyPoolOptions, install_default_drivers},
    migrate::{MigrateError, Migrator},
};

static SQLITE: Migrator = sqlx::migrate!("../migrations/sqlite");

/// What a query can go wrong with.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// The database said no.
    #[error("database: {0}")]
    Sql(#[from] sqlx::Error),
    /// A row holds what this program never writes.
    #[error("database: {table} row {id} holds an unreadable {column}")]
    Row {
        /// Which table.
        table: &'static str,
        /// Which row.
        id: String,
        /// Which column.
        column: &'static str,
    },
    /// The schema is not ours.
    #[error(
        "database {path} was written by a newer version of mayfly than this {ours}: run that version, or {}",
        kept.as_ref().map_or_else(
            || "restore the backup made before its upgrade".to_owned(),
            |kept| format!("put {} in its place, made before its upgrade (what came later is lost)", kept.display()),
        )
    )]
    Newer {
        /// The database file.
        path: String,
        /// This program's version.
        ours: &'static str,
        /// How it was before a newer version changed it, if that is still there.
        kept: Option<PathBuf>,
    },
    /// No room for another byte of it.
    #[error("the disk with database {path} is full: free some space on it")]
    Full {
        /// The database file.
        path: String,
    },
    /// The file cannot be used.
    #[error(
        "database {path} cannot be opened ({reason}): restore it from a backup, or name another data dir"
    )]
    Open {
        /// The database file.
        path: String,
        /// Why, in one line.
        reason: String,
    },
}

impl DbError {
    /// Whether it works again once there is room on the disk.
    pub fn is_full(&self) -> bool {
        match self {
            DbError::Full { .. } => true,
            DbError::Sql(error) => is_full(error),
            _ => false,
        }
    }

    /// Whether the same will most likely fail again: what is stored, or is to be, breaks a rule.
    pub fn is_lasting(&self) -> bool {
        match self {
            DbError::Row { .. } => true,
            DbError::Sql(sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)) => true,
            DbError::Sql(sqlx::Error::Database(error)) => {
                error.is_unique_violation()
                    || error.is_foreign_key_violation()
                    || error.is_check_violation()
            }
            _ => false,
        }
    }
}

/// A handle on the database; cheap to clone.
#[derive(Debug, Clone)]
pub struct Db {
    write: AnyPool,
    read: AnyPool,
    done: pins::Done,
    held: Arc<pins::Held>,
}

/// A write transaction; rolled back when dropped.
pub type Tx = Transaction<'static, Any>;

impl Db {
    /// Opens (or makes) the embedded database and brings its schema up to date.
    pub async fn open(path: &Path) -> Result<Db, DbError> {
        install_default_drivers();
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
        let newest = SQLITE.iter().map(|migration| migration.version).max();
        copy::keep_before_upgrade(&mut first, path, newest.unwrap_or(0))
            .await
            .map_err(open)?;
        first.close().await.map_err(open)?;
        let write = pool(1).connect(&url).await.map_err(open)?;
        SQLITE.run(&write).await.map_err(|error| match error {
            MigrateError::VersionMissing(_) | MigrateError::VersionTooNew(..) => DbError::Newer {
                path: shown.clone(),
                ours: env!("CARGO_PKG_VERSION"),
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
        })?;
        let read = pool(4).connect_lazy(&url).map_err(open)?;
        Ok(Db {
            write,
            read,
            done: pins::Done::default(),
            held: Arc::default(),
        })
    }

    /// A transaction that may write.
    pub async fn begin(&self) -> Result<Tx, DbError> {
        Ok(self.write.begin_with("BEGIN IMMEDIATE").await?)
    }

    /// For single statements that read.
    fn reader(&self) -> &AnyPool {
        &self.read
    }

    /// For single statements that write.
    fn writer(&self) -> &AnyPool {
        &self.write
    }

    /// Waits until every connection is back and closed.
    pub async fn close(&self) {
        self.read.close().await;
        self.write.close().await;
    }
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

/// SQLite's own codes: no room for a page, or for the index of its log (SQLITE_FULL,
/// SQLITE_IOERR_SHMSIZE; <https://sqlite.org/rescode.html>).
fn is_full(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => error.kind() == std::io::ErrorKind::StorageFull,
        error => error
            .as_database_error()
            .and_then(|error| error.code())
            .is_some_and(|code| ["13", "4874"].contains(&&*code)),
    }
}

/// What the database itself said.
fn reason(error: &sqlx::Error) -> String {
    match error.as_database_error() {
        Some(error) => error.message().to_owned(),
        None => error.to_string(),
    }
}

/// Reads a stored text as a domain type.
fn parse<T: std::str::FromStr>(
    table: &'static str,
    id: &str,
    column: &'static str,
    text: &str,
) -> Result<T, DbError> {
    text.parse().map_err(|_| DbError::Row {
        table,
        id: id.to_owned(),
        column,
    })
}

/// Reads an optional stored text as a domain type.
fn parse_opt<T: std::str::FromStr>(
    table: &'static str,
    id: &str,
    column: &'static str,
    text: Option<&str>,
) -> Result<Option<T>, DbError> {
    text.map(|text| parse(table, id, column, text)).transpose()
}

/// Reads the first column of each row as an id.
fn ids<T: std::str::FromStr>(
    table: &'static str,
    rows: &[sqlx::any::AnyRow],
) -> Result<Vec<T>, DbError> {
    use sqlx::Row as _;
    rows.iter()
        .map(|row| {
            let id: String = row.try_get(0)?;
            parse(table, &id, "id", &id)
        })
        .collect()
}
