//! Report: the result is judged, the sandbox is removed, and only with the proof that nothing can
//! write any more are the files sealed as a layer.

use std::time::Duration;

use mayfly_domain::{Apology, BlobHash, Reply, ReplyFile, file_names};

use super::{
    Changes, EndedBadly, Job, TickError, TickOutcome, Tools, blocking,
    phase::Phase,
    run::Ran,
    state::{self, Verdict},
};
use crate::{
    agent::{
        self,
        transcript::{Event, Transcript},
    },
    db::{endings::Usage, pins::Pin},
    faults, observe,
    sandbox::{BackendError, Control},
    snapshot::{Caps, LayerSize, SealError, Sealed, exclude::Excludes, oci::Parcel},
};

/// How long the proof of removal is tried for.
pub const PROOF: Duration = Duration::from_secs(60);
/// Bytes of standard error shown in a notice.
const STDERR_SHOWN: usize = 1000;
/// Most files sent with one reply.
const FILES: usize = 10;
/// Largest file sent, in bytes.
const FILE_BYTES: u64 = 25 << 20;
/// Between two tries to put a layer into the layer store.
const PUT_AGAIN: Duration = Duration::from_secs(1);
/// Pauses between tries to store a file to send.
const STORE_AGAIN: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(800)];
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
    /// Where that is in the layer store already.
    pub(super) parcel: Option<Parcel>,
    pub(super) exit_code: Option<i32>,
    pub(super) usage: Usage,
    pub(super) watch: super::Stopwatch,
    /// Keep the reply's files until the commit names them.
    pub(super) kept: Vec<Pin>,
}

/// See the module.
pub async fn report(tools: &Tools, job: &Job, mut ran: Ran) -> Result<Reported, TickError> {
    let mut watch = ran.watch;
    let mut judged = judge(job, &mut ran);
    let (removal, gap) = take_down(tools, job, &ran.control, ran.transcript).await?;
    judged.tell(gap);
    if judged.verdict.changes == Changes::Discarded {
        watch.lap(Phase::Report);
        return Err(judged.ended(removal.is_ok(), watch));
    }
    removal.map_err(TickError::NotRemoved)?;
    let sealed = seal(tools, job, &ran.slots, &ran.layers).await?;
    faults::point("report.sealed");
    let layer = judged.sealed(sealed);
    let (mut files, mut parcel, mut kept) = (Vec::new(), None, Vec::new());
    if layer.is_some() {
        parcel = put(tools, job).await;
        let (stored, unsent) = files_to_send(tools, job, &mut kept).await?;
        files = stored;
        judged.tell(unsent);
    }
    watch.lap(Phase::Report);
    Ok(Reported {
        kept,
        ..judged.reported(layer, parcel, files, watch)
    })
}

/// What a program's end means, as far as is known.
struct Judged {
    text: String,
    verdict: Verdict,
    usage: Usage,
    told: Vec<String>,
    exit_code: Option<i32>,
}

fn judge(job: &Job, ran: &mut Ran) -> Judged {
    let text = agent::protocol(job.profile.protocol).reply(&ran.output);
    let stderr = ran.output.stderr.last(STDERR_SHOWN);
    let (cause, limits) = (ran.cause.clone(), &job.profile.limits);
    let verdict = state::verdict(ran.exit, cause, !text.is_empty(), &stderr, limits);
    let mut usage = Usage {
        output_bytes: (ran.output.stdout.total() + ran.output.stderr.total()) as i64,
        ..Usage::default()
    };
    usage.notes.extend(another_sandbox(job));
    if let Some(text) = oom_of_a_child(ran, &verdict) {
        ran.transcript.record(Event::Note { text: text.clone() });
        usage.notes.push(text);
    }
    Judged {
        text,
        verdict,
        usage,
        told: Vec::new(),
        exit_code: ran.exit.and_then(|exit| exit.code),
    }
}

impl Judged {
    /// Something a person would miss.
    fn tell(&mut self, notes: impl IntoIterator<Item = String>) {
        for note in notes {
            self.usage.notes.push(note.clone());
            self.told.push(note);
        }
    }

    /// A refused seal keeps head and session; the answer is still posted, with the notice.
    fn sealed(&mut self, sealed: Result<Sealed, SealError>) -> Option<LayerSize> {
        match sealed {
            Ok(sealed) => {
                self.told.extend(sealed.told);
                self.usage.notes.extend(sealed.notes);
                sealed.layer
            }
            Err(error) => {
                tracing::warn!(%error, "seal refused");
                self.verdict = Verdict {
                    outcome: TickOutcome::Failed,
                    changes: Changes::Discarded,
                    apology: Some(refused(&error)),
                    again: self.verdict.again,
                };
                None
            }
        }
    }

    fn ended(mut self, removed: bool, watch: super::Stopwatch) -> TickError {
        self.usage.phase_ms = watch.phases();
        TickError::Ended(Box::new(EndedBadly {
            outcome: self.verdict.outcome,
            apology: self.verdict.apology.unwrap_or(Apology::NoAnswer),
            text: self.text,
            again: self.verdict.again,
            exit_code: self.exit_code,
            usage: self.usage,
            removed,
        }))
    }

    fn reported(
        self,
        layer: Option<LayerSize>,
        parcel: Option<Parcel>,
        files: Vec<ReplyFile>,
        watch: super::Stopwatch,
    ) -> Reported {
        // Who sends files and says nothing has answered.
        let apology = self
            .verdict
            .apology
            .filter(|apology| files.is_empty() || *apology != Apology::NoAnswer);
        Reported {
            outcome: self.verdict.outcome,
            changes: self.verdict.changes,
            apology,
            reply: Reply {
                text: self.text,
                files,
            },
            told: self.told,
            layer,
            parcel,
            exit_code: self.exit_code,
            usage: self.usage,
            watch,
            kept: Vec::new(),
        }
    }
}

fn refused(error: &SealError) -> Apology {
    match error {
        SealError::Cap { limit } => Apology::StateFull {
            limit: limit.clone(),
        },
        SealError::Store(error) if error.is_full() => Apology::HostDiskFull,
        other => Apology::NotSealed {
            reason: other.to_string(),
        },
    }
}

/// Ends the sandbox and closes its transcript. The inner result is the proof of removal, the other
/// what the transcript lacks.
async fn take_down(
    tools: &Tools,
    job: &Job,
    control: &Control,
    transcript: Transcript,
) -> Result<(Result<(), BackendError>, Option<String>), TickError> {
    let _ = control.end().await;
    faults::point("report.ended");
    tools.running.leave(job.claim.tick);
    let (removal, gap) = tokio::join!(
        tools.backend.remove(&job.claim.names, PROOF),
        blocking(move || transcript.finish())
    );
    faults::point("report.removed");
    Ok((removal.map(drop), gap?))
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

/// A small layer is in the layer store before the commit. The store is asked until it answers: nothing
/// is lost meanwhile, and no further tick begins. One that cannot be packed is owed, and so is one
/// whose worker has no more time.
async fn put(tools: &Tools, job: &Job) -> Option<Parcel> {
    let hurry = tools.travel.hurry();
    loop {
        let put = tools.travel.put_small(&job.claim.layer);
        let error = match hurry.run_until_cancelled(put).await {
            None => return None,
            Some(Ok(parcel)) => {
                faults::point("report.stored");
                return parcel;
            }
            Some(Err(error)) => error,
        };
        if !error.is_away() {
            tracing::error!(tick = %job.claim.tick, error = observe::chain(&error), "layer owed to the store");
            return None;
        }
        tracing::warn!(tick = %job.claim.tick, error = observe::chain(&error), "layer not stored yet");
        let pause = tokio::time::sleep(PUT_AGAIN);
        hurry.run_until_cancelled(pause).await?;
    }
}

/// Regular files directly under `send/` in the layer just sealed, copied to the blob store, and what
/// is told of the others: a reply is not lost because a file of it cannot be stored. What is stored is kept by pins:
/// the next one may have to wait for the layer store, and the commit for the database, longer than anything lives that
/// no row names.
async fn files_to_send(
    tools: &Tools,
    job: &Job,
    kept: &mut Vec<Pin>,
) -> Result<(Vec<ReplyFile>, Vec<String>), TickError> {
    let (store, layer) = (tools.store.clone(), job.claim.layer.clone());
    let listed = match blocking(move || store.files_in(&layer, "work", SEND)).await? {
        Ok(listed) => listed,
        Err(error) => {
            tracing::error!(tick = %job.claim.tick, error = observe::chain(&error), "send/ not readable");
            return Ok((
                Vec::new(),
                vec![format!("the files in {SEND}/ could not be read")],
            ));
        }
    };
    let mut files: Vec<ReplyFile> = Vec::new();
    let (mut too_much, mut not_stored) = (Unsent::default(), Unsent::default());
    let mut no_files = Unsent::default();
    for name in listed.others {
        no_files.add(&String::from_utf8_lossy(&name));
    }
    for file in listed.files {
        let name = match String::from_utf8(file.name) {
            Ok(name) => name,
            Err(other) => {
                too_much.add(&String::from_utf8_lossy(other.as_bytes()));
                continue;
            }
        };
        if file.size > FILE_BYTES || files.len() == FILES {
            too_much.add(&name);
            continue;
        }
        match stored(tools, job, &name).await {
            Ok((blob, size)) => {
                kept.extend(keep(tools, job, &blob).await);
                files.push(ReplyFile { name, blob, size });
            }
            Err(error) => {
                tracing::error!(tick = %job.claim.tick, error = observe::chain(&error), "file not stored");
                not_stored.add(&name);
            }
        }
    }
    // What an agent calls its files is hostile text too.
    let names = file_names(files.iter().map(|file: &ReplyFile| file.name.as_str()));
    for (file, name) in files.iter_mut().zip(names) {
        file.name = name;
    }
    faults::point("report.files");
    let mib = FILE_BYTES >> 20;
    let notes = [
        too_much.note(&format!(
            "at most {FILES} files of {mib} MiB with names in UTF-8 go with a reply"
        )),
        not_stored.note(&format!("the disk did not take it; it is kept in {SEND}/")),
        no_files.note(&format!(
            "only files that lie in {SEND}/ itself go with a reply, no folders and no links"
        )),
    ];
    Ok((files, notes.into_iter().flatten().collect()))
}

/// While the database does not answer it is asked again, as the commit would. None where it refuses, or the worker
/// has no more time: then the file lives as long as what nobody names.
async fn keep(tools: &Tools, job: &Job, blob: &BlobHash) -> Option<Pin> {
    loop {
        let error = match tools.db.pin_blobs(std::slice::from_ref(blob)).await {
            Ok(pin) => return Some(pin),
            Err(error) => error,
        };
        tracing::warn!(tick = %job.claim.tick, error = observe::chain(&error), "file not kept yet");
        if !error.is_down() {
            return None;
        }
        let pause = tokio::time::sleep(PUT_AGAIN);
        tools.travel.hurry().run_until_cancelled(pause).await?;
    }
}

/// Copies one file to the blob store; tried a few times.
async fn stored(tools: &Tools, job: &Job, name: &str) -> Result<(BlobHash, u64), TickError> {
    let mut pauses = STORE_AGAIN.into_iter();
    loop {
        let path = format!("{SEND}/{name}");
        let opened = tools.store.open_file(&job.claim.layer, "work", path)?;
        match (
            tools.blobs.put_file(opened, FILE_BYTES).await,
            pauses.next(),
        ) {
            (Ok(stored), _) => return Ok(stored),
            // As with the layer: the answer waits, nothing is lost.
            (Err(error), _) if error.is_away() && !tools.travel.hurry().is_cancelled() => {
                pauses = STORE_AGAIN.into_iter();
                tokio::time::sleep(PUT_AGAIN).await;
            }
            (Err(_), Some(pause)) => tokio::time::sleep(pause).await,
            (Err(error), None) => return Err(error.into()),
        }
    }
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

    fn note(self, why: &str) -> Option<String> {
        let first = self.first?;
        let others = match self.more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!("{first}{others} not sent: {why}"))
    }
}
