//! Many workers, bots and agents on one database and one queue, in one thread and by a virtual clock.
//!
//! Processes are small state machines around the real code: accepting, claims, leases, commits, the closing of
//! what the dead left open, and the queue's script. One step runs to its end before the next begins; a seed
//! decides what comes next, and what breaks. After each step the promises are looked at:
//!
//! - P1: what was accepted has one outcome, in its lane's order, and one reply;
//! - P2: of one agent one program runs, and who has lost its claim commits nothing;
//! - P3: a commit has written all of it, one that is refused or cut off nothing.
//!
//! The files of a state, sandboxes and platforms are not simulated: a sandbox is the time at which its init
//! ends it.

mod agents;
mod chance;
mod check;
mod figures;
mod oracle;
mod remote;
mod scene;
pub mod shared;
mod sqlite_clock;
mod world;

pub use chance::Chance;
pub use figures::{Figures, HEAD};
pub use scene::Scene;
pub use world::Violation;

/// Plays a scene to its end. One at a time in a process: SQLite has one clock.
pub fn play(scene: &Scene) -> Result<Figures, Violation> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    world::World::new(scene, &runtime).play()
}
