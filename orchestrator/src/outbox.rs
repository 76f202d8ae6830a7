//! What is owed reaches its thread: rendered once, its posts made empty, then filled in their order;
//! tried again with back-off, parked where that cannot help.
//!
//! Each platform has a lane of its own, so that a slow one holds up no other. In a lane each thread
//! has one writer, which does one call after the other; threads go side by side.

mod call;
mod freeze;
mod lane;
mod part;
mod progress;
mod write;

use std::{collections::HashMap, sync::Arc};

use mayfly_domain::chat::Platform;

use crate::{
    bell::Bell,
    blobs::Blobs,
    db::{Db, deliveries::Whose},
    hold::Sending,
    supervise::Supervisor,
};
use call::Caller;
use lane::Lane;
use write::Writer;

/// Platforms by the name in their threads' keys; `local`, whose readers read the deliveries
/// themselves, is always there.
pub type Platforms = HashMap<&'static str, Arc<dyn Platform>>;

/// The platform part of the keys of threads that are read by command line, API and page.
const LOCAL: &str = "local";

/// Delivers until the process comes to rest; calls under way get a few seconds to end then.
pub fn start(
    db: &Db,
    blobs: &Blobs,
    platforms: &Platforms,
    bell: &Bell,
    sending: &Sending,
    supervisor: &Supervisor,
) {
    let chats = platforms.iter().map(|(name, platform)| {
        let caller = Caller::new(platform.clone(), supervisor.clone(), sending.clone());
        (Whose::Platform(name), Target::Chat(caller))
    });
    let mut names: Vec<&'static str> = platforms.keys().copied().collect();
    names.push(LOCAL);
    let others = [
        (Whose::Platform(LOCAL), Target::Local),
        (Whose::NoneOf(names), Target::Nobody),
    ];
    for (whose, target) in chats.chain(others) {
        let writer = Writer {
            db: db.clone(),
            blobs: blobs.clone(),
            target,
            stopping: supervisor.stopping(),
        };
        let lane = Lane::new(whose, writer, bell.clone(), supervisor.clone());
        supervisor.standing("outbox", lane.serve());
    }
}

/// Who shows what a lane holds.
enum Target {
    /// Readers do it themselves.
    Local,
    /// A chat platform.
    Chat(Caller),
    /// The configuration has no such platform.
    Nobody,
}
