//! The one way of a statement to the database, on both kinds.
//!
//! A text loses U+0000 here, which PostgreSQL's TEXT cannot hold: the sign for it, U+2400, stands in
//! its place, on both databases alike, so that what is looked for is found. Raw events keep their bytes.
//! A statement that writes alone takes its turn among the writers. None waits for ever.

use std::{borrow::Cow, io, sync::Arc, time::Duration};

use sqlx::{
    Any, AnyConnection, AnyPool, SqlSafeStr, Transaction,
    any::{AnyArguments, AnyQueryResult, AnyRow},
    pool::PoolConnection,
};

use super::{Db, DbError, Dialect, shared_clock::SharedClock};

/// PostgreSQL ends a statement itself before this; later nobody answers any more.
const SILENT: Duration = Duration::from_secs(75);

/// A statement with its values.
pub(super) fn query(sql: impl SqlSafeStr) -> Query {
    Query(sqlx::query(sql))
}

/// See [`query`].
pub(super) struct Query(sqlx::query::Query<'static, Any, AnyArguments>);

/// Where a statement goes.
pub(super) enum On<'c> {
    /// On this connection.
    One(&'c mut AnyConnection),
    /// On any that reads.
    Readers(&'c AnyPool),
    /// By itself, in turn with whoever writes.
    Writers(&'c Db),
}

/// See [`On::Writers`].
pub(super) struct Writers<'c>(pub(super) &'c Db);

impl<'c> From<&'c mut AnyConnection> for On<'c> {
    fn from(connection: &'c mut AnyConnection) -> Self {
        On::One(connection)
    }
}

impl<'c> From<&'c mut PoolConnection<Any>> for On<'c> {
    fn from(connection: &'c mut PoolConnection<Any>) -> Self {
        On::One(connection)
    }
}

impl<'c> From<&'c AnyPool> for On<'c> {
    fn from(pool: &'c AnyPool) -> Self {
        On::Readers(pool)
    }
}

impl<'c> From<Writers<'c>> for On<'c> {
    fn from(Writers(db): Writers<'c>) -> Self {
        On::Writers(db)
    }
}

impl Query {
    /// The next value.
    pub(super) fn bind(self, value: impl Value) -> Query {
        Query(value.put(self.0))
    }

    pub(super) async fn fetch_all(self, on: impl Into<On<'_>>) -> Result<Vec<AnyRow>, DbError> {
        match on.into() {
            On::One(connection) => {
                let patience = patience(connection);
                within(patience, self.0.fetch_all(connection)).await
            }
            On::Readers(pool) => {
                let mut connection = pool.acquire().await?;
                let patience = patience(&connection);
                within(patience, self.0.fetch_all(&mut *connection)).await
            }
            On::Writers(db) => {
                let mut tx = db.begin().await?;
                let patience = patience(&tx);
                let rows = within(patience, self.0.fetch_all(&mut *tx)).await?;
                tx.commit().await?;
                Ok(rows)
            }
        }
    }

    pub(super) async fn fetch_optional(
        self,
        on: impl Into<On<'_>>,
    ) -> Result<Option<AnyRow>, DbError> {
        Ok(self.fetch_all(on).await?.into_iter().next())
    }

    pub(super) async fn fetch_one(self, on: impl Into<On<'_>>) -> Result<AnyRow, DbError> {
        let row = self.fetch_optional(on).await?;
        row.ok_or(DbError::Sql(sqlx::Error::RowNotFound))
    }

    pub(super) async fn execute(self, on: impl Into<On<'_>>) -> Result<AnyQueryResult, DbError> {
        match on.into() {
            On::One(connection) => {
                let patience = patience(connection);
                within(patience, self.0.execute(connection)).await
            }
            On::Readers(pool) => {
                let mut connection = pool.acquire().await?;
                let patience = patience(&connection);
                within(patience, self.0.execute(&mut *connection)).await
            }
            On::Writers(db) => {
                let mut tx = db.begin().await?;
                let patience = patience(&tx);
                let done = within(patience, self.0.execute(&mut *tx)).await?;
                tx.commit().await?;
                Ok(done)
            }
        }
    }
}

/// A write transaction; rolled back when dropped. No other one is open in this database.
pub struct Tx {
    inner: Transaction<'static, Any>,
    clock: Arc<SharedClock>,
}

impl Tx {
    /// Takes its turn among the writers, of whatever process.
    pub(super) async fn begin(db: &Db) -> Result<Tx, DbError> {
        let pool = &db.write;
        let inner = match db.dialect {
            Dialect::Sqlite => pool.begin_with("BEGIN IMMEDIATE").await?,
            Dialect::Postgres => {
                // The lock comes second, so that the driver knows of the transaction it is in: one that
                // is given up while it waits is rolled back. Each later statement sees all that was
                // committed before the lock was had.
                let begin = pool.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED");
                let mut tx = within(Some(SILENT), begin).await?;
                let lock = sqlx::query(super::postgres::WRITERS).execute(&mut *tx);
                within(Some(SILENT), lock).await?;
                tx
            }
        };
        let clock = Arc::clone(&db.clock);
        Ok(Tx { inner, clock })
    }

    /// See [`Db::now`].
    pub(super) fn now(&self) -> i64 {
        self.clock.now()
    }

    /// After an error it may be written all the same: see [`Db::outlast_writers`].
    pub async fn commit(self) -> Result<(), DbError> {
        let patience = patience(&self.inner);
        within(patience, self.inner.commit()).await
    }
}

impl std::ops::Deref for Tx {
    type Target = AnyConnection;

    fn deref(&self) -> &AnyConnection {
        &self.inner
    }
}

impl std::ops::DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut AnyConnection {
        &mut self.inner
    }
}

/// None for a file: it is read by a thread of this process.
fn patience(connection: &AnyConnection) -> Option<Duration> {
    (connection.backend_name() == "PostgreSQL").then_some(SILENT)
}

async fn within<T>(
    patience: Option<Duration>,
    asked: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, DbError> {
    let Some(patience) = patience else {
        return Ok(asked.await?);
    };
    match tokio::time::timeout(patience, asked).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(DbError::Sql(sqlx::Error::Io(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no answer within {} s", patience.as_secs()),
        )))),
    }
}

type Inner = sqlx::query::Query<'static, Any, AnyArguments>;

/// What a statement takes.
pub(super) trait Value {
    fn put(self, into: Inner) -> Inner;
}

/// See the module.
fn storable(text: Cow<'_, str>) -> String {
    match text.contains('\0') {
        true => text.replace('\0', "\u{2400}"),
        false => text.into_owned(),
    }
}

impl Value for i64 {
    fn put(self, into: Inner) -> Inner {
        into.bind(self)
    }
}

impl Value for Option<i64> {
    fn put(self, into: Inner) -> Inner {
        into.bind(self)
    }
}

impl Value for Vec<u8> {
    fn put(self, into: Inner) -> Inner {
        into.bind(self)
    }
}

impl Value for &Vec<u8> {
    fn put(self, into: Inner) -> Inner {
        into.bind(self.clone())
    }
}

impl Value for &str {
    fn put(self, into: Inner) -> Inner {
        into.bind(storable(Cow::Borrowed(self)))
    }
}

impl Value for String {
    fn put(self, into: Inner) -> Inner {
        into.bind(storable(Cow::Owned(self)))
    }
}

impl Value for &String {
    fn put(self, into: Inner) -> Inner {
        self.as_str().put(into)
    }
}

impl Value for Option<String> {
    fn put(self, into: Inner) -> Inner {
        into.bind(self.map(|text| storable(Cow::Owned(text))))
    }
}

impl Value for &Option<String> {
    fn put(self, into: Inner) -> Inner {
        self.as_deref().put(into)
    }
}

impl Value for Option<&str> {
    fn put(self, into: Inner) -> Inner {
        into.bind(self.map(|text| storable(Cow::Borrowed(text))))
    }
}

impl Value for Cow<'_, str> {
    fn put(self, into: Inner) -> Inner {
        into.bind(storable(self))
    }
}
