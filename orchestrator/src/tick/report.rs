//! Report: the result is judged, the sandbox is removed, and only with the proof that nothing can
//! write any more are the files sealed as a layer.

use std::time::Duration;

use mayfly_domain::{Apology, Reply, ReplyFile};

use super::{
    Changes, EndedBadly, Job, TickError, TickOutcome, Tools, blocking,
    phase::Phase,
    run::Ran,
    state::{self, Verdict},
};
use crate::{
    agent::{self, transcript::Event},
    db::endings::Usage,
    faults,
    snapshot::{Caps, LayerSize, SealError, Sealed, exclude::Excludes},
};

/// How long the proof of removal is tried for.
pub const PROOF: Duration = Duration::from_secs(60);
/// Bytes of standard error shown in a notice.
const STDERR_SHOWN: usize = 1000;
/// Most files sent with one reply.
const FILES: usize = 10;
/// Largest file sent, in bytes.
const FILE_BYTES: u64 = 25 << 20;
/// Files the agent wants to send lie here, below the `work` slot.
const SEND: &str = "send";

/// A sealed result, not yet true.
pub struct Reported {
    pub(super) outcome: TickOutcome,
    pub(super) changes: Changes,
    pub(super) apology: Option<Apology>,
    pub(super) reply: Reply,
    /// What a person would miss, one line each.
    pub(super) told: Vec<String>,
    pub(super) layer: Option<LayerSize>,
    pub(super) exit_code: Option<i32>,
    pub(super) usage: Usage,
    pub(super) watch: super::Stopwatch,
}

/// See the module.
pub async fn report(tools: &Tools, job: &Job, mut ran: Ran) -> Result<Reported, TickError> {
    let mut watch = ran.watch;
    let limits = &job.profile.limits;
    let text = agent::protocol(job.profile.protocol).reply(&ran.output);
    let stderr = ran.output.stderr.last(STDERR_SHOWN);
    let verdict = state::verdict(
        ran.exit,
        ran.cause.clone(),
        !text.is_empty(),
        &stderr,
        limits,
    );
    let mut usage = Usage {
        output_bytes: (ran.output.stdout.total() + ran.output.stderr.total()) as i64,
        ..Usage::default()
    };
    usage.notes.extend(another_sandbox(job));
    if let Some(text) = oom_of_a_child(&ran, &verdict) {
        let note = Event::Note { text: text.clone() };
        ran.transcript.write(note).map_err(TickError::Transcript)?;
        usage.notes.push(text);
    }
    let exit_code = ran.exit.and_then(|exit| exit.code);
    let _ = ran.control.end().await;
    faults::point("report.ended");
    tools.running.leave(job.claim.tick);
    let transcript = ran.transcript;
    let (removal, synced) = tokio::join!(
        tools.backend.remove(&job.claim.names, PROOF),
        blocking(move || transcript.sync())
    );
    faults::point("report.removed");
    synced?.map_err(TickError::Transcript)?;
    if verdict.changes == Changes::Discarded {
        watch.lap(Phase::Report);
        usage.phase_ms = watch.phases();
        let Verdict {
            outcome,
            apology,
            again,
            ..
        } = verdict;
        let apology = apology.unwrap_or(Apology::NoAnswer);
        let removed = removal.is_ok();
        let bad = EndedBadly {
            outcome,
            apology,
            text,
            again,
            exit_code,
            usage,
            removed,
        };
        return Err(TickError::Ended(Box::new(bad)));
    }
    removal.map_err(TickError::NotRemoved)?;
    let sealed = seal(tools, job, &ran.slots, &ran.layers).await?;
    faults::point("report.sealed");
    let mut told = Vec::new();
    let (sealed, verdict) = judge_seal(sealed, verdict, &mut usage, &mut told)?;
    let mut reply = Reply {
        text,
        files: Vec::new(),
    };
    if sealed.is_some() {
        let noted = usage.notes.len();
        reply.files = files_to_send(tools, job, &mut usage).await?;
        told.extend_from_slice(&usage.notes[noted..]);
    }
    watch.lap(Phase::Report);
    let Verdict {
        outcome,
        changes,
        apology,
        ..
    } = verdict;
    Ok(Reported {
        outcome,
        changes,
        apology,
        reply,
        told,
        layer: sealed,
        exit_code,
        usage,
        watch,
    })
}

/// Another sandbox changes the root file system only.
fn another_sandbox(job: &Job) -> Option<String> {
    let own = &job.claim.agent.image;
    (job.image.id != *own).then(|| {
        format!(
            "ran in {} instead of its own image; files and identity are the agent's",
            job.image.name
        )
    })
}

/// A child that died for memory is one line, not the tick's outcome.
fn oom_of_a_child(ran: &Ran, verdict: &Verdict) -> Option<String> {
    let oom = ran.exit.is_some_and(|exit| exit.oom);
    let told = matches!(verdict.apology, Some(Apology::OutOfMemory { .. }));
    (oom && !told).then(|| "a process was killed for want of memory".to_owned())
}

async fn seal(
    tools: &Tools,
    job: &Job,
    slots: &[crate::snapshot::Slot],
    layers: &[mayfly_domain::LayerId],
) -> Result<Result<Sealed, SealError>, TickError> {
    let limits = &job.profile.limits;
    let caps = Caps {
        bytes: limits.state_mib << 20,
        inodes: limits.state_inodes,
        file_bytes: limits.file_mib << 20,
    };
    let (store, layer, base) = (
        tools.store.clone(),
        job.claim.layer.clone(),
        job.base.id.clone(),
    );
    let (slots, layers) = (slots.to_vec(), layers.to_vec());
    // Read at each tick, like limits; the configuration has judged it.
    let excludes = Excludes::new(&job.profile.exclude);
    blocking(move || {
        let dropped = match &excludes {
            Ok(excludes) => store.exclude(&layer, &slots, excludes)?,
            Err(error) => {
                tracing::warn!(%error, "a pattern of exclude is passed over");
                0
            }
        };
        let mut sealed = store.seal(&layer, &base, &layers, &slots, &caps)?;
        if dropped > 0 {
            let note = format!("left out {dropped} files and folders under excluded paths");
            sealed.notes.push(note);
        }
        Ok(sealed)
    })
    .await
}

/// A refused seal keeps head and session; the answer is still posted, with the notice.
fn judge_seal(
    sealed: Result<Sealed, SealError>,
    verdict: Verdict,
    usage: &mut Usage,
    told: &mut Vec<String>,
) -> Result<(Option<LayerSize>, Verdict), TickError> {
    match sealed {
        Ok(sealed) => {
            told.extend(sealed.told);
            usage.notes.extend(sealed.notes);
            Ok((sealed.layer, verdict))
        }
        Err(error) => {
            tracing::warn!(%error, "seal refused");
            let apology = match &error {
                SealError::Cap { limit } => Apology::StateFull {
                    limit: limit.clone(),
                },
                SealError::Store(error) if error.is_full() => Apology::HostDiskFull,
                other => Apology::NotSealed {
                    reason: other.to_string(),
                },
            };
            let verdict = Verdict {
                outcome: TickOutcome::Failed,
                changes: Changes::Discarded,
                apology: Some(apology),
                again: verdict.again,
            };
            Ok((None, verdict))
        }
    }
}

/// Regular files directly under `send/` in the layer just sealed, copied to the blob store.
async fn files_to_send(
    tools: &Tools,
    job: &Job,
    usage: &mut Usage,
) -> Result<Vec<ReplyFile>, TickError> {
    let (store, layer) = (tools.store.clone(), job.claim.layer.clone());
    let listed = blocking(move || store.files_in(&layer, "work", SEND)).await??;
    let mut files = Vec::new();
    let mut unsent = Unsent::default();
    for file in listed {
        let name = match String::from_utf8(file.name) {
            Ok(name) => name,
            Err(other) => {
                unsent.add(&String::from_utf8_lossy(other.as_bytes()));
                continue;
            }
        };
        if file.size > FILE_BYTES || files.len() == FILES {
            unsent.add(&name);
            continue;
        }
        let opened = tools
            .store
            .open_file(&job.claim.layer, "work", format!("{SEND}/{name}"))?;
        let (blob, size) = tools.blobs.put_file(opened, FILE_BYTES).await?;
        files.push(ReplyFile { name, blob, size });
    }
    faults::point("report.files");
    usage.notes.extend(unsent.note());
    Ok(files)
}

/// Files that are not sent, as one line however many they are. Their names are hostile text.
#[derive(Default)]
struct Unsent {
    first: Option<String>,
    more: usize,
}

impl Unsent {
    fn add(&mut self, name: &str) {
        let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        match self.first {
            None => self.first = Some(name.chars().map(plain).collect()),
            Some(_) => self.more += 1,
        }
    }

    fn note(self) -> Option<String> {
        let first = self.first?;
        let (mib, more) = (FILE_BYTES >> 20, self.more);
        let others = match more {
            0 => String::new(),
            _ => format!(" and {more} more"),
        };
        Some(format!(
            "{first}{others} not sent: at most {FILES} files of {mib} MiB with names in UTF-8 go with a reply"
        ))
    }
}
