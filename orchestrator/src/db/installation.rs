//! Who this installation is.

use mayfly_domain::InstallationId;
use sqlx::Row as _;

use super::{Db, DbError, parse, query};
use crate::sandbox::Names;

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

    /// Makes the installation of an empty database, once; answers the one that is there then.
    pub async fn create_installation(&self, binding: &Binding) -> Result<Installation, DbError> {
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
        .bind(self.now())
        .execute(self.writer())
        .await?;
        let made = self.installation().await?;
        made.ok_or(DbError::Sql(sqlx::Error::RowNotFound))
    }

    /// Binds a copied installation to its new place under a new id, so that it never touches what
    /// the original runs: what its ticks have made on the engine is the original's from now on.
    pub async fn adopt(&self, binding: &Binding) -> Result<InstallationId, DbError> {
        let id = InstallationId::new();
        let mut tx = self.begin().await?;
        query("UPDATE ticks SET names = $1 WHERE removed_at IS NULL")
            .bind(serde_json::to_string(&Names::none()).expect("names are plain"))
            .execute(&mut *tx)
            .await?;
        query("UPDATE installation SET id = $1, machine_id = $2, data_dir = $3, engine_id = NULL")
            .bind(id.to_string())
            .bind(&binding.machine_id)
            .bind(&binding.data_dir)
            .execute(&mut *tx)
            .await?;
        // Whoever works here has another name from now on.
        query("UPDATE layers SET holder = NULL WHERE stored_at IS NULL")
            .execute(&mut *tx)
            .await?;
        // The layer store is the original's: its mark refuses this copy, which would clear away what is not its own.
        for table in ["store", "doomed"] {
            query(sqlx::AssertSqlSafe(format!("DELETE FROM {table}")))
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await?;
        Ok(id)
    }

    /// All that the rows name is here, as after a restore: nothing counts as stored, so that this installation puts
    /// it into whichever store it is given.
    pub async fn owe_all(&self) -> Result<(), DbError> {
        let mut tx = self.begin().await?;
        for sql in [
            "UPDATE layers SET digest = NULL, packed = NULL, stored_at = NULL, holder = NULL",
            "UPDATE bases SET digest = NULL, packed = NULL, stored_at = NULL",
            "UPDATE ticks SET transcript = NULL, transcript_bytes = NULL WHERE transcript IS NOT NULL",
        ] {
            query(sql).execute(&mut *tx).await?;
        }
        tx.commit().await
    }
}
