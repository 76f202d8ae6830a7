//! Spawn: the head is mounted, the sandbox is made, init is ready. No message, no permission yet.
//!
//! The intent, with every name, was recorded by the claim.

use std::time::Duration;

use mayfly_domain::{Attachment, MessageId, file_names};

use super::{Job, Stopwatch, TickError, Tools, blocking, phase::Phase, received};
use crate::{
    agent::Said,
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
    /// What is said in this tick; its files are still outside.
    pub(super) messages: Vec<Said>,
}

/// See the module.
pub async fn spawn(tools: &Tools, job: &Job) -> Result<Spawned, TickError> {
    let mut watch = Stopwatch::start();
    faults::point("spawn.claimed");
    let slots = Slot::defaults();
    let layers = merging::mountable_layers(tools, &job.claim).await?;
    let messages = said(tools, job).await?;
    let brings_files = messages.iter().any(|said| !said.files.is_empty());
    let uppers = {
        let (store, base, layer) = (
            tools.store.clone(),
            job.base.id.clone(),
            job.claim.layer.clone(),
        );
        let (layers, slots) = (layers.clone(), slots.clone());
        blocking(move || {
            let uppers = store.begin(&layer, &base, &layers, &slots)?;
            match brings_files {
                true => received::clear(&store, &layer).map(|()| uppers),
                false => Ok(uppers),
            }
        })
        .await??
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
    let mut spec = spec(tools, job, mounts);
    let files = messages.iter().flat_map(|said| &said.files);
    spec.ceiling += received::longest(files);
    still_held(tools)?;
    let spawned = tools.backend.spawn(&spec).await;
    let (runtime, agent) = (spec.runtime.as_deref(), job.claim.agent.id);
    let breaker = &tools.images.breaker;
    breaker.heard(&job.image, runtime, agent, &spawned);
    let live = spawned?;
    faults::point("spawn.ready");
    watch.lap(Phase::Spawn);
    Ok(Spawned {
        live,
        slots,
        layers,
        watch,
        uppers: upper_paths,
        messages,
    })
}

/// A worker that was frozen since the claim makes no sandbox, and starts no program: its lease may be over.
pub(super) fn still_held(tools: &Tools) -> Result<(), TickError> {
    match tools.lease.fresh() {
        true => Ok(()),
        false => Err(TickError::Stale),
    }
}

/// The messages of this tick. Files of several lie in one folder, so their names are made apart.
async fn said(tools: &Tools, job: &Job) -> Result<Vec<Said>, TickError> {
    let messages = job.claim.messages();
    let ids: Vec<MessageId> = messages.clone().map(|message| message.id).collect();
    let mut files = tools.db.attachments_of(&ids).await?;
    files.sort_by_key(|(of, _)| ids.iter().position(|id| id == of));
    let names = file_names(files.iter().map(|(_, file)| file.name.as_str()));
    for ((_, file), name) in files.iter_mut().zip(names) {
        file.name = name;
    }
    let of = |id: MessageId| -> Vec<Attachment> {
        let own = files.iter().filter(|(of, _)| *of == id);
        own.map(|(_, file)| file.clone()).collect()
    };
    let said = messages.map(|message| Said {
        message: message.id,
        author: message.author.clone(),
        words_of: message.words_of.clone(),
        text: message.text.clone(),
        files: of(message.id),
        at: message.created_at,
    });
    Ok(said.collect())
}

fn spec(tools: &Tools, job: &Job, slots: Vec<SlotMount>) -> SandboxSpec {
    let base = tools.store.base_dir(&job.base.id);
    let limits = job.profile.limits.clone();
    SandboxSpec {
        owner: tools.owner.clone(),
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
