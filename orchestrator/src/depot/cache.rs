//! The layers' folder is a bounded cache of the layer store: what was used least recently leaves it
//! first, and only what is in the store may leave at all. What a sandbox has mounted, what is read, and
//! the heads of agents that were busy here lately stay.

use std::{
    collections::HashSet,
    time::{Duration, SystemTime},
};

use mayfly_domain::LayerId;

use super::{DepotError, Travel, blocking};

/// An agent that ran here within this time is likely to run here again.
const BUSY: Duration = Duration::from_secs(60 * 60);
/// Kept free above the disk's floor for ticks, whatever the cache may have; bytes.
pub(crate) const FOR_TICKS: u64 = 1 << 30;
/// Rows looked up at once.
const LOOKED_UP: usize = 500;

/// Takes layers away until those that are in the store take at most so many bytes, and ticks have room.
pub(super) async fn evict(travel: &Travel, bytes: u64) -> Result<(), DepotError> {
    let Some(_) = travel.objects() else {
        return Ok(());
    };
    // A backup may have fetched much, and been given up.
    travel.db.release_pins().await?;
    let held = stored(travel).await?;
    let mut taken: u64 = held.iter().map(|held| held.bytes).sum();
    let short = FOR_TICKS.saturating_sub(travel.host_disk.above_floor());
    let bytes = bytes.min(taken.saturating_sub(short));
    if taken <= bytes {
        return Ok(());
    }
    let heads = heads(travel).await?;
    for held in oldest_first(held) {
        if taken <= bytes {
            break;
        }
        if heads.contains(&held.layer) {
            continue;
        }
        // Whoever looks whether it is here has it named or pinned before, or looks again after.
        let _alone = travel.cache.write().await;
        if travel.db.layers_in_use().await?.contains(&held.layer) {
            continue;
        }
        let (store, layer) = (travel.store.clone(), held.layer.clone());
        blocking(move || Ok(store.remove_layer(&layer)?)).await?;
        tracing::info!(layer = %held.layer, bytes = held.bytes, "left the cache");
        taken = taken.saturating_sub(held.bytes);
    }
    Ok(())
}

/// A layer on this disk that is in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    layer: LayerId,
    bytes: u64,
    used: SystemTime,
}

async fn stored(travel: &Travel) -> Result<Vec<Held>, DepotError> {
    let store = travel.store.clone();
    let mut here = blocking(move || Ok(store.list_layers()?)).await?;
    here.sort_unstable();
    let mut held = Vec::new();
    for some in here.chunks(LOOKED_UP) {
        for (layer, bytes) in travel.db.stored_of(some).await? {
            let used = travel.store.used(&layer);
            held.extend(used.map(|used| Held { layer, bytes, used }));
        }
    }
    Ok(held)
}

async fn heads(travel: &Travel) -> Result<HashSet<LayerId>, DepotError> {
    let since = travel.db.now() - BUSY.as_millis() as i64;
    let mut heads = HashSet::new();
    for agent in travel.db.agents_busy_on(&travel.worker, since).await? {
        let head = travel.db.agent(agent).await?.and_then(|agent| agent.head);
        heads.extend(travel.db.layers_of(head).await?);
    }
    Ok(heads)
}

fn oldest_first(mut held: Vec<Held>) -> Vec<Held> {
    held.sort_by(|a, b| (a.used, &a.layer).cmp(&(b.used, &b.layer)));
    held
}
