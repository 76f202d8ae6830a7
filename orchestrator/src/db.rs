//! The database is the truth: every row, every transaction, all SQL of the project.
//!
//! One code base for SQLite and PostgreSQL through `AnyPool`: BIGINT, TEXT and BLOB columns only,
//! `$n` placeholders, times as unix milliseconds. One writer at a time: on SQLite there is one writing
//! connection whose transactions start as `BEGIN IMMEDIATE`; on PostgreSQL each takes one lock first. So
//! what a transaction has read stays true until it ends, and no lock error reaches a tick.

pub mod accept;
pub mod agents;
pub mod arrivals;
pub mod attachments;
pub mod claims;
pub mod copy;
pub mod deliveries;
pub mod depot;
mod digits;
pub mod doomed;
pub mod endings;
mod error;
pub mod history;
pub mod images;
pub mod installation;
pub mod messages;
pub mod orders;
pub mod pairing;
pub mod parts;
pub mod pins;
mod place;
pub mod portable;
pub mod postgres;
pub mod posts;
pub mod progress;
mod query;
pub mod remote;
pub mod retention;
mod shared_clock;
pub mod shown;
pub mod snapshots;
mod sqlite;
pub mod ticks;
pub mod together;
pub mod workers;

use std::sync::{Arc, OnceLock};

use sqlx::{AnyPool, any::install_default_drivers};

pub use error::DbError;
pub use place::{Place, Server};
pub use query::Tx;
use query::{Writers, query};

use crate::worker::Identity;

/// A handle on the database; cheap to clone.
#[derive(Debug, Clone)]
pub struct Db {
    dialect: Dialect,
    write: AnyPool,
    read: AnyPool,
    done: pins::Done,
    held: Arc<pins::Held>,
    accepting: Arc<accept::Accepting>,
    /// Who writes; none until a worker was started.
    member: Arc<OnceLock<Identity>>,
    shared: bool,
    clock: Arc<shared_clock::SharedClock>,
}

/// What differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// The time in unix milliseconds by the database's own clock.
    fn now(self) -> &'static str {
        match self {
            Dialect::Sqlite => "CAST(unixepoch('subsec') * 1000 AS BIGINT)",
            Dialect::Postgres => postgres::NOW,
        }
    }
}

impl Db {
    /// Opens (or makes) the database and brings its schema up to date.
    pub async fn open(place: &Place) -> Result<Db, DbError> {
        install_default_drivers();
        let (dialect, (write, read)) = match place {
            Place::Embedded(path) => (Dialect::Sqlite, sqlite::open(path).await?),
            Place::Postgres(server) => (Dialect::Postgres, postgres::open(server).await?),
        };
        let db = Db {
            dialect,
            write,
            read,
            done: pins::Done::default(),
            held: Arc::default(),
            accepting: Arc::default(),
            member: Arc::default(),
            shared: dialect == Dialect::Postgres,
            clock: Arc::default(),
        };
        db.set_clock().await?;
        db.sign().await?;
        Ok(db)
    }

    /// The same database as another of several processes has it, a file too: for a simulation, in which no two
    /// are in a transaction at once.
    #[cfg(feature = "faults")]
    pub fn of_another_process(&self) -> Db {
        Db {
            done: pins::Done::default(),
            held: Arc::default(),
            accepting: Arc::default(),
            member: Arc::default(),
            shared: true,
            clock: Arc::default(),
            ..self.clone()
        }
    }

    /// A transaction that may write; refused once the epoch of this process is over.
    pub async fn begin(&self) -> Result<Tx, DbError> {
        let mut tx = Tx::begin(self).await?;
        if let Some(me) = self.member.get().filter(|_| self.is_shared()) {
            Box::pin(workers::still_lives(&mut tx, me)).await?;
        }
        Ok(tx)
    }

    /// Returns when every write transaction is over that was open before. What one of them wrote whose
    /// answer was lost can be read from now on, or never comes.
    pub async fn outlast_writers(&self) -> Result<(), DbError> {
        drop(self.begin().await?);
        Ok(())
    }

    /// For single statements that read.
    fn reader(&self) -> &AnyPool {
        &self.read
    }

    /// For single statements that write.
    fn writer(&self) -> Writers<'_> {
        Writers(self)
    }

    /// Waits until every connection is back and closed.
    pub async fn close(&self) {
        self.read.close().await;
        self.write.close().await;
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
