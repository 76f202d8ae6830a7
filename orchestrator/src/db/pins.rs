//! Who reads layers right now, and may go on reading: garbage collection leaves what is pinned.
//!
//! A reader's pin is held in memory, so that reading writes nothing: whoever looks up which layers
//! stand for a state passes a gate that a collection closes from its reading to its commit, so
//! nothing is forgotten between the look and the pin. An export's or backup's pin is rows, written
//! in the transaction that finds the layers; a process that dies leaves them to its next start, or to
//! whoever declares it dead. A layer that another worker forgets while it is read here keeps its folder
//! here ([`Db::unread`]).
//! Bases are pinned by their id, as layers are.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use mayfly_domain::{AgentId, BaseId, LayerId, SnapshotId};
use sqlx::{AnyConnection, Row as _};
use tokio::sync::{RwLock, RwLockWriteGuard};

use super::{Db, DbError, parse, query};
use crate::snapshot::State;

/// Marks the pins of readers, which do not outlive their process.
const READER: &str = "r.";

/// Pins whose readers are done; their rows go with the next round.
pub(super) type Done = Arc<Mutex<Vec<String>>>;

/// How many readers hold a layer or base, by its id.
#[derive(Debug, Default)]
pub(super) struct Held {
    names: Mutex<HashMap<String, usize>>,
    gate: RwLock<()>,
}

impl Held {
    /// Nobody begins to read until this is dropped.
    pub(super) async fn close(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().await
    }

    /// Ids of what is read now.
    pub(super) fn names(&self) -> Vec<String> {
        self.counts().keys().cloned().collect()
    }

    /// Whether this is read now.
    pub(super) fn has(&self, name: &str) -> bool {
        self.counts().contains_key(name)
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// States as they can be read, for as long as this lives.
#[derive(Debug)]
pub struct Pinned {
    /// In the order asked for.
    pub states: Vec<State>,
    /// Keeps their layers.
    pub pin: ReadPin,
}

/// Keeps what is read from being removed until it is dropped.
#[derive(Debug)]
pub struct ReadPin {
    names: Vec<String>,
    held: Arc<Held>,
}

impl Drop for ReadPin {
    fn drop(&mut self) {
        let mut counts = self.held.counts();
        for name in &self.names {
            if let Some(count) = counts.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(name);
                }
            }
        }
    }
}

/// Rows that keep layers from being removed until this is dropped.
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
    ) -> Result<Option<Pinned>, DbError> {
        let _open = self.held.gate.read().await;
        let mut connection = self.reader().acquire().await?;
        let mut found = Vec::new();
        for state in states {
            let kept = match state {
                Some(state) => state_on(&mut connection, *state).await?,
                None => Some(State {
                    base: base_on(&mut connection, agent).await?,
                    layers: Vec::new(),
                }),
            };
            let Some(kept) = kept else { return Ok(None) };
            found.push(kept);
        }
        let bases = found.iter().map(|state| state.base.as_str());
        let layers = found.iter().flat_map(|state| &state.layers);
        let names = bases.chain(layers.map(LayerId::as_str)).map(str::to_owned);
        let names: Vec<String> = names.collect();
        let mut counts = self.held.counts();
        for name in &names {
            *counts.entry(name.clone()).or_default() += 1;
        }
        drop(counts);
        let held = self.held.clone();
        let pin = ReadPin { names, held };
        Ok(Some(Pinned { states: found, pin }))
    }

    /// Those of these layers that nobody reads here. Of one whose row is gone nobody begins to.
    pub async fn unread<'a>(&self, layers: Vec<&'a LayerId>) -> Vec<&'a LayerId> {
        if layers.is_empty() {
            return layers;
        }
        // Whoever has looked before the row went has pinned by then.
        drop(self.held.close().await);
        let unread = layers.into_iter();
        unread
            .filter(|layer| !self.held.has(layer.as_str()))
            .collect()
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
            query("DELETE FROM pins WHERE id LIKE $1")
                .bind(format!("{pin}.%"))
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await
    }

    /// Removes the pins of readers whose start is over.
    pub async fn release_pins_of_the_dead(&self) -> Result<(), DbError> {
        let sql = "DELETE FROM pins WHERE id LIKE $1 AND NOT EXISTS
             (SELECT 1 FROM workers w WHERE w.id = pins.worker AND w.epoch = pins.epoch)";
        query(sql)
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
    let Some(state) = state else {
        return Ok(Some(Vec::new()));
    };
    Ok(state_on(connection, state).await?.map(|state| state.layers))
}

/// A state as it can be read; none where it has expired or one of its layers is not kept any more.
async fn state_on(
    connection: &mut AnyConnection,
    state: SnapshotId,
) -> Result<Option<State>, DbError> {
    let key = state.to_string();
    let rows = query(
        "WITH RECURSIVE chain (base, expired_at, parent, layer, merged, depth) AS (
           SELECT s.base, s.expired_at, s.parent, s.layer, m.layer, 0 FROM snapshots s
             LEFT JOIN merges m ON m.snapshot = s.id WHERE s.id = $1
           UNION ALL
           SELECT s.base, NULL, s.parent, s.layer, m.layer, c.depth + 1 FROM chain c
             JOIN snapshots s ON s.id = c.parent
             LEFT JOIN merges m ON m.snapshot = s.id WHERE c.merged IS NULL
         ) SELECT c.base, c.expired_at, COALESCE(c.merged, c.layer), l.id FROM chain c
           LEFT JOIN layers l ON l.id = COALESCE(c.merged, c.layer) ORDER BY c.depth DESC",
    )
    .bind(&key)
    .fetch_all(connection)
    .await?;
    let mut found = None;
    let mut layers = Vec::new();
    for row in &rows {
        if let Some(layer) = row.try_get::<Option<String>, _>(2)? {
            if row.try_get::<Option<String>, _>(3)?.is_none() {
                return Ok(None);
            }
            layers.push(parse("snapshots", &key, "layer", &layer)?);
        }
        // The last row is the state itself.
        found = Some((
            row.try_get::<String, _>(0)?,
            row.try_get::<Option<i64>, _>(1)?,
        ));
    }
    match found {
        Some((base, None)) => Ok(Some(State {
            base: parse("snapshots", &key, "base", &base)?,
            layers,
        })),
        _ => Ok(None),
    }
}

async fn base_on(connection: &mut AnyConnection, agent: AgentId) -> Result<BaseId, DbError> {
    let key = agent.to_string();
    let row = query("SELECT base FROM agents WHERE id = $1")
        .bind(&key)
        .fetch_one(connection)
        .await?;
    parse("agents", &key, "base", &row.try_get::<String, _>(0)?)
}
