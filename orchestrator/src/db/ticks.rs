//! Ticks as rows; `claims` opens them, `endings` closes them, `shown` reads them for faces.

use mayfly_domain::{AgentId, LayerId, MessageId, SnapshotId, TickId};
use sqlx::{Row as _, any::AnyRow};

use super::{Db, DbError, parse, parse_opt, query};
use crate::{
    sandbox::Names,
    tick::outcome::{Changes, TickOutcome},
};

/// A tick's row.
#[derive(Debug, Clone)]
pub struct Tick {
    /// Its id.
    pub id: TickId,
    /// Whose.
    pub agent: AgentId,
    /// For which message.
    pub message: MessageId,
    /// The tick it is a re-run of.
    pub retry_of: Option<TickId>,
    /// The claim's generation.
    pub generation: i64,
    /// Where it is or ended.
    pub phase: String,
    /// None while open.
    pub outcome: Option<TickOutcome>,
    /// Whether files were kept.
    pub changes: Option<Changes>,
    /// What the thread was told in place of a plain answer.
    pub notice: Option<String>,
    /// Exit code.
    pub exit_code: Option<i64>,
    /// A person said stop.
    pub cancel_requested: bool,
    /// What it does right now.
    pub progress: Option<String>,
    /// `none` or `possible`.
    pub effects: String,
    /// The head it started from.
    pub before: Option<SnapshotId>,
    /// The snapshot it made.
    pub after: Option<SnapshotId>,
    /// The engine's image id.
    pub image: Option<String>,
    /// What its upper folder is sealed as.
    pub layer: LayerId,
    /// Everything it may have created.
    pub names: Names,
    /// What the seal dropped or stripped.
    pub notes: Vec<String>,
    /// Milliseconds per phase.
    pub phase_ms: [i64; 5],
    /// Bytes written by the program.
    pub output_bytes: i64,
    /// Bytes of its layer.
    pub layer_bytes: i64,
    /// Entries of its layer.
    pub layer_inodes: i64,
    /// Unix ms.
    pub started_at: i64,
    /// Unix ms.
    pub ended_at: Option<i64>,
    /// Who ran it.
    pub worker: String,
}

/// Of a row that is called `t`.
pub(super) const COLUMNS: &str = "t.id, t.agent, t.message, t.retry_of, t.generation, t.phase, t.outcome, t.changes, \
     t.notice, t.exit_code, t.cancel_requested, t.progress, t.effects, t.before, t.after, \
     t.image, t.layer, t.names, t.notes, t.phase_ms, t.output_bytes, t.layer_bytes, \
     t.layer_inodes, t.started_at, t.ended_at, t.worker";

pub(super) fn tick(row: &AnyRow) -> Result<Tick, DbError> {
    let key: String = row.try_get(0)?;
    let bad = |column| DbError::Row {
        table: "ticks",
        id: key.clone(),
        column,
    };
    let text = |column: usize| -> Result<String, DbError> { Ok(row.try_get(column)?) };
    let optional = |column: usize| -> Result<Option<String>, DbError> { Ok(row.try_get(column)?) };
    let outcome = optional(6)?;
    let changes = optional(7)?;
    Ok(Tick {
        id: parse("ticks", &key, "id", &key)?,
        agent: parse("ticks", &key, "agent", &text(1)?)?,
        message: parse("ticks", &key, "message", &text(2)?)?,
        retry_of: parse_opt("ticks", &key, "retry_of", optional(3)?.as_deref())?,
        generation: row.try_get(4)?,
        phase: text(5)?,
        outcome: outcome
            .map(|text| TickOutcome::parse(&text).ok_or_else(|| bad("outcome")))
            .transpose()?,
        changes: changes
            .map(|text| Changes::parse(&text).ok_or_else(|| bad("changes")))
            .transpose()?,
        notice: optional(8)?,
        exit_code: row.try_get(9)?,
        cancel_requested: row.try_get::<i64, _>(10)? != 0,
        progress: optional(11)?,
        effects: text(12)?,
        before: parse_opt("ticks", &key, "before", optional(13)?.as_deref())?,
        after: parse_opt("ticks", &key, "after", optional(14)?.as_deref())?,
        image: optional(15)?,
        layer: parse("ticks", &key, "layer", &text(16)?)?,
        names: serde_json::from_str(&text(17)?).map_err(|_| bad("names"))?,
        notes: serde_json::from_str(&text(18)?).map_err(|_| bad("notes"))?,
        phase_ms: serde_json::from_str(&text(19)?).map_err(|_| bad("phase_ms"))?,
        output_bytes: row.try_get(20)?,
        layer_bytes: row.try_get(21)?,
        layer_inodes: row.try_get(22)?,
        started_at: row.try_get(23)?,
        ended_at: row.try_get(24)?,
        worker: text(25)?,
    })
}

impl Db {
    /// One tick.
    pub async fn tick(&self, id: TickId) -> Result<Option<Tick>, DbError> {
        let mut ticks = self.select("WHERE id = $1", &id.to_string()).await?;
        Ok(ticks.pop())
    }

    /// An agent's ticks, oldest first.
    pub async fn ticks_of(&self, agent: AgentId) -> Result<Vec<Tick>, DbError> {
        self.select("WHERE agent = $1 ORDER BY id", &agent.to_string())
            .await
    }

    /// The open tick of an agent.
    pub async fn open_tick(&self, agent: AgentId) -> Result<Option<Tick>, DbError> {
        let mut ticks = self
            .select("WHERE agent = $1 AND outcome IS NULL", &agent.to_string())
            .await?;
        Ok(ticks.pop())
    }

    /// Open ticks of a start that is over: its worker was declared dead, so their sandboxes are dead, or began a
    /// later one, so they are dead or dying. Those are for that later start only, which can ask the engine.
    pub async fn orphans(&self) -> Result<Vec<Tick>, DbError> {
        let over = "WHERE t.outcome IS NULL AND NOT EXISTS
             (SELECT 1 FROM workers w WHERE w.id = t.worker AND w.epoch = t.epoch)";
        let clause = match self.is_shared() {
            false => format!("{over} AND t.id <> $1 ORDER BY t.id"),
            true => format!(
                "{over} AND (t.worker = $1 OR NOT EXISTS
                   (SELECT 1 FROM workers w WHERE w.id = t.worker AND w.expires_at > {}))
                 ORDER BY t.id",
                self.dialect.now()
            ),
        };
        let me = self.member().id;
        self.select(&clause, &me).await
    }

    /// Closed ticks of this worker whose sandbox is not proved to be gone; a file's are all of one worker,
    /// whatever name it had.
    pub async fn unremoved(&self) -> Result<Vec<Tick>, DbError> {
        let clause = "WHERE removed_at IS NULL AND outcome IS NOT NULL AND $1 IN ('', worker)";
        let me = self.member().id;
        let worker = if self.is_shared() { &*me } else { "" };
        self.select(clause, worker).await
    }

    /// Everything that open ticks may have created.
    pub async fn open_names(&self) -> Result<Vec<Names>, DbError> {
        let open = self
            .select("WHERE outcome IS NULL AND id <> $1", "")
            .await?;
        Ok(open.into_iter().map(|tick| tick.names).collect())
    }

    /// How many ticks a message has had.
    pub async fn count_ticks_for(&self, message: MessageId) -> Result<i64, DbError> {
        let row = query("SELECT count(*) FROM ticks WHERE message = $1")
            .bind(message.to_string())
            .fetch_one(self.reader())
            .await?;
        Ok(row.try_get(0)?)
    }

    /// Ids of ticks that end with these characters.
    pub async fn ticks_ending(&self, suffix: &str) -> Result<Vec<TickId>, DbError> {
        self.ending("ticks", suffix, "").await
    }

    /// A person wants the open tick of this agent to end; returns it.
    pub async fn request_cancel(&self, agent: AgentId) -> Result<Option<TickId>, DbError> {
        let row = query(
            "UPDATE ticks SET cancel_requested = 1, progress = 'stopping'
             WHERE agent = $1 AND outcome IS NULL RETURNING id",
        )
        .bind(agent.to_string())
        .fetch_optional(self.writer())
        .await?;
        let Some(row) = row else { return Ok(None) };
        let id: String = row.try_get(0)?;
        Ok(Some(parse("ticks", &id, "id", &id)?))
    }

    async fn select(&self, clause: &str, bound: &str) -> Result<Vec<Tick>, DbError> {
        let sql = format!("SELECT {COLUMNS} FROM ticks t {clause}");
        let rows = query(sqlx::AssertSqlSafe(sql))
            .bind(bound)
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(tick).collect()
    }
}
