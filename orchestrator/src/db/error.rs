//! What a query, or opening the database, can go wrong with; each is one sentence.

use std::path::PathBuf;

use super::postgres::Refused;

/// What a query can go wrong with.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// The database said no, or nothing.
    #[error("database: {}", said(.0))]
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
        "database {place} was written by a newer version of mayfly{} than this {ours}: run that version, or {}",
        theirs.as_ref().map(|theirs| format!(", {theirs},")).unwrap_or_default(),
        kept.as_ref().map_or_else(
            || "restore the backup made before its upgrade".to_owned(),
            |kept| format!("put {} in its place, made before its upgrade (what came later is lost)", kept.display()),
        )
    )]
    Newer {
        /// Which database.
        place: String,
        /// This program's version.
        ours: &'static str,
        /// The version that wrote it, where it says so.
        theirs: Option<String>,
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
    /// PostgreSQL cannot be used.
    #[error(transparent)]
    Postgres(#[from] Refused),
    /// The others go on without this process.
    #[error(
        "the other workers have declared this one dead, since its lease was over: it ends itself, and may be started again"
    )]
    Over,
    /// Only files can be copied as files.
    #[error(
        "the rows are in PostgreSQL: back them up with pg_dump, and the data dir with any tool that keeps owners and extended attributes, while mayfly is stopped"
    )]
    NoCopy,
}

impl From<std::io::Error> for DbError {
    fn from(error: std::io::Error) -> Self {
        DbError::Sql(error.into())
    }
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

    /// Whether the disk that is full is the one of a server for the rows, and not that of the data dir.
    pub fn is_full_at_server(&self) -> bool {
        match self {
            DbError::Sql(error) => code(error).is_some_and(|code| code == DISK_FULL),
            _ => false,
        }
    }

    /// Whether it works again once the database answers.
    pub fn is_down(&self) -> bool {
        match self {
            DbError::Sql(sqlx::Error::PoolTimedOut) => true,
            // A connection that ended in the middle of a word.
            DbError::Sql(sqlx::Error::Protocol(_) | sqlx::Error::Tls(_)) => true,
            DbError::Sql(sqlx::Error::Io(error)) => !is_storage_full(error),
            DbError::Sql(sqlx::Error::Database(error)) => error
                .code()
                .is_some_and(|code| code.starts_with("08") || DOWN.contains(&&*code)),
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
                    || error.code().is_some_and(|code| TOO_LARGE.contains(&&*code))
            }
            _ => false,
        }
    }
}

/// PostgreSQL's codes for a value that no row or index takes
/// (<https://www.postgresql.org/docs/current/errcodes-appendix.html>).
const TOO_LARGE: [&str; 2] = ["54000", "22001"];

/// Codes for no room. SQLite's: for a page, or for the index of its log (SQLITE_FULL,
/// SQLITE_IOERR_SHMSIZE; <https://sqlite.org/rescode.html>). PostgreSQL's: `disk_full`.
const FULL: [&str; 3] = ["13", "4874", DISK_FULL];
const DISK_FULL: &str = "53100";

/// PostgreSQL's codes for: starts or stops, has no connection free, takes no writes, gave a session up,
/// was busy for too long, chose one of two that waited for each other.
const DOWN: [&str; 9] = [
    "57P01", "57P02", "57P03", "53300", "25006", "25P03", "55P03", "57014", "40P01",
];

fn is_storage_full(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::StorageFull
}

pub(super) fn is_full(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => is_storage_full(error),
        error => code(error).is_some_and(|code| FULL.contains(&&*code)),
    }
}

fn code(error: &sqlx::Error) -> Option<std::borrow::Cow<'_, str>> {
    error.as_database_error().and_then(|error| error.code())
}

/// What the database itself said.
pub(super) fn reason(error: &sqlx::Error) -> String {
    match error.as_database_error() {
        Some(error) => error.message().to_owned(),
        None => error.to_string(),
    }
}

fn said(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::PoolTimedOut => "it does not answer".to_owned(),
        error => error.to_string(),
    }
}
