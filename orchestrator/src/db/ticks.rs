//! Ticks: claimed, committed or closed, each by one compare-and-swap on the open row.

use mayfly_domain::{AgentId, Apology, LayerId, MessageOutcome, SnapshotId, TickId};
use sqlx::{AnyConnection, Row as _, any::AnyRow};

use super::{
    Db, DbError, Tx,
    agents::{Agent, LAST, agent_on},
    deliveries::{NewDelivery, owe},
    ids,
    messages::{self, Message, message},
    parse, parse_opt,
    snapshots::layers_on,
};
use crate::{
    clock,
    sandbox::Names,
    snapshot::LayerSize,
    tick::{
        outcome::{Changes, TickOutcome},
        phase::Phase,
    },
};

/// The exclusive right to run one message of an agent.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The tick that was opened.
    pub tick: TickId,
    /// The agent as of the claim.
    pub agent: Agent,
    /// The message to run.
    pub message: Message,
    /// Fences late writers.
    pub generation: i64,
    /// What its upper folder will be sealed as.
    pub layer: LayerId,
    /// Everything it may create on the engine.
    pub names: Names,
    /// The layers of the head, kept as long as the sandbox may have them mounted.
    pub lowers: Vec<LayerId>,
    /// Unix ms.
    pub started_at: i64,
}

/// A tick's row.
#[derive(Debug, Clone)]
pub struct Tick {
    /// Its id.
    pub id: TickId,
    /// Whose.
    pub agent: AgentId,
    /// For which message.
    pub message: mayfly_domain::MessageId,
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
}

/// The end of a tick, written in one transaction.
#[derive(Debug, Clone)]
pub struct Closing {
    /// How it ended.
    pub outcome: TickOutcome,
    /// Whether files were kept.
    pub changes: Changes,
    /// In place of a plain answer.
    pub notice: Option<String>,
    /// Exit code.
    pub exit_code: Option<i32>,
    /// The removal of its sandbox is proved.
    pub removed: bool,
    /// What it used; charged whatever the outcome.
    pub usage: Usage,
    /// What becomes of the message.
    pub message: MessageFate,
    /// What the thread is told.
    pub delivery: Option<NewDelivery>,
}

/// What a tick used and left; see `view::UsageView`.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    /// Milliseconds per phase.
    pub phase_ms: [i64; 5],
    /// Bytes written by the program.
    pub output_bytes: i64,
    /// What the seal dropped or stripped.
    pub notes: Vec<String>,
}

/// What a tick's end means for its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageFate {
    /// It has its one outcome.
    Settled(MessageOutcome, Option<String>),
    /// It runs again, not before this time (unix ms).
    Again {
        /// Not before, unix ms.
        at: i64,
        /// Whether the interrupted tick counts.
        counts: bool,
    },
}

/// The state a committing tick leaves behind.
#[derive(Debug, Clone)]
pub struct NewSnapshot {
    /// Its id.
    pub id: SnapshotId,
    /// None where the tick changed nothing.
    pub layer: Option<LayerSize>,
    /// The agent program's session.
    pub session: Option<String>,
}

const COLUMNS: &str = "id, agent, message, retry_of, generation, phase, outcome, changes, notice, \
     exit_code, cancel_requested, progress, effects, before, after, image, layer, names, notes, \
     phase_ms, output_bytes, layer_bytes, layer_inodes, started_at, ended_at";

fn tick(row: &AnyRow) -> Result<Tick, DbError> {
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
    })
}

pub(super) async fn insert_layer(
    tx: &mut Tx,
    layer: &LayerId,
    size: LayerSize,
    now: i64,
) -> Result<(), DbError> {
    sqlx::query("INSERT INTO layers (id, bytes, inodes, created_at) VALUES ($1, $2, $3, $4)")
        .bind(layer.as_str())
        .bind(size.bytes as i64)
        .bind(size.inodes as i64)
        .bind(now)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Writes the end of a tick; false if somebody else closed it or a newer claim exists.
async fn close(
    tx: &mut Tx,
    id: TickId,
    generation: i64,
    end: &Closing,
    snapshot: Option<&NewSnapshot>,
) -> Result<bool, DbError> {
    let now = clock::unix_ms();
    let layer = snapshot.and_then(|s| s.layer).unwrap_or_default();
    let row = sqlx::query(
        "UPDATE ticks SET outcome = $3, changes = $4, notice = $5, exit_code = $6,
           removed_at = CASE WHEN $7 = 1 THEN $8 ELSE removed_at END, notes = $9, phase_ms = $10,
           output_bytes = $11, layer_bytes = $12, layer_inodes = $13, after = $14, ended_at = $8,
           progress = NULL
         WHERE id = $1 AND outcome IS NULL AND generation = $2
           AND generation = (SELECT generation FROM agents WHERE agents.id = ticks.agent)
         RETURNING message, cancel_requested",
    )
    .bind(id.to_string())
    .bind(generation)
    .bind(end.outcome.as_str())
    .bind(end.changes.as_str())
    .bind(&end.notice)
    .bind(end.exit_code.map(i64::from))
    .bind(i64::from(end.removed))
    .bind(now)
    .bind(serde_json::json!(end.usage.notes).to_string())
    .bind(serde_json::json!(end.usage.phase_ms).to_string())
    .bind(end.usage.output_bytes)
    .bind(layer.bytes as i64)
    .bind(layer.inodes as i64)
    .bind(snapshot.map(|s| s.id.to_string()))
    .fetch_optional(&mut **tx)
    .await?;
    let Some(row) = row else { return Ok(false) };
    let message: String = row.try_get(0)?;
    let stopped = row.try_get::<i64, _>(1)? != 0;
    match &end.message {
        MessageFate::Again { .. } if stopped => settle_stopped(tx, id, &message, now).await?,
        MessageFate::Settled(outcome, reason) => {
            sqlx::query(
                "UPDATE messages SET outcome = $2, reason = $3, settled_at = $4
                 WHERE id = $1 AND outcome IS NULL",
            )
            .bind(&message)
            .bind(outcome.as_str())
            .bind(reason)
            .bind(now)
            .execute(&mut **tx)
            .await?;
        }
        MessageFate::Again { at, counts } => {
            sqlx::query(
                "UPDATE messages SET claimable_at = $2, attempts = attempts + $3 WHERE id = $1",
            )
            .bind(&message)
            .bind(*at)
            .bind(i64::from(*counts))
            .execute(&mut **tx)
            .await?;
        }
    }
    if let Some(delivery) = &end.delivery {
        owe(tx, delivery).await?;
    }
    Ok(true)
}

/// What a person stopped does not run again, whatever interrupted its tick.
async fn settle_stopped(tx: &mut Tx, tick: TickId, message: &str, now: i64) -> Result<(), DbError> {
    let notice = format!(
        "{}, changes {}",
        Apology::Stopped,
        Changes::Discarded.as_str()
    );
    sqlx::query("UPDATE ticks SET outcome = $2, notice = $3 WHERE id = $1")
        .bind(tick.to_string())
        .bind(TickOutcome::Cancelled.as_str())
        .bind(&notice)
        .execute(&mut **tx)
        .await?;
    let row = sqlx::query(
        "UPDATE messages SET outcome = $2, settled_at = $3 WHERE id = $1 RETURNING thread",
    )
    .bind(message)
    .bind(MessageOutcome::Noticed.as_str())
    .bind(now)
    .fetch_one(&mut **tx)
    .await?;
    let thread = parse("messages", message, "thread", &row.try_get::<String, _>(0)?)?;
    let id = parse("messages", message, "id", message)?;
    owe(tx, &NewDelivery::notice(thread, id, Some(tick), notice)).await
}

impl Db {
    /// Takes the right to run the agent's next message: generation + 1 and an open tick whose
    /// names are recorded before anything is created. None if there is nothing to run, not yet,
    /// or another tick is open.
    pub async fn claim(
        &self,
        id: AgentId,
        worker: &str,
        epoch: i64,
        names: impl FnOnce(&LayerId) -> Names,
    ) -> Result<Option<Claim>, DbError> {
        let now = clock::unix_ms();
        let mut tx = self.begin().await?;
        let Some(agent) = agent_on(&mut tx, id).await? else {
            return Ok(None);
        };
        let Some(message) = claimable(&mut tx, id).await? else {
            return Ok(None);
        };
        let row = sqlx::query(
            "UPDATE agents SET generation = generation + 1 WHERE id = $1
             AND NOT EXISTS (SELECT 1 FROM ticks WHERE agent = $1 AND outcome IS NULL)
             RETURNING generation",
        )
        .bind(id.to_string())
        .fetch_optional(&mut *tx)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let layer = LayerId::new();
        let lowers = layers_on(&mut tx, agent.head).await?;
        let claim = Claim {
            tick: TickId::new(),
            generation: row.try_get(0)?,
            names: names(&layer),
            layer,
            lowers,
            agent,
            message,
            started_at: now,
        };
        sqlx::query(
            "INSERT INTO ticks (id, agent, message, retry_of, worker, epoch, generation, phase,
             progress, before, layer, names, started_at, lowers)
             VALUES ($1, $2, $3, (SELECT max(id) FROM ticks WHERE message = $3), $4, $5, $6, $7,
             $7, $8, $9, $10, $11, $12)",
        )
        .bind(claim.tick.to_string())
        .bind(id.to_string())
        .bind(claim.message.id.to_string())
        .bind(worker)
        .bind(epoch)
        .bind(claim.generation)
        .bind(Phase::Spawn.as_str())
        .bind(claim.agent.head.map(|id| id.to_string()))
        .bind(claim.layer.as_str())
        .bind(serde_json::to_string(&claim.names).expect("names are plain"))
        .bind(now)
        .bind(serde_json::json!(claim.lowers).to_string())
        .execute(&mut *tx)
        .await?;
        crate::faults::point("claim.inside");
        tx.commit().await?;
        crate::faults::lose_answer("claim.answer")
            .map_err(|error| DbError::Sql(sqlx::Error::Io(error)))?;
        Ok(Some(claim))
    }

    /// Looks up the layers of the claim's head again, after a merge, and keeps them.
    pub async fn find_lowers(&self, claim: &Claim) -> Result<Vec<LayerId>, DbError> {
        let mut tx = self.begin().await?;
        let lowers = layers_on(&mut tx, claim.agent.head).await?;
        sqlx::query(
            "UPDATE ticks SET lowers = $3 WHERE id = $1 AND generation = $2 AND outcome IS NULL",
        )
        .bind(claim.tick.to_string())
        .bind(claim.generation)
        .bind(serde_json::json!(lowers).to_string())
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(lowers)
    }

    /// The tick is in this phase, in this image.
    pub async fn enter_phase(
        &self,
        claim: &Claim,
        phase: Phase,
        image: &str,
    ) -> Result<(), DbError> {
        sqlx::query(
            "UPDATE ticks SET phase = $3, progress = $3, image = $4
             WHERE id = $1 AND generation = $2 AND outcome IS NULL",
        )
        .bind(claim.tick.to_string())
        .bind(claim.generation)
        .bind(phase.as_str())
        .bind(image)
        .execute(self.writer())
        .await?;
        Ok(())
    }

    /// Commits a tick whole: head, delivery, usage, outcomes, claim. False if it was closed by
    /// somebody else; then nothing was written.
    pub async fn commit_tick(
        &self,
        claim: &Claim,
        end: &Closing,
        snapshot: &NewSnapshot,
    ) -> Result<bool, DbError> {
        let now = clock::unix_ms();
        let mut tx = self.begin().await?;
        if !close(&mut tx, claim.tick, claim.generation, end, Some(snapshot)).await? {
            return Ok(false);
        }
        if let Some(size) = snapshot.layer {
            insert_layer(&mut tx, &claim.layer, size, now).await?;
        }
        sqlx::query(
            "INSERT INTO snapshots (id, agent, base, parent, tick, layer, session, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(snapshot.id.to_string())
        .bind(claim.agent.id.to_string())
        .bind(claim.agent.base.as_str())
        .bind(claim.agent.head.map(|id| id.to_string()))
        .bind(claim.tick.to_string())
        .bind(snapshot.layer.map(|_| claim.layer.as_str()))
        .bind(&snapshot.session)
        .bind(now)
        .execute(&mut *tx)
        .await?;
        let moved = sqlx::query(
            "UPDATE agents SET head = $2 WHERE id = $1 AND COALESCE(head, '') = $3
             AND removed_at IS NULL",
        )
        .bind(claim.agent.id.to_string())
        .bind(snapshot.id.to_string())
        .bind(
            claim
                .agent
                .head
                .map(|id| id.to_string())
                .unwrap_or_default(),
        )
        .execute(&mut *tx)
        .await?
        .rows_affected();
        if moved != 1 {
            return Ok(false);
        }
        crate::faults::point("commit.inside");
        tx.commit().await?;
        crate::faults::lose_answer("commit.answer")
            .map_err(|error| DbError::Sql(sqlx::Error::Io(error)))?;
        Ok(true)
    }

    /// Closes a tick whose files are discarded. False if it was closed by somebody else.
    pub async fn close_tick(
        &self,
        id: TickId,
        generation: i64,
        end: &Closing,
    ) -> Result<bool, DbError> {
        let mut tx = self.begin().await?;
        let closed = close(&mut tx, id, generation, end, None).await?;
        crate::faults::point("close.inside");
        tx.commit().await?;
        Ok(closed)
    }

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

    /// An agent's ticks, oldest first: those younger than `after`.
    pub async fn ticks_after(
        &self,
        agent: AgentId,
        after: Option<TickId>,
        most: u32,
    ) -> Result<Vec<Tick>, DbError> {
        let after = after.map(|id| id.to_string()).unwrap_or_default();
        let sql = format!(
            "SELECT {COLUMNS} FROM ticks WHERE agent = $1 AND id > $2 ORDER BY id LIMIT $3"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(agent.to_string())
            .bind(after)
            .bind(i64::from(most))
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(tick).collect()
    }

    /// Ticks of an agent, newest first: those older than `before`.
    pub async fn ticks_before(
        &self,
        agent: AgentId,
        before: Option<TickId>,
        most: u32,
    ) -> Result<Vec<Tick>, DbError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM ticks WHERE agent = $1 AND id < $2 ORDER BY id DESC LIMIT $3"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(agent.to_string())
            .bind(before.map_or_else(|| LAST.to_owned(), |id| id.to_string()))
            .bind(i64::from(most))
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(tick).collect()
    }

    /// The open tick of an agent.
    pub async fn open_tick(&self, agent: AgentId) -> Result<Option<Tick>, DbError> {
        let mut ticks = self
            .select("WHERE agent = $1 AND outcome IS NULL", &agent.to_string())
            .await?;
        Ok(ticks.pop())
    }

    /// Open ticks of any earlier start: an embedded database has one process, whatever name its
    /// worker had before, so their sandboxes are dead or dying.
    pub async fn orphans(&self, worker: &str, epoch: i64) -> Result<Vec<Tick>, DbError> {
        let clause =
            format!("WHERE outcome IS NULL AND (worker <> $1 OR epoch < {epoch}) ORDER BY id");
        self.select(&clause, worker).await
    }

    /// Closed ticks whose sandbox is not proved to be gone.
    pub async fn unremoved(&self) -> Result<Vec<Tick>, DbError> {
        let clause = "WHERE removed_at IS NULL AND outcome IS NOT NULL AND outcome <> $1";
        self.select(clause, "").await
    }

    /// Everything that open ticks may have created.
    pub async fn open_names(&self) -> Result<Vec<Names>, DbError> {
        let open = self
            .select("WHERE outcome IS NULL AND id <> $1", "")
            .await?;
        Ok(open.into_iter().map(|tick| tick.names).collect())
    }

    /// Ids of ticks that end with these characters.
    pub async fn ticks_ending(&self, suffix: &str) -> Result<Vec<TickId>, DbError> {
        let rows = sqlx::query("SELECT id FROM ticks WHERE REPLACE(id, '-', '') LIKE $1 LIMIT 2")
            .bind(format!("%{suffix}"))
            .fetch_all(self.reader())
            .await?;
        ids("ticks", &rows)
    }

    /// The removal of a closed tick's sandbox is proved.
    pub async fn mark_removed(&self, id: TickId) -> Result<(), DbError> {
        sqlx::query("UPDATE ticks SET removed_at = $2 WHERE id = $1 AND removed_at IS NULL")
            .bind(id.to_string())
            .bind(clock::unix_ms())
            .execute(self.writer())
            .await?;
        Ok(())
    }

    /// A person wants the open tick of this agent to end; returns it.
    pub async fn request_cancel(&self, agent: AgentId) -> Result<Option<TickId>, DbError> {
        let row = sqlx::query(
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
        let sql = format!("SELECT {COLUMNS} FROM ticks {clause}");
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(bound)
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(tick).collect()
    }
}

async fn claimable(
    connection: &mut AnyConnection,
    agent: AgentId,
) -> Result<Option<Message>, DbError> {
    let sql = format!(
        "SELECT {} FROM messages m WHERE m.agent = $1 AND m.outcome IS NULL
         ORDER BY m.seq, m.id LIMIT 1",
        messages::COLUMNS
    );
    let row = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(agent.to_string())
        .fetch_optional(connection)
        .await?;
    let next = row.as_ref().map(message).transpose()?;
    Ok(next.filter(|message| clock::until(message.claimable_at) == 0))
}
