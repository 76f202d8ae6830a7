//! Snapshots are identities; which layers stand for one is looked up here.

use std::collections::HashSet;

use mayfly_domain::{AgentId, LayerId, SnapshotId, TickId};
use sqlx::{AnyConnection, Row as _};

use super::{
    Db, DbError,
    depot::{NewLayer, insert_layer},
    ids, parse, parse_opt, query,
};

/// A snapshot's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its id.
    pub id: SnapshotId,
    /// The agent whose tick made it.
    pub agent: AgentId,
    /// The state before.
    pub parent: Option<SnapshotId>,
    /// The tick that made it.
    pub tick: Option<TickId>,
    /// The agent program's session for exactly these files.
    pub session: Option<String>,
}

/// Where a layer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// The tick that made it.
    pub by: TickId,
    /// The tick whose state that one started from; none for an agent's first.
    pub before: Option<TickId>,
}

impl Db {
    /// The layers of a snapshot, oldest first, without the base; a merged layer stands for the
    /// chain it replaced.
    pub async fn layers_of(&self, snapshot: Option<SnapshotId>) -> Result<Vec<LayerId>, DbError> {
        layers_on(&mut *self.reader().acquire().await?, snapshot).await
    }

    /// One snapshot.
    pub async fn snapshot(&self, id: SnapshotId) -> Result<Option<Snapshot>, DbError> {
        let row = query("SELECT agent, parent, tick, session FROM snapshots WHERE id = $1")
            .bind(id.to_string())
            .fetch_optional(self.reader())
            .await?;
        let Some(row) = row else { return Ok(None) };
        let key = id.to_string();
        let text = |column: usize| -> Result<Option<String>, DbError> { Ok(row.try_get(column)?) };
        Ok(Some(Snapshot {
            id,
            agent: parse("snapshots", &key, "agent", &row.try_get::<String, _>(0)?)?,
            parent: parse_opt("snapshots", &key, "parent", text(1)?.as_deref())?,
            tick: parse_opt("snapshots", &key, "tick", text(2)?.as_deref())?,
            session: row.try_get(3)?,
        }))
    }

    /// Adds a merged layer as another representation of a snapshot. False if one exists already or
    /// the state has expired meanwhile; the caller then removes its own.
    pub async fn insert_merge(
        &self,
        snapshot: SnapshotId,
        layer: &NewLayer<'_>,
    ) -> Result<bool, DbError> {
        let now = self.now();
        let mut tx = self.begin().await?;
        let inserted = query(
            "INSERT INTO merges (snapshot, layer, created_at)
             SELECT id, $2, $3 FROM snapshots WHERE id = $1 AND expired_at IS NULL
             ON CONFLICT (snapshot) DO NOTHING",
        )
        .bind(snapshot.to_string())
        .bind(layer.id.as_str())
        .bind(now)
        .execute(&mut *tx)
        .await?
        .rows_affected();
        if inserted == 1 {
            insert_layer(&mut tx, layer, now).await?;
        }
        crate::faults::point("merge.inside");
        tx.commit().await?;
        Ok(inserted == 1)
    }

    /// Living agents whose head's chain has at least this many layers: of these, or of all.
    pub async fn heads_with_layers(
        &self,
        at_least: i64,
        of: Option<AgentId>,
    ) -> Result<Vec<AgentId>, DbError> {
        let which = match of {
            Some(_) => "a.id = $2 AND",
            None => "",
        };
        let sql = format!(
            "WITH RECURSIVE chain (agent, id, parent, layer, merged) AS (
               SELECT a.id, s.id, s.parent, s.layer, m.layer FROM agents a
                 JOIN snapshots s ON s.id = a.head LEFT JOIN merges m ON m.snapshot = s.id
                WHERE {which} a.removed_at IS NULL
               UNION ALL
               SELECT c.agent, s.id, s.parent, s.layer, m.layer FROM chain c
                 JOIN snapshots s ON s.id = c.parent
                 LEFT JOIN merges m ON m.snapshot = s.id WHERE c.merged IS NULL
             ) SELECT agent FROM chain WHERE merged IS NOT NULL OR layer IS NOT NULL
               GROUP BY agent HAVING count(*) >= $1"
        );
        let mut query = query(sqlx::AssertSqlSafe(sql)).bind(at_least);
        if let Some(agent) = of {
            query = query.bind(agent.to_string());
        }
        ids("agents", &query.fetch_all(self.reader()).await?)
    }

    /// Whether a row names this layer.
    pub async fn knows_layer(&self, layer: &LayerId) -> Result<bool, DbError> {
        let row = query("SELECT count(*) FROM layers WHERE id = $1")
            .bind(layer.as_str())
            .fetch_one(self.reader())
            .await?;
        Ok(row.try_get::<i64, _>(0)? > 0)
    }

    /// The tick that made a layer; none where a merge did, or where its agent came from elsewhere.
    pub async fn made(&self, layer: &LayerId) -> Result<Option<Made>, DbError> {
        let row = query(
            "SELECT s.tick, p.tick FROM snapshots s LEFT JOIN snapshots p ON p.id = s.parent
             WHERE s.layer = $1 AND s.tick IS NOT NULL",
        )
        .bind(layer.as_str())
        .fetch_optional(self.reader())
        .await?;
        let Some(row) = row else { return Ok(None) };
        let tick = |at: usize| -> Result<Option<TickId>, DbError> {
            let text: Option<String> = row.try_get(at)?;
            parse_opt("snapshots", layer.as_str(), "tick", text.as_deref())
        };
        let before = tick(1)?;
        Ok(tick(0)?.map(|by| Made { by, before }))
    }

    /// Those of these layers, which are in order, that no row names, no open tick may write, and
    /// none whose sandbox is not proved to be gone.
    pub async fn unnamed_layers<'a>(
        &self,
        layers: &'a [LayerId],
    ) -> Result<Vec<&'a LayerId>, DbError> {
        let (Some(first), Some(last)) = (layers.first(), layers.last()) else {
            return Ok(Vec::new());
        };
        let mut named = HashSet::new();
        // In this order: a tick that is over now has written its row, if ever it does.
        for sql in [
            "SELECT layer FROM ticks WHERE layer >= $1 AND layer <= $2
             AND (outcome IS NULL OR removed_at IS NULL)",
            "SELECT id FROM layers WHERE id >= $1 AND id <= $2",
        ] {
            let rows = query(sql)
                .bind(first.as_str())
                .bind(last.as_str())
                .fetch_all(self.reader())
                .await?;
            for row in &rows {
                named.insert(row.try_get::<String, _>(0)?);
            }
        }
        let unnamed = layers
            .iter()
            .filter(|layer| !named.contains(layer.as_str()));
        Ok(unnamed.collect())
    }
}

/// See [`Db::layers_of`].
pub(super) async fn layers_on(
    connection: &mut AnyConnection,
    snapshot: Option<SnapshotId>,
) -> Result<Vec<LayerId>, DbError> {
    let Some(snapshot) = snapshot else {
        return Ok(Vec::new());
    };
    let rows = query(
        "WITH RECURSIVE chain (id, parent, layer, merged, depth) AS (
               SELECT s.id, s.parent, s.layer, m.layer, 0 FROM snapshots s
                 LEFT JOIN merges m ON m.snapshot = s.id WHERE s.id = $1
               UNION ALL
               SELECT s.id, s.parent, s.layer, m.layer, c.depth + 1 FROM chain c
                 JOIN snapshots s ON s.id = c.parent
                 LEFT JOIN merges m ON m.snapshot = s.id WHERE c.merged IS NULL
             ) SELECT COALESCE(merged, layer) FROM chain
               WHERE merged IS NOT NULL OR layer IS NOT NULL ORDER BY depth DESC",
    )
    .bind(snapshot.to_string())
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| {
            let layer: String = row.try_get(0)?;
            parse("snapshots", &snapshot.to_string(), "layer", &layer)
        })
        .collect()
}
