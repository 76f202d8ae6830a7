//! What is in the layer store only is brought here first: a backup needs no store.

use std::fmt::Display;

use super::{BackupError, take::Parts};
use crate::{
    blobs::BlobError,
    db::copy::Named,
    depot::{DepotError, cache::FOR_TICKS},
    observe,
};

/// Bytes of what these rows name and is not here; refused where this disk has no room for them beside ticks.
pub(super) async fn weigh(parts: &Parts, named: &Named) -> Result<u64, BackupError> {
    let bytes = lacks(parts, named).await.map_err(|error| match error {
        DepotError::Db(error) => error.into(),
        error => BackupError::NotHere {
            what: "a part of it".to_owned(),
            reason: observe::chain(&error),
        },
    })?;
    let free = parts.host_disk.above_floor().saturating_sub(FOR_TICKS);
    match bytes > free {
        true => Err(BackupError::NoRoomToFetch {
            path: parts.data_dir.clone(),
            bytes,
            free,
        }),
        false => Ok(bytes),
    }
}

async fn lacks(parts: &Parts, named: &Named) -> Result<u64, DepotError> {
    let travel = &parts.travel;
    if travel.objects().is_none() {
        return Ok(0);
    }
    let mut bytes = 0;
    for base in &named.bases {
        bytes += travel.lacks_of_base(base).await?;
    }
    for layer in &named.layers {
        bytes += travel.lacks_of_layer(layer).await?;
    }
    for (agent, tick) in &named.ticks {
        bytes += travel.lacks_of_transcript(*agent, *tick).await?;
    }
    for blob in &named.blobs {
        if !parts.blobs.is_here(blob) {
            bytes += travel.lacks_of_blob(blob).await?;
        }
    }
    Ok(bytes)
}

/// Brings all that these rows name, which a pin keeps. What nobody has is left to be told as damaged. Answers
/// whether anything was looked for.
pub(super) async fn all(parts: &Parts, named: &Named) -> Result<bool, BackupError> {
    let travel = &parts.travel;
    if travel.objects().is_none() {
        return Ok(false);
    }
    for id in &named.bases {
        if id.is_promised() {
            continue;
        }
        let base = parts.db.base(id).await?;
        let fetched = travel.fetch_base(&base).await.map(drop);
        had(format_args!("base {id}"), fetched)?;
    }
    for layer in &named.layers {
        let fetched = travel.fetch(std::slice::from_ref(layer)).await;
        had(format_args!("layer {layer}"), fetched)?;
    }
    for (agent, tick) in &named.ticks {
        let fetched = travel.fetch_transcript(*agent, *tick).await;
        had(
            format_args!("the transcript of tick {}", tick.short()),
            fetched,
        )?;
    }
    for blob in &named.blobs {
        let fetched = match parts.blobs.bring(blob).await {
            Ok(()) => Ok(()),
            Err(BlobError::Depot(error)) => Err(*error),
            Err(error) => {
                let (what, reason) = (format!("file {blob}"), observe::chain(&error));
                return Err(BackupError::NotHere { what, reason });
            }
        };
        had(format_args!("file {blob}"), fetched)?;
    }
    Ok(true)
}

/// An error where it may be had another time.
fn had(what: impl Display, fetched: Result<(), DepotError>) -> Result<(), BackupError> {
    match fetched {
        Ok(()) => Ok(()),
        Err(DepotError::Db(error)) => Err(error.into()),
        Err(error) if error.is_lost() => {
            tracing::error!(%what, error = observe::chain(&error), "damaged: nobody has it");
            Ok(())
        }
        Err(error) => Err(BackupError::NotHere {
            what: what.to_string(),
            reason: observe::chain(&error),
        }),
    }
}
