//! Claims: the right to run an agent's next message is one transaction.

use mayfly_domain::{AgentId, LayerId, TickId};
use sqlx::Row as _;

use super::{
    Db, DbError, Tx,
    agents::{Agent, agent_on},
    messages::{self, Message, message},
    query,
    remote::waits_for_files,
    snapshots::layers_on,
    together::{Together, merge, merged_on},
};
use crate::{clock, sandbox::Names, tick::phase::Phase};

/// The exclusive right to run one message of an agent.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The tick that was opened.
    pub tick: TickId,
    /// Whose right it is.
    pub worker: String,
    /// The agent as of the claim.
    pub agent: Agent,
    /// The message to run.
    pub message: Message,
    /// What was merged into it, in their order.
    pub merged: Vec<Message>,
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

impl Claim {
    /// All that is said in this tick, in its order.
    pub fn messages(&self) -> impl Iterator<Item = &Message> + Clone {
        std::iter::once(&self.message).chain(&self.merged)
    }
}

impl Db {
    /// Takes the right to run the agent's next message as this tick: generation + 1 and an open row whose
    /// names are recorded before anything is created. What waits `together` with it is merged into
    /// it where this is its first tick. None if there is nothing to run, not yet,
    /// or another tick is open.
    pub async fn claim(
        &self,
        tick: TickId,
        id: AgentId,
        (worker, epoch): (&str, i64),
        names: impl FnOnce(&LayerId) -> Names,
        together: &Together,
    ) -> Result<Option<Claim>, DbError> {
        let now = self.now();
        let mut tx = self.begin().await?;
        let Some(agent) = agent_on(&mut tx, id).await? else {
            return Ok(None);
        };
        let Some(message) = claimable(&mut tx, id).await? else {
            return Ok(None);
        };
        let row = query(
            "UPDATE agents SET generation = generation + 1 WHERE id = $1
             AND NOT EXISTS (SELECT 1 FROM ticks WHERE agent = $1 AND outcome IS NULL)
             RETURNING generation",
        )
        .bind(id.to_string())
        .fetch_optional(&mut *tx)
        .await?;
        let Some(row) = row else { return Ok(None) };
        merge(&mut tx, &message, together).await?;
        let layer = LayerId::new();
        let lowers = layers_on(&mut tx, agent.head).await?;
        let claim = Claim {
            tick,
            worker: worker.to_owned(),
            generation: row.try_get(0)?,
            names: names(&layer),
            layer,
            lowers,
            agent,
            merged: merged_on(&mut tx, message.id).await?,
            message,
            started_at: now,
        };
        query(
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
        crate::faults::lose_answer("claim.answer")?;
        Ok(Some(claim))
    }

    /// Looks up the layers of the claim's head again, after a merge, and keeps them.
    pub async fn find_lowers(&self, claim: &Claim) -> Result<Vec<LayerId>, DbError> {
        let mut tx = self.begin().await?;
        let lowers = layers_on(&mut tx, claim.agent.head).await?;
        query("UPDATE ticks SET lowers = $3 WHERE id = $1 AND generation = $2 AND outcome IS NULL")
            .bind(claim.tick.to_string())
            .bind(claim.generation)
            .bind(serde_json::json!(lowers).to_string())
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(lowers)
    }

    /// The tick's program is about to be started, in this image. False where more came for its
    /// message since the claim: what comes from now on is too late for it.
    pub async fn enter_run(&self, claim: &Claim, image: &str) -> Result<bool, DbError> {
        let row = query(
            "UPDATE ticks SET phase = CASE WHEN grown = 0 THEN $3 ELSE phase END, progress = $3,
               image = $4
             WHERE id = $1 AND generation = $2 AND outcome IS NULL RETURNING grown",
        )
        .bind(claim.tick.to_string())
        .bind(claim.generation)
        .bind(Phase::Run.as_str())
        .bind(image)
        .fetch_optional(self.writer())
        .await?;
        // One that somebody closed finds that out at its commit.
        let grown = row.map(|row| row.try_get::<i64, _>(0)).transpose()?;
        Ok(grown.unwrap_or_default() == 0)
    }
}

async fn claimable(tx: &mut Tx, agent: AgentId) -> Result<Option<Message>, DbError> {
    let now = tx.now();
    let sql = format!(
        "SELECT {} FROM messages m WHERE m.agent = $1 AND m.outcome IS NULL
         ORDER BY m.seq, m.id LIMIT 1",
        messages::COLUMNS
    );
    let row = query(sqlx::AssertSqlSafe(sql))
        .bind(agent.to_string())
        .fetch_optional(&mut **tx)
        .await?;
    let next = row.as_ref().map(message).transpose()?;
    let Some(next) = next.filter(|message| clock::until(now, message.claimable_at) == 0) else {
        return Ok(None);
    };
    let waits = waits_for_files(tx, next.id).await?;
    Ok(Some(next).filter(|_| !waits))
}
