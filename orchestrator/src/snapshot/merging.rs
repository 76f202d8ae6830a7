//! Chains are merged by hard links after the reply, so that no mount grows past its limit. A
//! merge adds a representation of a snapshot; it never moves a head.
//!
//! The chain is pinned as it is found, so neither a rollback nor garbage collection takes a layer
//! away while it is read. A state that expires meanwhile gets no merged
//! layer: the row is refused and what was built goes.

use std::sync::atomic::Ordering;

use mayfly_domain::{AgentId, LayerId, SnapshotId};

use super::Slot;
use crate::{
    db::{claims::Claim, depot::NewLayer},
    faults,
    tick::{TickError, Tools, blocking},
};

/// From this many layers on a chain is merged after the reply.
pub const MERGE_FROM: usize = 12;
/// More layers are never mounted; a tick waits for the merge instead.
pub const MOUNT_LIMIT: usize = 16;

/// The layers of a claim's head, few enough to mount. They are kept by the tick's row.
pub async fn mountable_layers(tools: &Tools, claim: &Claim) -> Result<Vec<LayerId>, TickError> {
    tools.travel.fetch(&claim.lowers).await?;
    if claim.lowers.len() <= MOUNT_LIMIT {
        return Ok(claim.lowers.clone());
    }
    merge(tools, claim.agent.id).await?;
    let lowers = tools.db.find_lowers(claim).await?;
    tools.travel.fetch(&lowers).await?;
    Ok(lowers)
}

/// Merges the chain of an agent's head into one layer.
pub async fn merge(tools: &Tools, agent: AgentId) -> Result<(), TickError> {
    let agent = tools.db.agent(agent).await?;
    match agent.and_then(|agent| Some((agent.id, agent.head?))) {
        Some((agent, head)) => merge_state(tools, agent, head).await,
        None => Ok(()),
    }
}

/// Merges the chain of one state into one layer.
pub async fn merge_state(
    tools: &Tools,
    agent: AgentId,
    state: SnapshotId,
) -> Result<(), TickError> {
    let Some(pinned) = tools.db.pin(agent, &[Some(state)]).await? else {
        return Ok(());
    };
    let (base, layers) = (
        pinned.states[0].base.clone(),
        pinned.states[0].layers.clone(),
    );
    // What is not all here another worker may merge.
    let here = |layer| tools.store.present(layer);
    if layers.len() < 2 || !layers.iter().all(here) {
        return Ok(());
    }
    // It would be packed and thrown away again.
    tools.travel.is_there()?;
    let _making = tools.making.read().await;
    let into = LayerId::new();
    let (store, target, left) = (tools.store.clone(), into.clone(), tools.left.clone());
    faults::point("merge.before");
    let size = blocking(move || {
        let merged = store.merge(&base, &layers, &target, &Slot::defaults());
        // A full disk must not get fuller with every round.
        if merged.is_err() && store.discard(&target).is_err() {
            left.store(true, Ordering::Release);
        }
        merged
    })
    .await??;
    faults::point("merge.built");
    // Its row says that everybody can have it.
    let put = tools.travel.put_layer(&into).await;
    let row = match &put {
        Ok(parcel) => {
            let layer = NewLayer {
                id: &into,
                size,
                holder: Some(tools.travel.worker()),
                parcel: parcel.as_ref(),
            };
            tools.db.insert_merge(state, &layer).await?
        }
        Err(_) => false,
    };
    if !row {
        let (store, extra) = (tools.store.clone(), into);
        blocking(move || store.remove_layer(&extra)).await??;
    }
    put?;
    faults::point("merge.after");
    drop(pinned);
    tools.keeper.touch(agent);
    Ok(())
}
