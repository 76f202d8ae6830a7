//! Run: the agent program works until it is done, stopped, late or over a limit. Everything it
//! says goes into the transcript as it happens.

use std::time::Duration;

use mayfly_init::protocol::{Exit, Signal, Stream};
use tokio::time::Instant;

use super::{
    Job, Stopwatch, TickError, Tools,
    phase::Phase,
    received::RECEIVED,
    scope::Scoped,
    spawn::{self, Spawned},
    state::{Cause, Event, State},
};
use crate::{
    agent::{
        self, Output,
        transcript::{self, Event as Entry, Transcript},
    },
    clock, faults,
    sandbox::{Control, ControlError, control},
    snapshot::Slot,
    worker::running::Asks,
};

/// How often the row is asked whether somebody said stop on another machine.
const POLL: Duration = Duration::from_secs(1);

/// A program that has ended; its sandbox may still live.
pub struct Ran {
    pub(super) exit: Option<Exit>,
    pub(super) cause: Option<Cause>,
    pub(super) output: Output,
    pub(super) transcript: Transcript,
    pub(super) slots: Vec<Slot>,
    pub(super) layers: Vec<mayfly_domain::LayerId>,
    pub(super) watch: Stopwatch,
    pub(super) control: Control,
}

/// See the module.
pub async fn run(tools: &Tools, job: &Job, scoped: Scoped) -> Result<Ran, TickError> {
    let Scoped {
        spawned,
        session,
        asks,
        prompt,
    } = scoped;
    let Spawned {
        live,
        slots,
        layers,
        mut watch,
        ..
    } = spawned;
    // The floor may have been crossed since the claim.
    if tools.host_disk.below_floor() {
        return Err(TickError::NoRoom);
    }
    let path = transcript::path(&tools.data_dir, job.claim.agent.id, job.claim.tick);
    let mut transcript = Transcript::create(&path, job.profile.limits.transcript_bytes)
        .map_err(TickError::Transcript)?;
    let start = agent::start(&job.profile, &job.image.env);
    write(
        &mut transcript,
        Entry::Prompt {
            text: prompt.written(),
        },
    )?;
    for file in prompt.files() {
        let received = Entry::Received {
            path: format!("{RECEIVED}/{}", file.name),
            size: file.size,
            blob: file.blob.to_string(),
        };
        write(&mut transcript, received)?;
    }
    write(
        &mut transcript,
        Entry::Started {
            argv: start.argv.clone(),
        },
    )?;
    if let Some(tick) = tools.db.tick(job.claim.tick).await?
        && tick.cancel_requested
    {
        return Err(TickError::Stopped);
    }
    spawn::still_held(tools)?;
    let id = live.control.start(start).await.map_err(not_started)?;
    faults::point("run.started");
    let protocol = agent::protocol(job.profile.protocol);
    let program = Program {
        id,
        control: live.control.clone(),
        job,
        tools,
    };
    let (prompted, ended) = tokio::join!(
        protocol.prompt(&live.control, id, &prompt),
        program.follow(live.notices, asks, &mut transcript)
    );
    // A program may end without reading its prompt; its end tells more than the broken pipe.
    if let Err(error) = prompted {
        tracing::debug!(tick = %job.claim.tick, %error, "the prompt was not read to its end");
    }
    drop(session);
    let (exit, cause, output) = ended;
    faults::point("run.ended");
    watch.lap(Phase::Run);
    Ok(Ran {
        exit,
        cause,
        output,
        transcript,
        slots,
        layers,
        watch,
        control: live.control,
    })
}

struct Program<'a> {
    id: u32,
    control: Control,
    job: &'a Job,
    tools: &'a Tools,
}

impl Program<'_> {
    async fn follow(
        &self,
        mut notices: control::Notices,
        mut asks: Asks,
        transcript: &mut Transcript,
    ) -> (Option<Exit>, Option<Cause>, Output) {
        let limits = &self.job.profile.limits;
        let mut output = Output::default();
        let mut state = State::started(clock::boot_time());
        let mut poll = tokio::time::interval(POLL);
        while let Some(wake) = state.wake_at(limits) {
            let sleep = wake.saturating_sub(clock::boot_time());
            let event = tokio::select! {
                notice = notices.next() => match notice {
                    None => Event::Gone,
                    Some((id, event)) if id == self.id => self.heard(event, &mut output, transcript),
                    Some(_) => continue,
                },
                cause = asks.next() => Event::Ask(cause),
                () = tokio::time::sleep_until(Instant::now() + sleep) => Event::Clock,
                _ = poll.tick() => match self.cancel_requested().await {
                    true => Event::Ask(Cause::Stopped),
                    false => continue,
                },
            };
            let before = asked(&state);
            let (next, signal) = state.step(event, clock::boot_time(), limits);
            state = next;
            if let Some(signal) = signal {
                let cause = asked(&state).or(before);
                transcript.record(said(signal, cause.as_ref()));
                self.send(signal).await;
            }
        }
        let State::Ended { exit, cause } = state else {
            unreachable!("only an end has no wake")
        };
        transcript.record(Entry::Exit {
            code: exit.and_then(|exit| exit.code),
            signal: exit.and_then(|exit| exit.signal),
        });
        (exit, cause, output)
    }

    fn heard(
        &self,
        event: control::Event,
        output: &mut Output,
        transcript: &mut Transcript,
    ) -> Event {
        let (stream, bytes) = match event {
            control::Event::Exit(exit) => return Event::Exited(exit),
            control::Event::Output(stream, bytes) => (stream, bytes),
        };
        let text = || String::from_utf8_lossy(&bytes).into_owned();
        let count = || {
            bytes
                .first_chunk::<8>()
                .map_or(0, |count| u64::from_be_bytes(*count))
        };
        let entry = match stream {
            Stream::Stdout => Entry::Stdout { text: text() },
            Stream::Stderr => Entry::Stderr { text: text() },
            Stream::StdoutCut | Stream::StderrCut => Entry::Cut { bytes: count() },
        };
        match stream {
            Stream::Stdout => output.stdout.push(&bytes),
            Stream::Stderr => output.stderr.push(&bytes),
            Stream::StdoutCut => output.stdout.cut = count(),
            Stream::StderrCut => output.stderr.cut = count(),
        }
        transcript.record(entry);
        faults::point("run.output");
        Event::Wrote
    }

    async fn cancel_requested(&self) -> bool {
        let tick = self.tools.db.tick(self.job.claim.tick).await;
        matches!(tick, Ok(Some(tick)) if tick.cancel_requested)
    }

    async fn send(&self, signal: Signal) {
        if let Err(error) = self.control.signal(self.id, signal).await {
            tracing::debug!(tick = %self.job.claim.tick, %error, ?signal, "signal not sent");
        }
    }
}

fn asked(state: &State) -> Option<Cause> {
    match state {
        State::Running { asked, .. } => asked.as_ref().map(|asked| asked.cause.clone()),
        State::Ended { cause, .. } => cause.clone(),
    }
}

fn said(signal: Signal, cause: Option<&Cause>) -> Entry {
    let signal = match signal {
        Signal::Interrupt => "interrupt",
        Signal::Terminate => "terminate",
        Signal::Kill => "kill",
    };
    let reason = match cause {
        Some(Cause::Stopped) => "a person said stop",
        Some(Cause::TimedOut) => "the time limit is reached",
        Some(Cause::NoFirstOutput) => "it has written nothing",
        Some(Cause::StateFull(_) | Cause::StateOverrun(_)) => "its disk limit is reached",
        Some(Cause::HostDiskFull) => "the host's disk is nearly full",
        Some(Cause::Drained) => "the worker is shut down",
        None => "",
    };
    Entry::Asked {
        signal: signal.to_owned(),
        reason: reason.to_owned(),
    }
}

fn write(transcript: &mut Transcript, entry: Entry) -> Result<(), TickError> {
    transcript.write(entry).map_err(TickError::Transcript)
}

fn not_started(error: ControlError) -> TickError {
    match error {
        ControlError::Refused(refusal) => TickError::NotStarted(refusal.reason),
        other => TickError::Control(other),
    }
}
