//! PostgreSQL: who is let in, how its sessions behave, and why it cannot be used.

mod upgrade;

use std::time::Duration;

use sqlx::{AnyConnection, AnyPool, Connection as _, Executor as _, Row as _, any::AnyPoolOptions};

use super::{DbError, error::reason, place::Server};

/// Writers of all processes wait for each other here, as they do in the file of SQLite. The number
/// means nothing; databases have locks of their own.
pub(super) const WRITERS: &str = "SELECT pg_advisory_xact_lock(7521962890042318)";

/// The time in unix milliseconds as the server has it, which all workers share.
pub(super) const NOW: &str = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";

/// The oldest that is tried.
const OLDEST: i64 = 13;
/// What is told of a server that runs so.
pub const NO_FSYNC: &str = "PostgreSQL runs with fsync = off: a power cut loses what was accepted";
const CONNECT: Duration = Duration::from_secs(10);
/// A process that freezes inside of a transaction holds up the others for 10 s.
const SESSION: &str = "SET idle_in_transaction_session_timeout = '10s'; SET lock_timeout = '30s';
    SET statement_timeout = '60s'; SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5;
    SET tcp_keepalives_count = 3;
    SELECT set_config('synchronous_commit', 'on', false)
     WHERE current_setting('synchronous_commit') = 'off'";
/// For the one that upgrades, whose statements may take long: frozen or cut off it lets go all the same.
const FIRST: &str = "SET idle_in_transaction_session_timeout = '10s'; SET tcp_keepalives_idle = 10;
    SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3";
const WRITES: &str = "SET default_transaction_read_only = off";
const READS: &str = "SET default_transaction_read_only = on";

/// Why PostgreSQL cannot be used, with the way out.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Nobody answers.
    #[error("no PostgreSQL answers at {at} ({reason}): start it, or correct database.url")]
    Absent {
        /// Host and port.
        at: String,
        /// What the system or the server said.
        reason: String,
    },
    /// It does not let us in.
    #[error(
        "PostgreSQL at {at} does not let us in ({reason}): correct the user in database.url, and the password in MAYFLY__DATABASE__PASSWORD or the file that database.password_file names"
    )]
    Login {
        /// Host and port.
        at: String,
        /// What the server said.
        reason: String,
    },
    /// It has no such database.
    #[error(
        "PostgreSQL at {at} has no database \"{database}\": make it with `createdb {database}`, or correct database.url"
    )]
    NoDatabase {
        /// Host and port.
        at: String,
        /// Which.
        database: String,
    },
    /// Too old.
    #[error("PostgreSQL at {at} is version {version}: {OLDEST} or later is needed")]
    Version {
        /// Host and port.
        at: String,
        /// Its version.
        version: String,
    },
    /// A replica.
    #[error(
        "PostgreSQL at {at} is read-only, as a replica is: name the server that takes writes in database.url"
    )]
    ReadOnly {
        /// Host and port.
        at: String,
    },
    /// Text would not come back as it was.
    #[error(
        "database \"{database}\" is encoded as {encoding}: make it with `createdb --template template0 --encoding UTF8 {database}`"
    )]
    Encoding {
        /// Which.
        database: String,
        /// Its encoding.
        encoding: String,
    },
    /// Its tables cannot be made or changed.
    #[error(
        "the tables of database \"{database}\" cannot be made or changed ({reason}): the user \"{user}\" has to own them, and nothing has been changed"
    )]
    Tables {
        /// Which.
        database: String,
        /// Who asked.
        user: String,
        /// What the server said.
        reason: String,
    },
    /// Its tables are of another program, or of a build that never was released.
    #[error(
        "database \"{database}\" holds a migration {number} that is not this build's: name another database in database.url"
    )]
    Foreign {
        /// Which.
        database: String,
        /// Which migration.
        number: i64,
    },
    /// An upgrade that nobody could take back.
    #[error(
        "this mayfly {ours} would change database \"{database}\", and no backup could be made ({reason}): install pg_dump, or make a backup yourself and say so with MAYFLY__DATABASE__BACKED_UP={ours}"
    )]
    NoBackup {
        /// Which.
        database: String,
        /// This program's version.
        ours: &'static str,
        /// Why not.
        reason: String,
    },
    /// Something else.
    #[error("PostgreSQL at {at} cannot be used: {reason}")]
    Other {
        /// Host and port.
        at: String,
        /// What it said.
        reason: String,
    },
}

/// The writer and the readers, of a database that is up to date.
pub(super) async fn open(server: &Server) -> Result<(AnyPool, AnyPool), DbError> {
    let mut first = connect(server).await?;
    let Seen { fsync, .. } = look(&mut first, server).await?;
    if !fsync {
        let at = server.host();
        tracing::warn!(at, "{NO_FSYNC}");
    }
    let url = server.connect_url();
    upgrade::bring_up_to_date(&mut first, server).await?;
    first.close().await?;
    // The writers of this process wait for each other here, those of others for the lock.
    let write = pool(1, WRITES, Duration::from_secs(30)).connect_lazy(&url)?;
    let read = pool(4, READS, Duration::from_secs(10)).connect_lazy(&url)?;
    Ok((write, read))
}

async fn connect(server: &Server) -> Result<AnyConnection, DbError> {
    let url = server.connect_url();
    let connected = tokio::time::timeout(CONNECT, AnyConnection::connect(&url)).await;
    let mut connection = match connected {
        Ok(connected) => connected.map_err(|error| refused(server, &error))?,
        Err(_) => {
            let reason = format!("no answer within {} s", CONNECT.as_secs());
            let at = server.host();
            return Err(Refused::Absent { at, reason }.into());
        }
    };
    connection.execute(FIRST).await?;
    Ok(connection)
}

/// What a server that can be used says of itself.
#[derive(Debug)]
struct Seen {
    version: String,
    fsync: bool,
}

/// A database that can be used, as it is: nothing is changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// Host and port.
    pub at: String,
    /// Which database.
    pub database: String,
    /// The server's.
    pub version: String,
    /// Whether a power cut loses nothing.
    pub fsync: bool,
    /// Migrations that were done.
    pub done: usize,
    /// Migrations that the next start does.
    pub pending: usize,
    /// What the mark in the layer store has to say, and whether something was put there; none before the first
    /// start with one.
    pub store: Option<(String, bool)>,
}

/// Looks whether a start could use this database, and why not.
pub async fn inspect(server: &Server) -> Result<Inspected, DbError> {
    sqlx::any::install_default_drivers();
    let mut connection = connect(server).await?;
    let Seen { version, fsync } = look(&mut connection, server).await?;
    let (done, pending) = upgrade::compare(&mut connection, server).await?;
    let store = store(&mut connection).await?;
    connection.close().await?;
    Ok(Inspected {
        at: server.host(),
        database: server.database().to_owned(),
        version,
        fsync,
        done,
        pending,
        store,
    })
}

async fn store(connection: &mut AnyConnection) -> Result<Option<(String, bool)>, DbError> {
    let made = "SELECT count(*) FROM pg_class WHERE oid = to_regclass('store')";
    let made = sqlx::query(made).fetch_one(&mut *connection).await?;
    if made.try_get::<i64, _>(0)? == 0 {
        return Ok(None);
    }
    let row = sqlx::query(super::depot::STORE).fetch_optional(connection);
    let Some(row) = row.await? else {
        return Ok(None);
    };
    Ok(Some((row.try_get(0)?, row.try_get::<i64, _>(1)? != 0)))
}

fn refused(server: &Server, error: &sqlx::Error) -> Refused {
    let (at, reason) = (server.host(), reason(error));
    let code = error.as_database_error().and_then(|error| error.code());
    match (error, code.as_deref()) {
        // Closed in the middle: it starts or stops.
        (sqlx::Error::Io(_), _) | (_, Some("57P03" | "57P01")) => Refused::Absent { at, reason },
        (_, Some("28P01" | "28000")) => Refused::Login { at, reason },
        (_, Some("3D000")) => Refused::NoDatabase {
            at,
            database: server.database().to_owned(),
        },
        _ => Refused::Other { at, reason },
    }
}

/// Whether it is one that keeps what it is given.
async fn look(connection: &mut AnyConnection, server: &Server) -> Result<Seen, DbError> {
    let row = sqlx::query(
        "SELECT CAST(current_setting('server_version_num') AS BIGINT) / 10000,
           current_setting('server_version'), current_setting('transaction_read_only'),
           current_setting('server_encoding'), current_setting('fsync')",
    )
    .fetch_one(connection)
    .await?;
    let (at, database) = (server.host(), server.database().to_owned());
    let version: String = row.try_get(1)?;
    recent(&at, row.try_get(0)?, &version)?;
    if row.try_get::<String, _>(2)? == "on" {
        return Err(Refused::ReadOnly { at }.into());
    }
    let encoding: String = row.try_get(3)?;
    if encoding != "UTF8" {
        return Err(Refused::Encoding { database, encoding }.into());
    }
    let fsync = row.try_get::<String, _>(4)? != "off";
    Ok(Seen { version, fsync })
}

fn recent(at: &str, major: i64, version: &str) -> Result<(), Refused> {
    let (at, version) = (at.to_owned(), version.to_owned());
    match major < OLDEST {
        true => Err(Refused::Version { at, version }),
        false => Ok(()),
    }
}

fn pool(connections: u32, access: &'static str, patience: Duration) -> AnyPoolOptions {
    AnyPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(patience)
        .test_before_acquire(false)
        .before_acquire(|connection, been| {
            let fresh = been.idle_for < Duration::from_secs(1);
            Box::pin(async move { Ok(fresh || answers(connection).await) })
        })
        // The driver waits for ever for one that a dead network has.
        .after_release(|connection, _| Box::pin(async move { Ok(answers(connection).await) }))
        .after_connect(move |connection, _| Box::pin(prepare(connection, access)))
}

async fn answers(connection: &mut AnyConnection) -> bool {
    let answer = tokio::time::timeout(Duration::from_secs(5), connection.ping()).await;
    matches!(answer, Ok(Ok(())))
}

async fn prepare(connection: &mut AnyConnection, access: &'static str) -> Result<(), sqlx::Error> {
    connection.execute(SESSION).await?;
    connection.execute(access).await?;
    let replica = "SELECT CASE WHEN pg_is_in_recovery() THEN 1 ELSE 0 END";
    let row = sqlx::query(replica).fetch_one(connection).await?;
    match row.try_get::<i64, _>(0)? {
        0 => Ok(()),
        _ => Err(sqlx::Error::Configuration(
            "it is a read-only replica".into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_server_is_refused_with_its_version_and_the_one_that_is_needed() {
        let told = recent("db:5432", 12, "12.22").unwrap_err();
        assert_eq!(
            told.to_string(),
            "PostgreSQL at db:5432 is version 12.22: 13 or later is needed"
        );
        recent("db:5432", 13, "13.0").unwrap();
        recent("db:5432", 18, "18beta1").unwrap();
    }
}
