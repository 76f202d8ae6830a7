//! Who reads layers right now, and may go on reading: garbage collection leaves what is pinned.
//!
//! A pin is written in the transaction that finds out which layers stand for a state, so nothing
//! can be forgotten between the two. It holds until its [`Pin`] is dropped; a process that dies
//! leaves its pins to the next start. Bases are pinned by their id, as layers are.

use std::sync::{Arc, Mutex, PoisonError};

use mayfly_domain::{AgentId, LayerId, SnapshotId};
use sqlx::{AnyConnection, Row as _};

use super::{Db, DbError, Tx, parse, retention::is_expired_on, snapshots::layers_on};
use crate::{clock, snapshot::State};

/// Marks the pins of readers, which do not outlive their process.
const READER: &str = "r.";

/// Pins whose readers are done; their rows go with the next round.
pub(super) type Done = Arc<Mutex<Vec<String>>>;

/// States as they can be read, for as long as this lives.
#[derive(Debug)]
pub struct Pinned {
    /// In the order asked for.
    pub states: Vec<State>,
    /// Keeps their layers.
    pub pin: Pin,
}

/// Keeps layers from being removed until it is dropped.
#[derive(Debug)]
pub struct Pin {
    pub(super) id: String,
    done: Done,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.push(std::mem::take(&mut self.id));
    }
}

impl Db {
    /// Pins the states of an agent; none is the state before the first tick. Answers none where
    /// a layer of one of them is not kept any more.
    pub async fn pin(
        &self,
        agent: AgentId,
        states: &[Option<SnapshotId>],
        reason: &str,
    ) -> Result<Option<Pinned>, DbError> {
        let mut tx = self.begin().await?;
        let mut found = Vec::new();
        for state in states {
            let Some(layers) = kept_layers_on(&mut tx, *state).await? else {
                return Ok(None);
            };
            let base = base_on(&mut tx, agent, *state).await?;
            found.push(State { base, layers });
        }
        let pin = self.new_pin();
        let bases = found.iter().map(|state| state.base.as_str());
        let layers = found.iter().flat_map(|state| &state.layers);
        let mut names: Vec<&str> = bases.chain(layers.map(LayerId::as_str)).collect();
        names.sort_unstable();
        names.dedup();
        for (n, name) in names.into_iter().enumerate() {
            insert(&mut tx, &format!("{}.{n}", pin.id), name, reason).await?;
        }
        tx.commit().await?;
        Ok(Some(Pinned { states: found, pin }))
    }

    /// A pin without rows; each row's id is the pin's, a dot, and anything.
    pub(super) fn new_pin(&self) -> Pin {
        Pin {
            id: format!("{READER}{}", uuid::Uuid::now_v7()),
            done: self.done.clone(),
        }
    }

    /// Removes the pins whose readers are done.
    pub async fn release_pins(&self) -> Result<(), DbError> {
        let done = std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner));
        let released = self.release(&done).await;
        if released.is_err() {
            let mut again = self.done.lock().unwrap_or_else(PoisonError::into_inner);
            again.extend(done);
        }
        released
    }

    async fn release(&self, done: &[String]) -> Result<(), DbError> {
        if done.is_empty() {
            return Ok(());
        }
        let mut tx = self.begin().await?;
        for pin in done {
            sqlx::query("DELETE FROM pins WHERE id LIKE $1")
                .bind(format!("{pin}.%"))
                .execute(&mut *tx)
                .await?;
        }
        Ok(tx.commit().await?)
    }

    /// Removes the pins of readers of earlier starts: a data dir has one process at a time.
    pub async fn release_pins_of_the_dead(&self) -> Result<(), DbError> {
        sqlx::query("DELETE FROM pins WHERE id LIKE $1")
            .bind(format!("{READER}%"))
            .execute(self.writer())
            .await?;
        Ok(())
    }
}

/// The layers of a state; none where it has expired or one of them is not kept any more.
pub(super) async fn kept_layers_on(
    connection: &mut AnyConnection,
    state: Option<SnapshotId>,
) -> Result<Option<Vec<LayerId>>, DbError> {
    if let Some(state) = state
        && is_expired_on(connection, state).await?
    {
        return Ok(None);
    }
    let layers = layers_on(connection, state).await?;
    for layer in &layers {
        let row = sqlx::query("SELECT count(*) FROM layers WHERE id = $1")
            .bind(layer.as_str())
            .fetch_one(&mut *connection)
            .await?;
        if row.try_get::<i64, _>(0)? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(layers))
}

async fn base_on(
    connection: &mut AnyConnection,
    agent: AgentId,
    state: Option<SnapshotId>,
) -> Result<mayfly_domain::BaseId, DbError> {
    let (table, id) = match state {
        Some(state) => ("snapshots", state.to_string()),
        None => ("agents", agent.to_string()),
    };
    let sql = format!("SELECT base FROM {table} WHERE id = $1");
    let row = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(&id)
        .fetch_one(connection)
        .await?;
    parse(table, &id, "base", &row.try_get::<String, _>(0)?)
}

async fn insert(tx: &mut Tx, id: &str, layer: &str, reason: &str) -> Result<(), DbError> {
    sqlx::query("INSERT INTO pins (id, layer, reason, created_at) VALUES ($1, $2, $3, $4)")
        .bind(id)
        .bind(layer)
        .bind(reason)
        .bind(clock::unix_ms())
        .execute(&mut **tx)
        .await?;
    Ok(())
}
