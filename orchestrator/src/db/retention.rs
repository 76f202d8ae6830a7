//! What retention and garbage collection read and write. A family is all agents that may share
//! layers: they stand on each other's states by forks.

use std::collections::HashMap;

use mayfly_domain::{AgentId, BaseId, LayerId, SnapshotId};
use sha2::{Digest as _, Sha256};
use sqlx::{AnyConnection, Row as _, any::AnyRow};

use super::{Db, DbError, Tx, ids, parse, parse_opt, query};
use crate::retention::plan::{Family, Member, Plan, State};

/// Differs whenever something did from which a family's use of the disk is added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FamilyVersion([u8; 32]);

impl Db {
    /// Of each group that may share layers the agent that all others come from, removed ones too: so many behind
    /// this one, in the order of their ids.
    pub async fn origins(
        &self,
        after: Option<AgentId>,
        most: i64,
    ) -> Result<Vec<AgentId>, DbError> {
        let rows = query(
            "SELECT a.id FROM agents a WHERE a.id > $1
                AND NOT EXISTS (SELECT 1 FROM agents o WHERE o.id = a.forked_from)
              ORDER BY a.id LIMIT $2",
        )
        .bind(after.map_or_else(String::new, |agent| agent.to_string()))
        .bind(most)
        .fetch_all(self.reader())
        .await?;
        ids("agents", &rows)
    }

    /// The family of an agent as it is now.
    pub async fn family(&self, agent: AgentId) -> Result<Family, DbError> {
        let mut connection = self.reader().acquire().await?;
        self.family_on(&mut connection, agent).await
    }

    /// The family of an agent without what is mounted or pinned.
    pub async fn relatives(&self, agent: AgentId) -> Result<Family, DbError> {
        let mut connection = self.reader().acquire().await?;
        relatives_on(&mut connection, agent).await
    }

    /// The version of an agent's family: one statement that counts where the family is read row by
    /// row. Every count only ever grows (states made, moves, states gone; among states that are not
    /// gone: expired ones, layers forgotten), heads and merged forms are in it as they are, and the
    /// rest of a row never changes; so no version comes twice.
    pub async fn family_version(&self, agent: AgentId) -> Result<FamilyVersion, DbError> {
        let mut connection = self.reader().acquire().await?;
        let mut hash = Sha256::new();
        for row in &of_family(&mut connection, agent, VERSION).await? {
            hash.update(row.try_get::<String, _>(0)?);
            hash.update("\n");
        }
        Ok(FamilyVersion(hash.finalize().into()))
    }

    /// Finds the family of this agent, lets `decide` make a plan, and carries it out: one
    /// transaction, so that nothing it rests on changes in between, also no fork that was made a
    /// moment ago. The layers in the plan are forgotten; their folders are the caller's to remove.
    pub async fn collect(
        &self,
        agent: AgentId,
        decide: impl FnOnce(&Family) -> Plan,
    ) -> Result<Plan, DbError> {
        self.release_pins().await?;
        let mut tx = self.begin().await?;
        let _closed = self.held.close().await;
        let family = self.family_on(&mut tx, agent).await?;
        let plan = decide(&family);
        carry_out(self, &mut tx, &plan).await?;
        crate::faults::point("garbage.inside");
        tx.commit().await?;
        Ok(plan)
    }

    async fn family_on(
        &self,
        connection: &mut AnyConnection,
        agent: AgentId,
    ) -> Result<Family, DbError> {
        let mut family = relatives_on(connection, agent).await?;
        mounted_on(connection, agent, &mut family).await?;
        let pins = query("SELECT layer FROM pins")
            .fetch_all(connection)
            .await?;
        let mut names = self.held.names();
        for row in &pins {
            names.push(row.try_get(0)?);
        }
        // Bases are pinned too, by ids of their own kind.
        let layers = names.iter().filter_map(|name| name.parse::<LayerId>().ok());
        family.pinned.extend(layers);
        Ok(family)
    }

    /// Whether a state can still be gone back to.
    pub async fn is_expired(&self, state: SnapshotId) -> Result<bool, DbError> {
        is_expired_on(&mut *self.reader().acquire().await?, state).await
    }

    /// The newest time that any row tells, and what housekeeping last took for the time.
    pub async fn newest_times(&self) -> Result<(i64, Option<i64>), DbError> {
        let row = query(
            "SELECT COALESCE(max(at), 0), (SELECT max(seen_at) FROM clock) FROM (
               SELECT created_at AS at FROM installation
               UNION ALL SELECT max(created_at) FROM layers
               UNION ALL SELECT max(started_at) FROM (SELECT started_at FROM ticks ORDER BY id DESC LIMIT 100) AS t
               UNION ALL SELECT max(created_at) FROM (SELECT created_at FROM messages ORDER BY id DESC LIMIT 100) AS m
             ) AS times",
        )
        .fetch_one(self.reader())
        .await?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    /// Housekeeping takes this for the time.
    pub async fn see_clock(&self, now: i64) -> Result<(), DbError> {
        query(
            "INSERT INTO clock (id, seen_at) VALUES ('gc', $1)
             ON CONFLICT (id) DO UPDATE SET seen_at = $1",
        )
        .bind(now)
        .execute(self.writer())
        .await?;
        Ok(())
    }

    /// Bases that no agent stands on, and has not for so long, and nothing pins; those whose
    /// removal was begun are among them.
    pub async fn unused_bases(&self, before: i64) -> Result<Vec<BaseId>, DbError> {
        let rows = query(UNUSED_BASES)
            .bind(before)
            .fetch_all(self.reader())
            .await?;
        ids("bases", &rows)
    }

    /// Marks a base as gone if it is unused still; its folder is removed after this is durable.
    pub async fn forget_base(&self, base: &BaseId, before: i64) -> Result<bool, DbError> {
        // The gate last: a collection takes both in this order too.
        let mut tx = self.begin().await?;
        let _closed = self.held.close().await;
        if self.held.has(base.as_str()) {
            return Ok(false);
        }
        let sql = format!(
            "UPDATE bases SET gone = 1, bytes = NULL WHERE id = $2 AND id IN ({UNUSED_BASES})"
        );
        let forgotten = query(sqlx::AssertSqlSafe(sql))
            .bind(before)
            .bind(base.as_str())
            .execute(&mut *tx)
            .await?
            .rows_affected();
        if forgotten == 1 {
            super::doomed::doom_base(self, &mut tx, base).await?;
        }
        tx.commit().await?;
        Ok(forgotten == 1)
    }

    /// Records what a base takes on disk.
    pub async fn set_base_bytes(&self, base: &BaseId, bytes: u64) -> Result<(), DbError> {
        query("UPDATE bases SET bytes = $2 WHERE id = $1")
            .bind(base.as_str())
            .bind(bytes as i64)
            .execute(self.writer())
            .await?;
        Ok(())
    }
}

const UNUSED_BASES: &str = "SELECT b.id FROM bases b WHERE COALESCE(b.used_at, b.created_at) < $1
    AND NOT EXISTS (SELECT 1 FROM agents a WHERE a.base = b.id
                    AND (a.removed_at IS NULL OR a.removed_at >= $1))
    AND NOT EXISTS (SELECT 1 FROM pins p WHERE p.layer = b.id)
    AND NOT EXISTS (SELECT 1 FROM ticks t JOIN agents a ON a.id = t.agent
                     WHERE a.base = b.id AND t.removed_at IS NULL)";

/// See [`Db::is_expired`].
pub(super) async fn is_expired_on(
    connection: &mut AnyConnection,
    state: SnapshotId,
) -> Result<bool, DbError> {
    let row = query("SELECT count(*) FROM snapshots WHERE id = $1 AND expired_at IS NULL")
        .bind(state.to_string())
        .fetch_one(connection)
        .await?;
    Ok(row.try_get::<i64, _>(0)? == 0)
}

/// Common tables: the family of the agent `$1`. What follows joins it crosswise, so that SQLite begins with it and
/// not with all there is.
const FAMILY: &str = "WITH RECURSIVE up (id, forked_from) AS (
       SELECT id, forked_from FROM agents WHERE id = $1
       UNION SELECT a.id, a.forked_from FROM up u JOIN agents a ON a.id = u.forked_from
     ), family (id) AS (
       SELECT id FROM up UNION SELECT a.id FROM family f JOIN agents a ON a.forked_from = f.id
     )";

/// A line for each agent and each merged form of a family. Cross joins keep SQLite from beginning
/// with all states there are.
const VERSION: &str =
    "SELECT a.id || ' ' || COALESCE(a.head, '-') || ' ' || COALESCE(a.removed_at, 0)
       || ' ' || (SELECT count(*) FROM head_moves m WHERE m.agent = a.id)
       || ' ' || (SELECT count(*) FROM snapshots s WHERE s.agent = a.id)
       || ' ' || (SELECT count(*) || ' ' || count(s.expired_at) || ' ' || count(l.id)
                    FROM snapshots s LEFT JOIN layers l ON l.id = s.layer
                   WHERE s.agent = a.id AND s.gone = 0) AS line
     FROM family f JOIN agents a ON a.id = f.id
    UNION ALL
    SELECT s.id || ' ' || m.layer FROM family f CROSS JOIN snapshots s CROSS JOIN merges m
     WHERE s.agent = f.id AND s.gone = 0 AND m.snapshot = s.id ORDER BY line";

async fn of_family(
    connection: &mut AnyConnection,
    agent: AgentId,
    rest: &str,
) -> Result<Vec<AnyRow>, DbError> {
    let sql = format!("{FAMILY} {rest}");
    let rows = query(sqlx::AssertSqlSafe(sql)).bind(agent.to_string());
    rows.fetch_all(connection).await
}

async fn relatives_on(connection: &mut AnyConnection, agent: AgentId) -> Result<Family, DbError> {
    let mut family = Family::default();
    members_on(connection, agent, &mut family).await?;
    states_on(connection, agent, &mut family).await?;
    Ok(family)
}

async fn members_on(
    connection: &mut AnyConnection,
    agent: AgentId,
    family: &mut Family,
) -> Result<(), DbError> {
    let moves = "SELECT m.agent, m.from_snapshot, m.to_snapshot
                   FROM family f CROSS JOIN head_moves m WHERE m.agent = f.id";
    let mut left: HashMap<String, Vec<SnapshotId>> = HashMap::new();
    for row in &of_family(connection, agent, moves).await? {
        let key: String = row.try_get(0)?;
        for column in 1..3 {
            let text: Option<String> = row.try_get(column)?;
            let state: Option<SnapshotId> =
                parse_opt("head_moves", &key, "snapshot", text.as_deref())?;
            left.entry(key.clone()).or_default().extend(state);
        }
    }
    let members = "SELECT a.id, a.profile, a.head, a.created_at,
                     (SELECT max(t.started_at) FROM ticks t WHERE t.agent = a.id)
                     FROM family f CROSS JOIN agents a WHERE a.id = f.id AND a.removed_at IS NULL";
    for row in &of_family(connection, agent, members).await? {
        let key: String = row.try_get(0)?;
        let head: Option<String> = row.try_get(2)?;
        let last: Option<i64> = row.try_get(4)?;
        family.members.push(Member {
            agent: parse("agents", &key, "id", &key)?,
            profile: row.try_get(1)?,
            head: parse_opt("agents", &key, "head", head.as_deref())?,
            left: left.remove(&key).unwrap_or_default(),
            last_tick: last.unwrap_or(row.try_get(3)?),
        });
    }
    Ok(())
}

async fn states_on(
    connection: &mut AnyConnection,
    agent: AgentId,
    family: &mut Family,
) -> Result<(), DbError> {
    let states = "SELECT s.id, s.parent, s.layer, l.bytes, m.layer, ml.bytes, s.created_at,
                    s.expired_at, s.agent FROM family f
                    CROSS JOIN snapshots s
                    LEFT JOIN layers l ON l.id = s.layer
                    LEFT JOIN merges m ON m.snapshot = s.id
                    LEFT JOIN layers ml ON ml.id = m.layer
                   WHERE s.agent = f.id AND s.gone = 0";
    for row in &of_family(connection, agent, states).await? {
        let key: String = row.try_get(0)?;
        let text = |column: usize| -> Result<Option<String>, DbError> { Ok(row.try_get(column)?) };
        let bytes = |column: usize| -> Result<Option<u64>, DbError> {
            let bytes: Option<i64> = row.try_get(column)?;
            Ok(bytes.map(|bytes| bytes.max(0) as u64))
        };
        family.add(State {
            id: parse("snapshots", &key, "id", &key)?,
            agent: parse("snapshots", &key, "agent", &row.try_get::<String, _>(8)?)?,
            parent: parse_opt("snapshots", &key, "parent", text(1)?.as_deref())?,
            layer: parse_opt("snapshots", &key, "layer", text(2)?.as_deref())?,
            layer_bytes: bytes(3)?,
            merged: parse_opt("merges", &key, "layer", text(4)?.as_deref())?,
            merged_bytes: bytes(5)?,
            created_at: row.try_get(6)?,
            expired: row.try_get::<Option<i64>, _>(7)?.is_some(),
        });
    }
    Ok(())
}

/// What sandboxes have mounted that are not proved to be gone.
async fn mounted_on(
    connection: &mut AnyConnection,
    agent: AgentId,
    family: &mut Family,
) -> Result<(), DbError> {
    let mounted = "SELECT t.id, t.before, t.lowers FROM ticks t
                    WHERE t.removed_at IS NULL AND t.agent IN (SELECT id FROM family)";
    for row in &of_family(connection, agent, mounted).await? {
        let tick: String = row.try_get(0)?;
        let before: Option<String> = row.try_get(1)?;
        let before: Option<SnapshotId> = parse_opt("ticks", &tick, "before", before.as_deref())?;
        family.before.extend(before);
        match row.try_get::<Option<String>, _>(2)? {
            Some(lowers) => {
                let lowers: Vec<LayerId> =
                    serde_json::from_str(&lowers).map_err(|_| DbError::Row {
                        table: "ticks",
                        id: tick,
                        column: "lowers",
                    })?;
                family.pinned.extend(lowers);
            }
            // Written by an older version: what it has mounted is not known.
            None => family.unknown_mounts |= before.is_some(),
        }
    }
    Ok(())
}

async fn carry_out(db: &Db, tx: &mut Tx, plan: &Plan) -> Result<(), DbError> {
    let now = tx.now();
    for state in &plan.expire {
        query("UPDATE snapshots SET expired_at = $2 WHERE id = $1 AND expired_at IS NULL")
            .bind(state.to_string())
            .bind(now)
            .execute(&mut **tx)
            .await?;
    }
    for layer in &plan.forget {
        super::doomed::doom_layer(db, tx, layer).await?;
        for sql in [
            "DELETE FROM merges WHERE layer = $1",
            "DELETE FROM layers WHERE id = $1",
        ] {
            query(sql).bind(layer.as_str()).execute(&mut **tx).await?;
        }
    }
    for state in &plan.gone {
        query("UPDATE snapshots SET gone = 1 WHERE id = $1")
            .bind(state.to_string())
            .execute(&mut **tx)
            .await?;
    }
    Ok(())
}
