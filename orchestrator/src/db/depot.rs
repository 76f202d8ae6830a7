//! What is in the layer store, and who has what is not yet.

use std::collections::HashSet;

use mayfly_domain::{AgentId, BaseId, LayerId, TickId};
use sqlx::Row as _;

use super::{Db, DbError, Tx, ids, parse, query};
use crate::snapshot::{LayerSize, oci::Parcel};

/// A layer that gets a row.
#[derive(Debug, Clone, Copy)]
pub struct NewLayer<'a> {
    /// Which.
    pub id: &'a LayerId,
    /// What it adds.
    pub size: LayerSize,
    /// The worker that has it; none where any may.
    pub holder: Option<&'a str>,
    /// Where it is in the layer store already.
    pub parcel: Option<&'a Parcel>,
}

/// Where a layer or base is, beside the disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whereabouts {
    /// As it is in the layer store; none if it is not.
    pub parcel: Option<Parcel>,
    /// The worker that made it, if any is known.
    pub holder: Option<String>,
    /// Allocated bytes, where they are known.
    pub bytes: u64,
}

pub(super) async fn insert_layer(
    tx: &mut Tx,
    layer: &NewLayer<'_>,
    now: i64,
) -> Result<(), DbError> {
    query(
        "INSERT INTO layers (id, bytes, inodes, created_at, holder, digest, packed, stored_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(layer.id.as_str())
    .bind(layer.size.bytes as i64)
    .bind(layer.size.inodes as i64)
    .bind(now)
    .bind(layer.holder.map(str::to_owned))
    .bind(layer.parcel.map(|parcel| parcel.digest.clone()))
    .bind(layer.parcel.map(|parcel| parcel.size as i64))
    .bind(layer.parcel.map(|_| now))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// What the mark has to say, and whether something of ours is in there.
pub(super) const STORE: &str = "SELECT id,
     CASE WHEN EXISTS (SELECT 1 FROM layers WHERE stored_at IS NOT NULL)
            OR EXISTS (SELECT 1 FROM bases WHERE stored_at IS NOT NULL)
          THEN 1 ELSE 0 END FROM store";

impl Db {
    /// What the mark in the layer store has to say, and whether something of ours is in there.
    pub async fn store_id(&self) -> Result<(String, bool), DbError> {
        query(
            "INSERT INTO store (id, created_at) SELECT $1, $2
             WHERE NOT EXISTS (SELECT 1 FROM store)",
        )
        .bind(uuid::Uuid::new_v4().to_string())
        .bind(self.now())
        .execute(self.writer())
        .await?;
        let row = query(STORE).fetch_one(self.reader()).await?;
        Ok((row.try_get(0)?, row.try_get::<i64, _>(1)? != 0))
    }

    /// Where a layer is; none if no row names it.
    pub async fn layer_is(&self, layer: &LayerId) -> Result<Option<Whereabouts>, DbError> {
        let sql = "SELECT digest, packed, stored_at, holder, bytes FROM layers WHERE id = $1";
        self.whereabouts(sql, layer.as_str()).await
    }

    /// Where a base is; none if no row names it.
    pub async fn base_is(&self, base: &BaseId) -> Result<Option<Whereabouts>, DbError> {
        let sql = "SELECT digest, packed, stored_at, NULL, COALESCE(bytes, 0) FROM bases
                   WHERE id = $1";
        self.whereabouts(sql, base.as_str()).await
    }

    async fn whereabouts(
        &self,
        sql: &'static str,
        id: &str,
    ) -> Result<Option<Whereabouts>, DbError> {
        let row = query(sql).bind(id).fetch_optional(self.reader()).await?;
        let Some(row) = row else { return Ok(None) };
        let digest: Option<String> = row.try_get(0)?;
        let size: Option<i64> = row.try_get(1)?;
        let stored = row.try_get::<Option<i64>, _>(2)?.is_some();
        let parcel = match (digest, size, stored) {
            (Some(digest), Some(size), true) => Some(Parcel {
                digest,
                size: size.max(0) as u64,
            }),
            _ => None,
        };
        Ok(Some(Whereabouts {
            parcel,
            holder: row.try_get(3)?,
            bytes: row.try_get::<i64, _>(4)?.max(0) as u64,
        }))
    }

    /// Who ran an agent's newest tick, and when that ended (unix ms).
    pub async fn last_run(&self, agent: AgentId) -> Result<Option<(String, Option<i64>)>, DbError> {
        let row =
            query("SELECT worker, ended_at FROM ticks WHERE agent = $1 ORDER BY id DESC LIMIT 1")
                .bind(agent.to_string())
                .fetch_optional(self.reader())
                .await?;
        let run = row.map(|row| -> Result<_, DbError> { Ok((row.try_get(0)?, row.try_get(1)?)) });
        run.transpose()
    }

    /// Layers that nobody has stored, oldest first: owed by whoever has them, under whatever name it made them.
    pub async fn layers_owed(&self) -> Result<Vec<LayerId>, DbError> {
        let rows = query("SELECT id FROM layers WHERE stored_at IS NULL ORDER BY id")
            .fetch_all(self.reader())
            .await?;
        ids("layers", &rows)
    }

    /// Bases that nobody has stored.
    pub async fn bases_owed(&self) -> Result<Vec<BaseId>, DbError> {
        let rows = query("SELECT id FROM bases WHERE stored_at IS NULL AND gone = 0 ORDER BY id")
            .fetch_all(self.reader())
            .await?;
        ids("bases", &rows)
    }

    /// A layer is in the layer store. False if its row is gone meanwhile.
    pub async fn layer_stored(&self, layer: &LayerId, parcel: &Parcel) -> Result<bool, DbError> {
        let sql = "UPDATE layers SET digest = $2, packed = $3, stored_at = $4 WHERE id = $1";
        self.is_stored(sql, layer.as_str(), parcel).await
    }

    /// A base is in the layer store. False if its row is gone meanwhile.
    pub async fn base_stored(&self, base: &BaseId, parcel: &Parcel) -> Result<bool, DbError> {
        let sql = "UPDATE bases SET digest = $2, packed = $3, stored_at = $4 WHERE id = $1";
        self.is_stored(sql, base.as_str(), parcel).await
    }

    /// What the layer store has of a base is of no use: it is owed again.
    pub async fn owe_base(&self, base: &BaseId) -> Result<(), DbError> {
        query("UPDATE bases SET stored_at = NULL WHERE id = $1")
            .bind(base.as_str())
            .execute(self.writer())
            .await?;
        Ok(())
    }

    async fn is_stored(
        &self,
        sql: &'static str,
        id: &str,
        parcel: &Parcel,
    ) -> Result<bool, DbError> {
        let done = query(sql)
            .bind(id)
            .bind(&parcel.digest)
            .bind(parcel.size as i64)
            .bind(self.now())
            .execute(self.writer())
            .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Layers that sandboxes may have mounted, or that somebody reads.
    pub async fn layers_in_use(&self) -> Result<HashSet<LayerId>, DbError> {
        let mut found = HashSet::new();
        let rows = query("SELECT id, lowers FROM ticks WHERE removed_at IS NULL")
            .fetch_all(self.reader())
            .await?;
        for row in &rows {
            let lowers: Option<String> = row.try_get(1)?;
            let lowers: Vec<LayerId> = match lowers {
                Some(lowers) => serde_json::from_str(&lowers).map_err(|_| DbError::Row {
                    table: "ticks",
                    id: row.try_get(0).unwrap_or_default(),
                    column: "lowers",
                })?,
                None => Vec::new(),
            };
            found.extend(lowers);
        }
        let mut names = self.held.names();
        for row in &query("SELECT layer FROM pins")
            .fetch_all(self.reader())
            .await?
        {
            names.push(row.try_get(0)?);
        }
        // Bases are pinned too, by ids of their own kind.
        found.extend(names.iter().filter_map(|name| name.parse::<LayerId>().ok()));
        Ok(found)
    }

    /// Heads of living agents whose last tick on this worker began after this time (unix ms).
    pub async fn agents_busy_on(&self, worker: &str, since: i64) -> Result<Vec<AgentId>, DbError> {
        let rows = query(
            "SELECT DISTINCT a.id FROM agents a JOIN ticks t ON t.agent = a.id
             WHERE t.worker = $1 AND t.started_at >= $2 AND a.removed_at IS NULL",
        )
        .bind(worker)
        .bind(since)
        .fetch_all(self.reader())
        .await?;
        ids("agents", &rows)
    }

    /// Of these layers those that are in the layer store, with their bytes on a disk.
    pub async fn stored_of(&self, layers: &[LayerId]) -> Result<Vec<(LayerId, u64)>, DbError> {
        let (Some(first), Some(last)) = (layers.iter().min(), layers.iter().max()) else {
            return Ok(Vec::new());
        };
        let rows = query(
            "SELECT id, bytes FROM layers WHERE id >= $1 AND id <= $2 AND stored_at IS NOT NULL",
        )
        .bind(first.as_str())
        .bind(last.as_str())
        .fetch_all(self.reader())
        .await?;
        let wanted: HashSet<&str> = layers.iter().map(LayerId::as_str).collect();
        let mut found = Vec::new();
        for row in &rows {
            let id: String = row.try_get(0)?;
            if wanted.contains(id.as_str()) {
                let bytes: i64 = row.try_get(1)?;
                found.push((parse("layers", &id, "id", &id)?, bytes.max(0) as u64));
            }
        }
        Ok(found)
    }

    /// Closed ticks of this worker whose transcripts nobody has stored, oldest first; in a file those of all that
    /// ever worked on it.
    pub async fn transcripts_owed(
        &self,
        worker: &str,
        most: i64,
    ) -> Result<Vec<(TickId, AgentId)>, DbError> {
        let rows = query(
            "SELECT id, agent FROM ticks WHERE (worker = $1 OR $3 = 0) AND transcript IS NULL
             AND outcome IS NOT NULL ORDER BY id LIMIT $2",
        )
        .bind(worker)
        .bind(most)
        .bind(i64::from(self.is_shared()))
        .fetch_all(self.reader())
        .await?;
        let of = |row: &sqlx::any::AnyRow| -> Result<(TickId, AgentId), DbError> {
            let id: String = row.try_get(0)?;
            let agent: String = row.try_get(1)?;
            Ok((
                parse("ticks", &id, "id", &id)?,
                parse("ticks", &id, "agent", &agent)?,
            ))
        };
        rows.iter().map(of).collect()
    }

    /// A tick's transcript is in the layer store, or there is none to store: then without digest.
    pub async fn transcript_stored(
        &self,
        tick: TickId,
        parcel: Option<&Parcel>,
    ) -> Result<(), DbError> {
        query("UPDATE ticks SET transcript = $2, transcript_bytes = $3 WHERE id = $1")
            .bind(tick.to_string())
            .bind(parcel.map_or(String::new(), |parcel| parcel.digest.clone()))
            .bind(parcel.map_or(0, |parcel| parcel.size as i64))
            .execute(self.writer())
            .await?;
        Ok(())
    }

    /// The transcript of a tick as it is in the layer store.
    pub async fn transcript_is(&self, tick: TickId) -> Result<Option<Parcel>, DbError> {
        let row = query(
            "SELECT transcript, transcript_bytes FROM ticks
             WHERE id = $1 AND transcript IS NOT NULL AND transcript <> ''",
        )
        .bind(tick.to_string())
        .fetch_optional(self.reader())
        .await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(Parcel {
            digest: row.try_get(0)?,
            size: row.try_get::<i64, _>(1)?.max(0) as u64,
        }))
    }
}
