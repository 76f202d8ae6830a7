//! A message's files go into the sandbox: by init, as the agent, before the program starts.
//!
//! What lay in the folder is hidden before the sandbox is made, so that beside a message's files there
//! are no others; a message that brings none leaves it as it is.

use std::time::Duration;

use mayfly_domain::{Attachment, LayerId, Limits};
use mayfly_init::protocol::Put;

use super::{TickError, Tools};
use crate::{
    blobs::Blobs,
    faults,
    sandbox::{Control, ControlError, control::transfer_time},
    snapshot::{Store, StoreError},
};

/// Where the agent finds them.
pub const RECEIVED: &str = "/work/received";
/// The same as slot and name.
const PLACE: (&str, &str) = ("work", "received");
const MODE: u32 = 0o644;

/// Longest time that handing them over takes.
pub fn longest<'a>(files: impl IntoIterator<Item = &'a Attachment>) -> Duration {
    let each = files.into_iter();
    each.map(|file| transfer_time(file.size)).sum()
}

/// Makes room for the files of a tick that has begun and is not mounted yet.
pub fn clear(store: &Store, layer: &LayerId) -> Result<(), StoreError> {
    store.hide(layer, PLACE.0, PLACE.1)?;
    faults::point("received.cleared");
    Ok(())
}

/// See the module.
pub async fn hand_over(
    tools: &Tools,
    control: &Control,
    files: &[Attachment],
    limits: &Limits,
) -> Result<(), TickError> {
    if files.is_empty() {
        return Ok(());
    }
    fits(files, limits)?;
    for file in files {
        put(&tools.blobs, control, file).await?;
        faults::point("received.put");
    }
    Ok(())
}

async fn put(blobs: &Blobs, control: &Control, file: &Attachment) -> Result<(), TickError> {
    let content = blobs.read(&file.blob).await?.content();
    let put = Put {
        path: format!("{RECEIVED}/{}", file.name),
        mode: MODE,
        size: file.size,
    };
    control.put_stream(put, content).await.map_err(refused)
}

/// Whether what the agent may keep has room for them.
pub fn fits(files: &[Attachment], limits: &Limits) -> Result<(), TickError> {
    if let Some(file) = files.iter().find(|file| file.size > limits.file_mib << 20) {
        return Err(TickError::NotReceived(format!(
            "\"{}\" is larger than limits.file_mib = {} of its profile",
            file.name, limits.file_mib
        )));
    }
    let sum: u64 = files.iter().map(|file| file.size).sum();
    match sum > limits.state_mib << 20 {
        true => Err(TickError::NotReceived(format!(
            "together they are larger than limits.state_mib = {} of its profile",
            limits.state_mib
        ))),
        false => Ok(()),
    }
}

/// What the agent's own files make impossible is told; all else is tried again.
fn refused(error: ControlError) -> TickError {
    match error {
        ControlError::Refused(refusal) => TickError::NotReceived(refusal.reason),
        other => TickError::Control(other),
    }
}
