//! What states cost on disk, remembered: adding it up reads all rows of a family.
//!
//! A sum is kept beside the version of the family it was made from ([`Db::family_version`]), which
//! is asked for on each read, so nobody has to say that something changed. The version is read
//! before the rows: a change in between leaves a sum that the next read does not take.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use mayfly_domain::AgentId;

use crate::db::{Db, DbError, retention::FamilyVersion};

/// Sums that are kept at most; then all are made anew. A few hundred KiB.
const MOST: usize = 4096;

/// See the module.
#[derive(Debug, Default)]
pub struct Costs(Mutex<HashMap<AgentId, (FamilyVersion, Cost)>>);

/// Bytes by rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// What only this agent needs.
    pub own: u64,
    /// What other agents need too.
    pub shared: u64,
}

impl Costs {
    /// What the kept states of an agent take.
    pub async fn of(&self, db: &Db, agent: AgentId) -> Result<Cost, DbError> {
        let version = db.family_version(agent).await?;
        if let Some(known) = self.known(agent, version) {
            return Ok(known);
        }
        let (own, shared) = db.relatives(agent).await?.disk_of(agent);
        let cost = Cost { own, shared };
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sums.len() >= MOST {
            sums.clear();
        }
        sums.insert(agent, (version, cost));
        Ok(cost)
    }

    fn known(&self, agent: AgentId, version: FamilyVersion) -> Option<Cost> {
        let sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, cost) = sums.get(&agent)?;
        (*of == version).then_some(*cost)
    }
}
