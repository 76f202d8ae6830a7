//! The tree of an agent's states, and how its head moved over it.

use std::collections::{HashMap, HashSet};

use mayfly_domain::{AgentId, SnapshotId, TickId};
use sqlx::{AnyConnection, Row as _, any::AnyRow};

use super::{Db, DbError, ids, parse, parse_opt, query};

/// One state of an agent's own or inherited history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its id.
    pub id: SnapshotId,
    /// The state before; none where that is the image's own files.
    pub parent: Option<SnapshotId>,
    /// The tick that made it.
    pub tick: Option<TickId>,
    /// Whether it can still be gone back to.
    pub kept: bool,
    /// Unix ms.
    pub created_at: i64,
}

/// A head that was moved other than by a tick.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Whose head.
    pub agent: AgentId,
    /// Unix ms.
    pub at: i64,
    /// None before the first tick.
    pub from: Option<SnapshotId>,
    /// None before the first tick.
    pub to: Option<SnapshotId>,
    /// `rollback` or `fork`.
    pub reason: String,
}

/// A common table: every state that the agent `$1` made, stands on or ever stood on, and all before
/// them.
pub(super) const HISTORY: &str = "history (id) AS (
       SELECT roots.id FROM (
         SELECT id FROM snapshots WHERE agent = $1
         UNION SELECT head FROM agents WHERE id = $1
         UNION SELECT from_snapshot FROM head_moves WHERE agent = $1
         UNION SELECT to_snapshot FROM head_moves WHERE agent = $1
       ) AS roots WHERE roots.id IS NOT NULL
       UNION
       SELECT s.parent FROM history h JOIN snapshots s ON s.id = h.id WHERE s.parent IS NOT NULL
     )";

impl Db {
    /// The agent's history, newest first.
    pub async fn history(&self, agent: AgentId) -> Result<Vec<Node>, DbError> {
        let sql = format!(
            "WITH RECURSIVE {HISTORY} SELECT s.id, s.parent, s.tick, s.created_at, s.layer, own.id, m.layer, whole.id,
                    s.expired_at
             FROM history h JOIN snapshots s ON s.id = h.id
             LEFT JOIN layers own ON own.id = s.layer
             LEFT JOIN merges m ON m.snapshot = s.id
             LEFT JOIN layers whole ON whole.id = m.layer"
        );
        let rows = query(sqlx::AssertSqlSafe(sql))
            .bind(agent.to_string())
            .fetch_all(self.reader())
            .await?;
        let found = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        Ok(ordered(found))
    }

    /// Whether the agent made this state, stands on it or ever stood on it.
    pub async fn reaches(&self, agent: AgentId, state: SnapshotId) -> Result<bool, DbError> {
        let sql = format!(
            "WITH RECURSIVE {HISTORY} SELECT CASE
               WHEN EXISTS (SELECT 1 FROM snapshots WHERE id = $2 AND agent = $1) THEN 1
               WHEN $2 IN (SELECT id FROM history) THEN 1 ELSE 0 END"
        );
        let row = query(sqlx::AssertSqlSafe(sql))
            .bind(agent.to_string())
            .bind(state.to_string())
            .fetch_one(self.reader())
            .await?;
        Ok(row.try_get::<i64, _>(0)? != 0)
    }

    /// How the heads of the agent and of its living forks were moved, oldest first.
    pub async fn moves(&self, agent: AgentId) -> Result<Vec<Move>, DbError> {
        let rows = query(
            "SELECT agent, at, from_snapshot, to_snapshot, reason FROM head_moves
             WHERE agent = $1 OR (reason = 'fork' AND agent IN
               (SELECT id FROM agents WHERE forked_from = $1 AND removed_at IS NULL))
             ORDER BY at",
        )
        .bind(agent.to_string())
        .fetch_all(self.reader())
        .await?;
        let read = |row: &AnyRow| {
            let key: String = row.try_get(0)?;
            let from: Option<String> = row.try_get(2)?;
            let to: Option<String> = row.try_get(3)?;
            Ok(Move {
                agent: parse("head_moves", &key, "agent", &key)?,
                at: row.try_get(1)?,
                from: parse_opt("head_moves", &key, "from_snapshot", from.as_deref())?,
                to: parse_opt("head_moves", &key, "to_snapshot", to.as_deref())?,
                reason: row.try_get(4)?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// The agent, what it was forked from, and so on; then every fork of any of these.
    pub async fn kin(&self, agent: AgentId) -> Result<HashSet<AgentId>, DbError> {
        let rows = query(
            "WITH RECURSIVE up (id, forked_from) AS (
               SELECT id, forked_from FROM agents WHERE id = $1
               UNION SELECT a.id, a.forked_from FROM up JOIN agents a ON a.id = up.forked_from
             ), family (id) AS (
               SELECT id FROM up
               UNION SELECT a.id FROM family f JOIN agents a ON a.forked_from = f.id
             ) SELECT id FROM family",
        )
        .bind(agent.to_string())
        .fetch_all(self.reader())
        .await?;
        Ok(ids("agents", &rows)?.into_iter().collect())
    }
}

/// A row, and whether its own part of the chain of layers is there.
struct Found {
    node: Node,
    /// A merged layer stands for it and all before it.
    merged: bool,
    present: bool,
    expired: bool,
}

fn read(row: &AnyRow) -> Result<Found, DbError> {
    let key: String = row.try_get(0)?;
    let text = |column: usize| -> Result<Option<String>, DbError> { Ok(row.try_get(column)?) };
    let merged = text(6)?.is_some();
    let present = match merged {
        true => text(7)?.is_some(),
        false => text(4)?.is_none() || text(5)?.is_some(),
    };
    Ok(Found {
        merged,
        present,
        expired: row.try_get::<Option<i64>, _>(8)?.is_some(),
        node: Node {
            id: parse("snapshots", &key, "id", &key)?,
            parent: parse_opt("snapshots", &key, "parent", text(1)?.as_deref())?,
            tick: parse_opt("snapshots", &key, "tick", text(2)?.as_deref())?,
            kept: present,
            created_at: row.try_get(3)?,
        },
    })
}

/// Newest first, and no state after one it came from, whatever the clock did meanwhile.
fn ordered(found: Vec<Found>) -> Vec<Node> {
    let mut waiting: HashMap<Option<SnapshotId>, Vec<Found>> = HashMap::new();
    for found in found {
        waiting.entry(found.node.parent).or_default().push(found);
    }
    let mut done = Vec::new();
    let known: HashSet<SnapshotId> = waiting.values().flatten().map(|f| f.node.id).collect();
    let lost = |parent: &SnapshotId| !known.contains(parent);
    let mut next: Vec<(Option<SnapshotId>, bool, i64)> = vec![(None, true, i64::MIN)];
    let parents: Vec<SnapshotId> = waiting.keys().flatten().copied().collect();
    next.extend(
        parents
            .into_iter()
            .filter(lost)
            .map(|parent| (Some(parent), false, i64::MIN)),
    );
    while let Some((parent, kept, at)) = next.pop() {
        for found in waiting.remove(&parent).unwrap_or_default() {
            let mut node = found.node;
            let there = found.present && (found.merged || kept);
            node.kept = there && !found.expired;
            node.created_at = node.created_at.max(at);
            next.push((Some(node.id), there, node.created_at));
            done.push((node.created_at, done.len(), node));
        }
    }
    // Children are found after their parents.
    done.sort_by_key(|(at, found, _)| std::cmp::Reverse((*at, *found)));
    done.into_iter().map(|(.., node)| node).collect()
}

/// Whether a tick runs.
pub(super) async fn busy_on(
    connection: &mut AnyConnection,
    agent: AgentId,
) -> Result<bool, DbError> {
    let row = query("SELECT count(*) FROM ticks WHERE agent = $1 AND outcome IS NULL")
        .bind(agent.to_string())
        .fetch_one(connection)
        .await?;
    Ok(row.try_get::<i64, _>(0)? > 0)
}
