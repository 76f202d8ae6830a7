//! Who this installation is, and which start of its worker this is.

use std::{path::PathBuf, time::Duration};

use mayfly_domain::InstallationId;
use sqlx::Row as _;

use super::{Db, DbError, Dialect, parse, query};
use crate::{clock, sandbox::Names};

/// The binding of a data dir to one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// The data dir's path.
    pub data_dir: String,
}

/// The stored identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// Its id.
    pub id: InstallationId,
    /// Where it was made.
    pub binding: Binding,
    /// The engine it has used; none until one answered.
    pub engine_id: Option<String>,
    /// The oldest program version that may open it.
    pub minimum_version: String,
}

/// The oldest version that may open a database made by this one: a contracting migration raises it,
/// here and in the row.
const OLDEST: &str = "0.1.0";

/// A version's numbers, to be compared.
pub(crate) fn version(text: &str) -> Vec<u64> {
    text.split('.')
        .map(|part| part.parse().unwrap_or(0))
        .collect()
}

impl Db {
    /// The stored identity, if any.
    pub async fn installation(&self) -> Result<Option<Installation>, DbError> {
        let row =
            query("SELECT id, machine_id, data_dir, engine_id, minimum_version FROM installation")
                .fetch_optional(self.reader())
                .await?;
        let Some(row) = row else { return Ok(None) };
        let id: String = row.try_get(0)?;
        Ok(Some(Installation {
            id: parse("installation", &id, "id", &id)?,
            binding: Binding {
                machine_id: row.try_get(1)?,
                data_dir: row.try_get(2)?,
            },
            engine_id: row.try_get(3)?,
            minimum_version: row.try_get(4)?,
        }))
    }

    /// Tells later versions which was the newest that opened this database.
    pub(super) async fn sign(&self) -> Result<(), DbError> {
        let row = query("SELECT written_by FROM installation")
            .fetch_optional(self.reader())
            .await?;
        let Some(row) = row else { return Ok(()) };
        let known: String = row.try_get(0)?;
        let ours = env!("CARGO_PKG_VERSION");
        if version(&known) >= version(ours) {
            return Ok(());
        }
        query("UPDATE installation SET written_by = $1 WHERE written_by = $2")
            .bind(ours)
            .bind(known)
            .execute(self.writer())
            .await?;
        Ok(())
    }

    /// Makes the installation of an empty database, once.
    pub async fn create_installation(&self, binding: &Binding) -> Result<InstallationId, DbError> {
        let id = InstallationId::new();
        let version = env!("CARGO_PKG_VERSION");
        query(
            "INSERT INTO installation
             (id, machine_id, data_dir, minimum_version, written_by, created_at)
             SELECT $1, $2, $3, $4, $5, $6 WHERE NOT EXISTS (SELECT 1 FROM installation)",
        )
        .bind(id.to_string())
        .bind(&binding.machine_id)
        .bind(&binding.data_dir)
        .bind(OLDEST)
        .bind(version)
        .bind(clock::unix_ms())
        .execute(self.writer())
        .await?;
        Ok(id)
    }

    /// Binds a copied installation to its new place under a new id, so that it never touches what
    /// the original runs: what its ticks have made on the engine is the original's from now on.
    pub async fn adopt(&self, binding: &Binding) -> Result<InstallationId, DbError> {
        let id = InstallationId::new();
        let mut tx = self.begin().await?;
        let nothing = Names {
            container: String::new(),
            volumes: Vec::new(),
            sockets: PathBuf::new(),
        };
        query("UPDATE ticks SET names = $1 WHERE removed_at IS NULL")
            .bind(serde_json::to_string(&nothing).expect("names are plain"))
            .execute(&mut *tx)
            .await?;
        query("UPDATE installation SET id = $1, machine_id = $2, data_dir = $3, engine_id = NULL")
            .bind(id.to_string())
            .bind(&binding.machine_id)
            .bind(&binding.data_dir)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(id)
    }

    /// Remembers the engine at its first answer.
    pub async fn bind_engine(&self, engine: &str) -> Result<(), DbError> {
        query("UPDATE installation SET engine_id = $1 WHERE engine_id IS NULL")
            .bind(engine)
            .execute(self.writer())
            .await?;
        Ok(())
    }

    /// A new start of a worker: its epoch. Ticks of its earlier epochs are dead.
    pub async fn start_worker(&self, worker: &str, lease: Duration) -> Result<i64, DbError> {
        let sql = format!(
            "INSERT INTO workers (id, epoch, expires_at) VALUES ($1, 1, {} + $2)
             ON CONFLICT (id) DO UPDATE SET epoch = workers.epoch + 1,
               expires_at = excluded.expires_at
             RETURNING epoch",
            self.dialect.now()
        );
        let row = query(sqlx::AssertSqlSafe(sql))
            .bind(worker)
            .bind(lease.as_millis() as i64)
            .fetch_one(self.writer())
            .await?;
        Ok(row.try_get(0)?)
    }

    /// Another process that works on this database, by its worker's name. A file has one at a time by its
    /// folder's lock.
    pub async fn other_worker(&self, than: &str) -> Result<Option<String>, DbError> {
        if self.dialect == Dialect::Sqlite {
            return Ok(None);
        }
        let sql = format!(
            "SELECT id FROM workers WHERE id <> $1 AND expires_at > {} LIMIT 1",
            self.dialect.now()
        );
        let row = query(sqlx::AssertSqlSafe(sql))
            .bind(than)
            .fetch_optional(self.reader())
            .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Renews the one lease a worker holds for all its ticks. False if a later start took over.
    pub async fn renew(&self, worker: &str, epoch: i64, lease: Duration) -> Result<bool, DbError> {
        let sql = format!(
            "UPDATE workers SET expires_at = {} + $3 WHERE id = $1 AND epoch = $2",
            self.dialect.now()
        );
        let done = query(sqlx::AssertSqlSafe(sql))
            .bind(worker)
            .bind(epoch)
            .bind(lease.as_millis() as i64)
            .execute(self.writer())
            .await?;
        Ok(done.rows_affected() == 1)
    }
}
