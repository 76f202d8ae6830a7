//! What is owed reaches its thread: tried again with back-off, parked where that cannot help.
//!
//! Each platform has a lane of its own, so that a slow one holds up no other. In a lane each thread
//! has one writer, which sends what it is owed strictly in order; threads go side by side.

mod call;
mod lane;

use std::{collections::HashMap, sync::Arc};

use mayfly_domain::Platform;

use crate::{
    bell::Bell,
    db::{Db, deliveries::Whose},
    supervise::Supervisor,
};
use call::Caller;
use lane::Lane;

/// Platforms by the name in their threads' keys.
pub type Platforms = HashMap<&'static str, Arc<dyn Platform>>;

/// Delivers until the process comes to rest; calls under way get a few seconds to end then.
pub fn start(db: &Db, platforms: &Platforms, bell: &Bell, supervisor: &Supervisor) {
    let names = platforms.keys().copied().collect();
    let known = platforms
        .iter()
        .map(|(name, platform)| (Whose::Platform(name), Some(platform.clone())));
    for (whose, platform) in known.chain([(Whose::NoneOf(names), None)]) {
        let caller = Caller {
            db: db.clone(),
            platform,
            supervisor: supervisor.clone(),
        };
        let lane = Lane::new(whose, caller, bell.clone());
        supervisor.standing("outbox", lane.serve());
    }
}
