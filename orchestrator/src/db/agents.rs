//! Agents, the threads they are bound to, and the bases they stand on.

use mayfly_domain::{
    AgentId, BaseId, MessageId, SandboxRef, SnapshotId, ThreadId, ThreadKey, TickId,
};
use sqlx::{AnyConnection, Row as _, any::AnyRow};

use super::{
    Db, DbError, Tx,
    deliveries::{NewDelivery, owe},
    history::busy_on,
    ids,
    orders::{self, Ask},
    parse, parse_opt,
    pins::kept_layers_on,
    query,
};
use crate::{bases::Beginning, sandbox::BaseFacts};

/// An agent's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its id.
    pub id: AgentId,
    /// Profile name.
    pub profile: String,
    /// The reference that was given in place of the profile's.
    pub sandbox: Option<SandboxRef>,
    /// The engine's id of its image.
    pub image: String,
    /// Its base.
    pub base: BaseId,
    /// Where its next tick starts; none is the bare base.
    pub head: Option<SnapshotId>,
    /// The agent it was forked from.
    pub forked_from: Option<AgentId>,
    /// Unix ms.
    pub created_at: i64,
}

/// A base's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// Its id and folder name.
    pub id: BaseId,
    /// The engine's image id.
    pub image: String,
    /// The agent's ids in it.
    pub uid: u32,
    /// See `uid`.
    pub gid: u32,
}

/// Whether a head was moved; if not, nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// It was.
    Done,
    /// A tick runs.
    Busy,
    /// The head is not where the caller saw it.
    Elsewhere,
    /// A layer of the state to go to is not kept any more.
    Gone,
}

pub(super) const COLUMNS: &str = "id, profile, sandbox, image, base, head, forked_from, created_at";

pub(super) fn agent(row: &AnyRow) -> Result<Agent, DbError> {
    let id: String = row.try_get(0)?;
    let text = |column: usize| -> Result<Option<String>, DbError> { Ok(row.try_get(column)?) };
    Ok(Agent {
        id: parse("agents", &id, "id", &id)?,
        profile: row.try_get(1)?,
        sandbox: parse_opt("agents", &id, "sandbox", text(2)?.as_deref())?,
        image: row.try_get(3)?,
        base: parse("agents", &id, "base", &row.try_get::<String, _>(4)?)?,
        head: parse_opt("agents", &id, "head", text(5)?.as_deref())?,
        forked_from: parse_opt("agents", &id, "forked_from", text(6)?.as_deref())?,
        created_at: row.try_get(7)?,
    })
}

impl Db {
    /// An agent that is not removed.
    pub async fn agent(&self, id: AgentId) -> Result<Option<Agent>, DbError> {
        let mut connection = self.reader().acquire().await?;
        agent_on(&mut connection, id).await
    }

    /// Ids of agents that end with these characters.
    pub async fn agents_ending(&self, suffix: &str) -> Result<Vec<AgentId>, DbError> {
        self.ending("agents", suffix, "AND removed_at IS NULL")
            .await
    }

    /// The base of an image, if it was extracted; an agent is about to be made on it.
    pub async fn base_of_image(&self, image: &str) -> Result<Option<Base>, DbError> {
        let now = self.wall_clock().await?;
        let row = query(
            "UPDATE bases SET used_at = $2 WHERE image = $1 AND gone = 0
             RETURNING id, image, uid, gid",
        )
        .bind(image)
        .bind(now)
        .fetch_optional(self.writer())
        .await?;
        row.as_ref().map(base).transpose()
    }

    /// One base.
    pub async fn base(&self, id: &BaseId) -> Result<Base, DbError> {
        let row = query("SELECT id, image, uid, gid FROM bases WHERE id = $1")
            .bind(id.as_str())
            .fetch_one(self.reader())
            .await?;
        base(&row)
    }

    /// All bases.
    pub async fn bases(&self) -> Result<Vec<Base>, DbError> {
        let rows = query("SELECT id, image, uid, gid FROM bases")
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(base).collect()
    }

    /// The id that a base of this image had before it was removed as unused.
    pub async fn gone_base_of_image(&self, image: &str) -> Result<Option<BaseId>, DbError> {
        let row = query("SELECT id FROM bases WHERE image = $1 AND gone = 1")
            .bind(image)
            .fetch_optional(self.reader())
            .await?;
        let Some(row) = row else { return Ok(None) };
        let id: String = row.try_get(0)?;
        Ok(Some(parse("bases", &id, "id", &id)?))
    }

    /// Records a base whose folder is durable. Answers the one that the image has from now on: where another
    /// worker was first, that one's.
    pub async fn insert_base(
        &self,
        id: &BaseId,
        image: &str,
        facts: &BaseFacts,
    ) -> Result<Base, DbError> {
        let now = self.wall_clock().await?;
        let mut tx = self.begin().await?;
        let known = query(
            "UPDATE bases SET used_at = $2, gone = 0 WHERE image = $1 AND id <> $3
             RETURNING id, image, uid, gid",
        )
        .bind(image)
        .bind(now)
        .bind(id.as_str())
        .fetch_optional(&mut *tx)
        .await?;
        let row = match known {
            Some(row) => row,
            None => {
                query(
                    "INSERT INTO bases (id, image, uid, gid, notes, created_at, used_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $6)
                 ON CONFLICT (id) DO UPDATE SET uid = excluded.uid, gid = excluded.gid,
                   notes = excluded.notes, used_at = excluded.used_at, gone = 0
                 RETURNING id, image, uid, gid",
                )
                .bind(id.as_str())
                .bind(image)
                .bind(i64::from(facts.uid))
                .bind(i64::from(facts.gid))
                .bind(serde_json::json!(facts.notes).to_string())
                .bind(now)
                .fetch_one(&mut *tx)
                .await?
            }
        };
        let base = base(&row)?;
        tx.commit().await?;
        Ok(base)
    }

    /// The row that stands for the bases of agents whose image was not looked at yet.
    pub async fn promise_base(&self) -> Result<BaseId, DbError> {
        let now = self.wall_clock().await?;
        let id = BaseId::promised();
        query(
            "INSERT INTO bases (id, image, uid, gid, created_at, used_at) VALUES ($1, '', 0, 0, $2, $2)
             ON CONFLICT (id) DO UPDATE SET used_at = excluded.used_at, gone = 0",
        )
        .bind(id.as_str())
        .bind(now)
        .execute(self.writer())
        .await?;
        Ok(id)
    }

    /// An agent that was promised a base has one.
    pub async fn keep_promise(&self, agent: AgentId, begins: &Beginning) -> Result<(), DbError> {
        query("UPDATE agents SET image = $2, base = $3 WHERE id = $1 AND base = $4")
            .bind(agent.to_string())
            .bind(&begins.image)
            .bind(begins.base.as_str())
            .bind(BaseId::promised().as_str())
            .execute(self.writer())
            .await?;
        Ok(())
    }

    /// Makes an agent and its thread.
    pub async fn insert_agent(&self, agent: &Agent, thread: &ThreadKey) -> Result<(), DbError> {
        let mut tx = self.begin().await?;
        insert_agent(&mut tx, agent, thread).await?;
        crate::faults::point("agent.inside");
        tx.commit().await?;
        Ok(())
    }

    /// Copies an agent as of a snapshot; its layers are pinned by the row itself. False where one
    /// of them is not kept any more. What is left of the command that asked for it is noted with it.
    pub async fn fork_agent(
        &self,
        fork: &Agent,
        thread: &ThreadKey,
        asked: Option<&(MessageId, Ask)>,
    ) -> Result<bool, DbError> {
        let mut tx = self.begin().await?;
        if kept_layers_on(&mut tx, fork.head).await?.is_none() {
            return Ok(false);
        }
        insert_agent(&mut tx, fork, thread).await?;
        move_row(&mut tx, fork.id, None, fork.head, "fork").await?;
        if let Some((order, ask)) = asked {
            orders::becomes(&mut tx, *order, ask).await?;
        }
        tx.commit().await?;
        crate::faults::lose_answer("fork.answer")?;
        Ok(true)
    }

    /// Moves the head if no tick is open, the head is still where the caller saw it and the other
    /// state is still kept. The head left behind is remembered in the same transaction.
    pub async fn move_head(
        &self,
        id: AgentId,
        from: Option<SnapshotId>,
        to: Option<SnapshotId>,
    ) -> Result<Moved, DbError> {
        let mut tx = self.begin().await?;
        if kept_layers_on(&mut tx, to).await?.is_none() {
            return Ok(Moved::Gone);
        }
        if busy_on(&mut tx, id).await? {
            return Ok(Moved::Busy);
        }
        let moved = query(
            "UPDATE agents SET head = $3 WHERE id = $1 AND removed_at IS NULL
             AND COALESCE(head, '') = $2",
        )
        .bind(id.to_string())
        .bind(from.map(|id| id.to_string()).unwrap_or_default())
        .bind(to.map(|id| id.to_string()))
        .execute(&mut *tx)
        .await?
        .rows_affected();
        if moved == 0 {
            return Ok(Moved::Elsewhere);
        }
        move_row(&mut tx, id, from, to, "rollback").await?;
        crate::faults::point("rollback.inside");
        tx.commit().await?;
        crate::faults::point("rollback.after");
        crate::faults::lose_answer("rollback.answer")?;
        Ok(Moved::Done)
    }

    /// Marks an agent removed if no tick is open, and withdraws what waits.
    pub async fn remove_agent(&self, id: AgentId) -> Result<bool, DbError> {
        let now = self.wall_clock().await?;
        let mut tx = self.begin().await?;
        let removed = query(
            "UPDATE agents SET removed_at = $2 WHERE id = $1 AND removed_at IS NULL
             AND NOT EXISTS (SELECT 1 FROM ticks WHERE agent = $1 AND outcome IS NULL)",
        )
        .bind(id.to_string())
        .bind(now)
        .execute(&mut *tx)
        .await?
        .rows_affected();
        if removed == 1 {
            let withdrawn = query(
                "UPDATE messages SET outcome = 'withdrawn', reason = 'the agent was removed',
                 settled_at = $2 WHERE agent = $1 AND (outcome IS NULL OR outcome = 'parked')
                 RETURNING id, thread",
            )
            .bind(id.to_string())
            .bind(now)
            .fetch_all(&mut *tx)
            .await?;
            for row in &withdrawn {
                let (message, thread): (String, String) = (row.try_get(0)?, row.try_get(1)?);
                let notice = NewDelivery::notice(
                    parse("messages", &message, "thread", &thread)?,
                    parse("messages", &message, "id", &message)?,
                    None,
                    "withdrawn: the agent was removed".to_owned(),
                );
                owe(&mut tx, &notice).await?;
            }
        }
        tx.commit().await?;
        Ok(removed == 1)
    }

    /// Living agents whose head stands on a snapshot of this agent.
    pub async fn forks_of(&self, id: AgentId) -> Result<Vec<AgentId>, DbError> {
        let rows = query(
            "WITH RECURSIVE chain (agent, snapshot, owner, parent) AS (
               SELECT a.id, s.id, s.agent, s.parent FROM agents a JOIN snapshots s ON s.id = a.head
                WHERE a.removed_at IS NULL AND a.id <> $1
               UNION ALL
               SELECT c.agent, s.id, s.agent, s.parent FROM chain c JOIN snapshots s ON s.id = c.parent
             ) SELECT DISTINCT agent FROM chain WHERE owner = $1",
        )
        .bind(id.to_string())
        .fetch_all(self.reader())
        .await?;
        ids("agents", &rows)
    }

    /// The thread of an agent, to post to.
    pub async fn thread_of(&self, id: AgentId) -> Result<ThreadKey, DbError> {
        let row = query("SELECT key FROM threads WHERE agent = $1 ORDER BY id LIMIT 1")
            .bind(id.to_string())
            .fetch_one(self.reader())
            .await?;
        parse(
            "threads",
            &id.to_string(),
            "key",
            &row.try_get::<String, _>(0)?,
        )
    }

    /// The tick whose state a snapshot is.
    pub async fn tick_of(&self, snapshot: SnapshotId) -> Result<Option<TickId>, DbError> {
        let row = query("SELECT tick FROM snapshots WHERE id = $1")
            .bind(snapshot.to_string())
            .fetch_optional(self.reader())
            .await?;
        let Some(row) = row else { return Ok(None) };
        let tick: Option<String> = row.try_get(0)?;
        parse_opt("snapshots", &snapshot.to_string(), "tick", tick.as_deref())
    }
}

pub(super) async fn agent_on(
    connection: &mut AnyConnection,
    id: AgentId,
) -> Result<Option<Agent>, DbError> {
    let sql = format!("SELECT {COLUMNS} FROM agents WHERE id = $1 AND removed_at IS NULL");
    let row = query(sqlx::AssertSqlSafe(sql))
        .bind(id.to_string())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(agent).transpose()
}

fn base(row: &AnyRow) -> Result<Base, DbError> {
    let id: String = row.try_get(0)?;
    let number = |column: usize, name: &'static str| -> Result<u32, DbError> {
        let value: i64 = row.try_get(column)?;
        u32::try_from(value).map_err(|_| DbError::Row {
            table: "bases",
            id: id.clone(),
            column: name,
        })
    };
    Ok(Base {
        image: row.try_get(1)?,
        uid: number(2, "uid")?,
        gid: number(3, "gid")?,
        id: parse("bases", &id, "id", &id)?,
    })
}

pub(super) async fn insert_agent(
    tx: &mut Tx,
    agent: &Agent,
    thread: &ThreadKey,
) -> Result<(), DbError> {
    query(
        "INSERT INTO agents (id, profile, sandbox, image, base, head, forked_from, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(agent.id.to_string())
    .bind(&agent.profile)
    .bind(agent.sandbox.as_ref().map(SandboxRef::to_string))
    .bind(&agent.image)
    .bind(agent.base.as_str())
    .bind(agent.head.map(|id| id.to_string()))
    .bind(agent.forked_from.map(|id| id.to_string()))
    .bind(agent.created_at)
    .execute(&mut **tx)
    .await?;
    query("INSERT INTO threads (id, key, agent) VALUES ($1, $2, $3)")
        .bind(ThreadId::new().to_string())
        .bind(thread.to_string())
        .bind(agent.id.to_string())
        .execute(&mut **tx)
        .await?;
    Ok(())
}

async fn move_row(
    tx: &mut Tx,
    agent: AgentId,
    from: Option<SnapshotId>,
    to: Option<SnapshotId>,
    reason: &str,
) -> Result<(), DbError> {
    query(
        "INSERT INTO head_moves (agent, at, from_snapshot, to_snapshot, reason)
         VALUES ($1, $2, $3, $4, $5)",
    )
    .bind(agent.to_string())
    .bind(tx.now())
    .bind(from.map(|id| id.to_string()))
    .bind(to.map(|id| id.to_string()))
    .bind(reason)
    .execute(&mut **tx)
    .await?;
    Ok(())
}
