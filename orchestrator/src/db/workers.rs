//! Workers: each is bound to its own place, has one lease for all it does, and is dead for the others
//! once its epoch is not the one in its row any more. A process whose epoch is over writes nothing.
//!
//! On SQLite there is one worker at a time, by its folder's lock, and leases are not asked about.

use std::time::Duration;

use sqlx::{AnyConnection, Row as _};

use super::{Db, DbError, Tx, installation::Binding, query};
use crate::{clock::LEASE, sandbox::Names, worker::Identity};

/// How long past its lease a worker is left alone: it may have been told late that it has one.
const PAST: Duration = Duration::from_secs(5);

/// Where a worker is at home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// Its place; none before its first start.
    pub binding: Option<Binding>,
    /// The engine it has used; none until one answered.
    pub engine_id: Option<String>,
}

/// Who keeps the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueKind {
    /// This process alone.
    Local,
    /// A server that others ask too.
    Shared,
}

impl QueueKind {
    fn as_str(self) -> &'static str {
        match self {
            QueueKind::Local => "local",
            QueueKind::Shared => "shared",
        }
    }
}

/// What came of a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Started {
    /// It is a worker in this epoch.
    Epoch(i64),
    /// This worker lives, and one of both keeps its queue to itself.
    Alone(String),
}

impl Db {
    /// Whether other processes may work on this database.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Where a worker of a shared database is at home.
    pub async fn home(&self, worker: &str) -> Result<Home, DbError> {
        let row = query("SELECT machine_id, data_dir, engine_id FROM workers WHERE id = $1")
            .bind(worker)
            .fetch_optional(self.reader())
            .await?;
        let Some(row) = row else {
            return Ok(Home {
                binding: None,
                engine_id: None,
            });
        };
        let (machine, data_dir) = (row.try_get(0)?, row.try_get(1)?);
        let binding = Option::zip(machine, data_dir);
        Ok(Home {
            binding: binding.map(|(machine_id, data_dir)| Binding {
                machine_id,
                data_dir,
            }),
            engine_id: row.try_get(2)?,
        })
    }

    /// The engine of any other worker, to tell whether they are of one kind.
    pub async fn engine_of_others(&self, worker: &str) -> Result<Option<String>, DbError> {
        let sql = "SELECT engine_id FROM workers WHERE id <> $1 AND engine_id IS NOT NULL
             ORDER BY expires_at DESC LIMIT 1";
        let row = query(sql)
            .bind(worker)
            .fetch_optional(self.reader())
            .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Binds a worker to another place. What it has left on its old engine is not looked for any more.
    pub async fn move_worker(&self, worker: &str, binding: &Binding) -> Result<(), DbError> {
        let mut tx = self.begin().await?;
        query("UPDATE ticks SET names = $1 WHERE removed_at IS NULL AND worker = $2")
            .bind(serde_json::to_string(&Names::none()).expect("names are plain"))
            .bind(worker)
            .execute(&mut *tx)
            .await?;
        query("UPDATE workers SET machine_id = $2, data_dir = $3, engine_id = NULL WHERE id = $1")
            .bind(worker)
            .bind(&binding.machine_id)
            .bind(&binding.data_dir)
            .execute(&mut *tx)
            .await?;
        tx.commit().await
    }

    /// Remembers the engine at its first answer: of this worker where several share the database.
    pub async fn bind_engine(&self, worker: &str, engine: &str) -> Result<(), DbError> {
        let bind = match self.is_shared() {
            false => {
                query("UPDATE installation SET engine_id = $1 WHERE engine_id IS NULL").bind(engine)
            }
            true => query("UPDATE workers SET engine_id = $1 WHERE engine_id IS NULL AND id = $2")
                .bind(engine)
                .bind(worker),
        };
        bind.execute(self.writer()).await?;
        Ok(())
    }

    /// A new start of a worker: its epoch. What its earlier epochs did is over.
    pub async fn start_worker(
        &self,
        worker: &str,
        binding: &Binding,
        queue: QueueKind,
        lease: Duration,
    ) -> Result<Started, DbError> {
        let mut tx = Tx::begin(self).await?;
        if let Some(other) = self.in_the_way(&mut tx, worker, queue).await? {
            return Ok(Started::Alone(other));
        }
        let sql = format!(
            "INSERT INTO workers (id, epoch, expires_at, machine_id, data_dir, queue, seen_at)
             VALUES ($1, 1, {now} + $2, $3, $4, $5, {now})
             ON CONFLICT (id) DO UPDATE SET epoch = workers.epoch + 1,
               expires_at = excluded.expires_at, machine_id = excluded.machine_id,
               data_dir = excluded.data_dir, queue = excluded.queue, seen_at = excluded.seen_at
             RETURNING epoch",
            now = self.dialect.now()
        );
        let row = query(sqlx::AssertSqlSafe(sql))
            .bind(worker)
            .bind(lease.as_millis() as i64)
            .bind(&binding.machine_id)
            .bind(&binding.data_dir)
            .bind(queue.as_str())
            .fetch_one(&mut *tx)
            .await?;
        let epoch: i64 = row.try_get(0)?;
        if !self.is_shared() {
            // Whatever name the worker of this file had before.
            query("UPDATE workers SET epoch = epoch + 1, expires_at = 0 WHERE id <> $1 AND expires_at > 0")
                .bind(worker)
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await?;
        let id = worker.to_owned();
        let _ = self.member.set(Identity { id, epoch });
        self.set_clock().await?;
        Ok(Started::Epoch(epoch))
    }

    async fn in_the_way(
        &self,
        tx: &mut Tx,
        worker: &str,
        queue: QueueKind,
    ) -> Result<Option<String>, DbError> {
        if !self.is_shared() {
            return Ok(None);
        }
        let sql = format!(
            "SELECT id FROM workers WHERE id <> $1 AND expires_at > {}
             AND ($2 = 'local' OR COALESCE(queue, 'local') = 'local') LIMIT 1",
            self.dialect.now()
        );
        let row = query(sqlx::AssertSqlSafe(sql))
            .bind(worker)
            .bind(queue.as_str())
            .fetch_optional(&mut **tx)
            .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Whether this worker's lease holds.
    pub async fn lives(&self, worker: &str) -> Result<bool, DbError> {
        let sql = format!(
            "SELECT 1 FROM workers WHERE id = $1 AND expires_at > {}",
            self.dialect.now()
        );
        let row = query(sqlx::AssertSqlSafe(sql))
            .bind(worker)
            .fetch_optional(self.reader())
            .await?;
        Ok(self.is_shared() && row.is_some())
    }

    /// For how long nothing was heard of a worker, by the database's clock; none where nobody of that name works on
    /// this database, so that nobody will come back.
    pub async fn silence(&self, worker: &str) -> Result<Option<Duration>, DbError> {
        if !self.is_shared() {
            return Ok(None);
        }
        let sql = format!(
            "SELECT {}, COALESCE(seen_at, 0), expires_at FROM workers WHERE id = $1",
            self.dialect.now()
        );
        let row = query(sqlx::AssertSqlSafe(sql))
            .bind(worker)
            .fetch_optional(self.reader())
            .await?;
        let Some(row) = row else { return Ok(None) };
        let (now, seen, expires): (i64, i64, i64) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        // Older versions renew their lease, and do not say when.
        let heard = seen.max(expires - LEASE.as_millis() as i64);
        Ok(Some(Duration::from_millis(
            (now - heard).max(0).unsigned_abs(),
        )))
    }

    /// Renews the one lease a worker holds for all it does. False if its epoch is over: it was started
    /// anew, or the others have declared it dead.
    pub async fn renew(&self, worker: &str, epoch: i64, lease: Duration) -> Result<bool, DbError> {
        let sql = format!(
            "UPDATE workers SET expires_at = {now} + $3, seen_at = {now} WHERE id = $1 AND epoch = $2",
            now = self.dialect.now()
        );
        let done = query(sqlx::AssertSqlSafe(sql))
            .bind(worker)
            .bind(epoch)
            .bind(lease.as_millis() as i64)
            .execute(self.writer())
            .await;
        match done {
            Err(DbError::Over) => Ok(false),
            done => Ok(done?.rows_affected() == 1),
        }
    }

    /// The last a worker writes: its epoch is over, and what it held is free at once.
    pub async fn end_worker(&self, worker: &str, epoch: i64) -> Result<(), DbError> {
        let sql = format!(
            "UPDATE workers SET epoch = epoch + 1, expires_at = 0, seen_at = {} WHERE id = $1 AND epoch = $2",
            self.dialect.now()
        );
        query(sqlx::AssertSqlSafe(sql))
            .bind(worker)
            .bind(epoch)
            .execute(self.writer())
            .await?;
        Ok(())
    }

    /// Ends the epoch of every worker whose lease is long over by the database's clock; answers which. From then
    /// on it renews nothing and writes nothing, so what it had may be taken.
    pub async fn declare_dead(&self) -> Result<Vec<String>, DbError> {
        if !self.is_shared() {
            return Ok(Vec::new());
        }
        let over = format!(
            "expires_at > 0 AND expires_at <= {} - {}",
            self.dialect.now(),
            PAST.as_millis()
        );
        // Most rounds find none, and then nobody waits for the writers' lock.
        let look = format!("SELECT id FROM workers WHERE {over}");
        let found = query(sqlx::AssertSqlSafe(look))
            .fetch_all(self.reader())
            .await?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let end = format!(
            "UPDATE workers SET epoch = epoch + 1, expires_at = 0 WHERE {over} RETURNING id"
        );
        let rows = query(sqlx::AssertSqlSafe(end))
            .fetch_all(self.writer())
            .await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Takes these names for this start of this worker, all of them or none; else answers who has one.
    pub async fn hold(&self, names: &[String]) -> Result<Option<String>, DbError> {
        let me = self.member();
        let mut tx = self.begin().await?;
        for name in names {
            let taken = query(
                "INSERT INTO holds (name, worker, epoch) VALUES ($1, $2, $3)
                 ON CONFLICT (name) DO UPDATE SET worker = excluded.worker, epoch = excluded.epoch
                 WHERE NOT EXISTS (SELECT 1 FROM workers w
                   WHERE w.id = holds.worker AND w.epoch = holds.epoch AND w.id <> $2)
                 RETURNING worker",
            )
            .bind(name)
            .bind(&me.id)
            .bind(me.epoch)
            .fetch_optional(&mut *tx)
            .await?;
            if taken.is_none() {
                let row = query("SELECT worker FROM holds WHERE name = $1")
                    .bind(name)
                    .fetch_one(&mut *tx)
                    .await?;
                return Ok(Some(row.try_get(0)?));
            }
        }
        tx.commit().await?;
        Ok(None)
    }

    /// The names that a worker has.
    pub async fn holds_of(&self, worker: &str) -> Result<Vec<String>, DbError> {
        let rows = query("SELECT name FROM holds WHERE worker = $1 ORDER BY name")
            .bind(worker)
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// This start of this worker; of a database that was only looked at it is nobody's.
    pub(super) fn member(&self) -> Identity {
        let nobody = || Identity {
            id: String::new(),
            epoch: 0,
        };
        self.member.get().cloned().unwrap_or_else(nobody)
    }
}

/// Refused once the epoch of this process is over. Whoever ends it takes the writers' lock, as the caller has.
pub(super) async fn still_lives(tx: &mut AnyConnection, me: &Identity) -> Result<(), DbError> {
    let row = query("SELECT 1 FROM workers WHERE id = $1 AND epoch = $2")
        .bind(&me.id)
        .bind(me.epoch)
        .fetch_optional(tx)
        .await?;
    row.map(drop).ok_or(DbError::Over)
}
