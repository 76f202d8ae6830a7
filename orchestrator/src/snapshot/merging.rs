//! Chains are merged by hard links after the reply, so that no mount grows past its limit. A
//! merge adds a representation of a snapshot; it never moves a head.

use mayfly_domain::{AgentId, LayerId};

use super::Slot;
use crate::{
    db::agents::Agent,
    faults,
    tick::{TickError, Tools, blocking},
};

/// From this many layers on a chain is merged after the reply.
pub const MERGE_FROM: usize = 12;
/// More layers are never mounted; a tick waits for the merge instead.
pub const MOUNT_LIMIT: usize = 16;

/// The layers of an agent's head, few enough to mount.
pub async fn mountable_layers(tools: &Tools, agent: &Agent) -> Result<Vec<LayerId>, TickError> {
    let layers = tools.db.layers_of(agent.head).await?;
    if layers.len() <= MOUNT_LIMIT {
        return Ok(layers);
    }
    merge(tools, agent.id).await?;
    Ok(tools.db.layers_of(agent.head).await?)
}

/// Merges the chain of an agent's head into one layer.
pub async fn merge(tools: &Tools, agent: AgentId) -> Result<(), TickError> {
    let Some(agent) = tools.db.agent(agent).await? else {
        return Ok(());
    };
    let Some(head) = agent.head else {
        return Ok(());
    };
    let layers = tools.db.layers_of(Some(head)).await?;
    if layers.len() < 2 {
        return Ok(());
    }
    let _making = tools.making.read().await;
    let into = LayerId::new();
    let (store, base, target) = (tools.store.clone(), agent.base.clone(), into.clone());
    faults::point("merge.before");
    let size = blocking(move || {
        let merged = store.merge(&base, &layers, &target, &Slot::defaults());
        // A full disk must not get fuller with every round.
        if merged.is_err() {
            let _ = store.discard(&target);
        }
        merged
    })
    .await??;
    faults::point("merge.built");
    if !tools.db.insert_merge(head, &into, size).await? {
        let (store, extra) = (tools.store.clone(), into);
        blocking(move || store.remove_layer(&extra)).await??;
    }
    faults::point("merge.after");
    Ok(())
}
