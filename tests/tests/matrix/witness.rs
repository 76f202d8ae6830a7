//! When programs and sandboxes lived, by the kernel's clock since its boot, which no fault moves: as the programs
//! themselves say, and as the kernel shows processes to whoever looks. No two of one agent may have lived at once.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use mayfly_init::arguments::PROGRAM;
use mayfly_orchestrator::clock;
use mayfly_tests::server::Server;
use serde_json::Value;

use crate::{fleet::Fleet, truth::Truth};

/// What a program says first and last; it is no part of its reply.
pub(crate) const SAYS: &str = "cat /proc/uptime >&2";
/// Between two looks at all processes.
const BETWEEN: Duration = Duration::from_millis(20);

/// Hundredths of a second since the kernel's boot.
pub(crate) type Boot = u64;

/// When something of a tick lived at least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) agent: String,
    pub(crate) tick: String,
    pub(crate) from: Boot,
    pub(crate) to: Boot,
}

/// Everything that is known.
pub(crate) fn spans(fleet: &Fleet) -> Vec<Span> {
    let mut spans = said(&fleet.workers);
    if let Some(engine) = &fleet.engine {
        spans.extend(engine.watcher.spans(&fleet.truth()));
    }
    spans
}

/// Two ticks of one agent of which the second began before the first had ended, as a sentence.
pub(crate) fn two_at_once(spans: &[Span]) -> Option<String> {
    let mut spans: Vec<&Span> = spans.iter().collect();
    spans.sort_by_key(|span| (&span.agent, span.from));
    let mut last: Option<&Span> = None;
    for span in spans {
        if let Some(last) = last
            && (last.agent == span.agent && last.tick != span.tick)
            && span.from < last.to
        {
            return Some(format!("two ticks ran at once: {last:?} and {span:?}"));
        }
        // One that outlived the next is what the one after that is held against.
        if last.is_none_or(|last| last.agent != span.agent || last.to < span.to) {
            last = Some(span);
        }
    }
    None
}

/// By the transcripts, which outlive what was interrupted. Where several workers have one of a tick, the longest of
/// them tells how long it ran.
fn said(workers: &[Server]) -> Vec<Span> {
    let mut spans: BTreeMap<String, Span> = BTreeMap::new();
    for worker in workers {
        for agent in below(&worker.data_dir().join("transcripts")) {
            for transcript in below(&agent) {
                let times = times(&transcript);
                let (Some(from), Some(to)) = (times.iter().min(), times.iter().max()) else {
                    continue;
                };
                let tick = transcript.file_stem().unwrap_or_default();
                let span = Span {
                    agent: name(&agent),
                    tick: tick.to_string_lossy().into_owned(),
                    from: *from,
                    to: *to,
                };
                let known = spans.entry(span.tick.clone()).or_insert(span);
                known.from = known.from.min(*from);
                known.to = known.to.max(*to);
            }
        }
    }
    spans.into_values().collect()
}

fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The last line of a worker that was killed may be half a line.
fn times(transcript: &Path) -> Vec<Boot> {
    let text = fs::read_to_string(transcript).unwrap_or_default();
    let events = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let said: String = events
        .filter(|event: &Value| event["event"] == "stderr")
        .filter_map(|event| event["text"].as_str().map(str::to_owned))
        .collect();
    let first = |line: &str| line.split(' ').next()?.replace('.', "").parse().ok();
    said.lines().filter_map(first).collect()
}

/// Looks at all processes again and again, and notes which sandboxes live.
pub(crate) struct Watcher {
    /// By the layers that they make.
    seen: Arc<Mutex<BTreeMap<String, (Boot, Boot)>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    pub(crate) fn start() -> Watcher {
        let (seen, over) = (
            Arc::<Mutex<BTreeMap<_, _>>>::default(),
            Arc::<AtomicBool>::default(),
        );
        let (noted, ends) = (seen.clone(), over.clone());
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                look(&noted);
                thread::sleep(BETWEEN);
            }
        });
        Watcher {
            seen,
            over,
            thread: Some(thread),
        }
    }

    /// Since when and until when the sandbox that makes this layer was seen.
    pub(crate) fn lived(&self, layer: &str) -> Option<(Boot, Boot)> {
        locked(&self.seen).get(layer).copied()
    }

    fn spans(&self, truth: &Truth) -> Vec<Span> {
        let rows = truth.ask("SELECT agent, id, layer FROM ticks");
        let span = |row: &str| {
            let mut columns = row.split('|').map(str::to_owned);
            let (agent, tick, layer) = (columns.next()?, columns.next()?, columns.next()?);
            let (from, to) = self.lived(&layer)?;
            Some(Span {
                agent,
                tick,
                from,
                to,
            })
        };
        rows.lines().filter_map(span).collect()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time since the kernel's boot.
pub(crate) fn now() -> Boot {
    clock::boot_time().as_millis() as Boot / 10
}

fn look(seen: &Mutex<BTreeMap<String, (Boot, Boot)>>) {
    for process in below(Path::new("/proc")) {
        // Whatever is read after this lives now.
        let now = now();
        if let (Some(layer), Some(began)) = (layer_of(&process), began(&process)) {
            let mut seen = locked(seen);
            let (from, to) = seen.entry(layer).or_insert((began, now));
            (*from, *to) = (began.min(*from), now.max(*to));
        }
    }
}

/// Of a sandbox's first process, which is told where its changes lie: `…/u/LAYER/SLOT`.
fn layer_of(process: &Path) -> Option<String> {
    let arguments = fs::read(process.join("cmdline")).ok()?;
    let arguments = String::from_utf8_lossy(&arguments);
    let told = arguments.strip_prefix(PROGRAM)?;
    let (_, upper) = told.split_once("/u/")?;
    upper.split('/').next().map(str::to_owned)
}

/// When it began; the kernel's ticks are hundredths of a second.
fn began(process: &Path) -> Option<Boot> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // Behind the name, which may be anything: the state is the third field, this the 22nd.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(19)?.parse().ok()
}
