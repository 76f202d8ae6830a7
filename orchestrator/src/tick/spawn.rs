//! Spawn: the head is mounted, the sandbox is made, init is ready. No message, no permission yet.
//!
//! The intent, with every name, was recorded by the claim.

use std::time::Duration;

use mayfly_domain::Attachment;

use super::{Job, Stopwatch, TickError, Tools, blocking, phase::Phase, received};
use crate::{
    faults,
    sandbox::{Live, SandboxSpec, SlotMount},
    snapshot::{Slot, merging},
};

/// How long init lets a program live past its wall-clock limit.
const CEILING_GRACE: Duration = Duration::from_secs(15);

/// A sandbox that waits.
pub struct Spawned {
    pub(super) live: Live,
    pub(super) slots: Vec<Slot>,
    pub(super) layers: Vec<mayfly_domain::LayerId>,
    pub(super) watch: Stopwatch,
    pub(super) uppers: Vec<std::path::PathBuf>,
    /// The message's, still outside.
    pub(super) files: Vec<Attachment>,
}

/// See the module.
pub async fn spawn(tools: &Tools, job: &Job) -> Result<Spawned, TickError> {
    let mut watch = Stopwatch::start();
    faults::point("spawn.claimed");
    let slots = Slot::defaults();
    let layers = merging::mountable_layers(tools, &job.claim).await?;
    let uppers = {
        let (store, base, layer) = (
            tools.store.clone(),
            job.base.id.clone(),
            job.claim.layer.clone(),
        );
        let (layers, slots) = (layers.clone(), slots.clone());
        blocking(move || store.begin(&layer, &base, &layers, &slots)).await??
    };
    faults::point("spawn.uppers");
    let mounts: Vec<SlotMount> = slots
        .iter()
        .zip(&uppers)
        .map(|(slot, upper)| SlotMount {
            name: slot.name.clone(),
            path: slot.path.clone(),
            lowers: tools.store.lowers(&job.base.id, &layers, &slot.name),
            upper: upper.upper.clone(),
            work: upper.work.clone(),
        })
        .collect();
    let upper_paths = mounts.iter().map(|mount| mount.upper.clone()).collect();
    let files = tools.db.attachments(job.claim.message.id).await?;
    let mut spec = spec(tools, job, mounts);
    spec.ceiling += received::longest(&files);
    let live = tools.backend.spawn(&spec).await?;
    faults::point("spawn.ready");
    watch.lap(Phase::Spawn);
    Ok(Spawned {
        live,
        slots,
        layers,
        watch,
        uppers: upper_paths,
        files,
    })
}

fn spec(tools: &Tools, job: &Job, slots: Vec<SlotMount>) -> SandboxSpec {
    let base = tools.store.base_dir(&job.base.id);
    let limits = job.profile.limits.clone();
    SandboxSpec {
        installation: tools.installation,
        tick: job.claim.tick,
        names: job.claim.names.clone(),
        image: job.image.clone(),
        uid: job.base.uid,
        gid: job.base.gid,
        slots,
        passwd: base.join("passwd"),
        group: base.join("group"),
        init: tools.init.clone(),
        runtime: job.profile.runtime.clone(),
        ceiling: Duration::from_secs(limits.wall_clock_s) + CEILING_GRACE,
        limits,
    }
}
