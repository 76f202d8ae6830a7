//! Init's one loop: wait, obey, move bytes, bury the dead, watch the clock.
//!
//! Every turn does a bounded amount of work per handle, so nothing the agent does can keep init
//! from its deadlines. When the last running program ends, everything in the sandbox is killed,
//! transfers too; while others run, only its own session is.

use std::time::Duration;

use mayfly_init::arguments::{Arguments, GATEWAY, SOCKETS};
use mayfly_init::exit::Code;
use mayfly_init::protocol::{Id, Notice, Order, Ready, Refusal};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read};

use crate::control::{Control, Received};
use crate::deadline::{self, Alarm};
use crate::forward::Forwarder;
use crate::kernel;
use crate::pause::Pause;
use crate::program::Program;
use crate::reap::reap;
use crate::signals::Signals;
use crate::spawn::User;
use crate::transfer::Transfer;

/// How often what has to be repeated is repeated.
const BEAT: Duration = Duration::from_millis(5);
/// A process that cannot even be killed holds up the `Exit` no longer than this; the proof that
/// nothing runs is the container's removal.
const SWEEP: Duration = Duration::from_secs(2);
/// Reads of the control socket in one turn.
const READS: usize = 64;
const MOST_PROGRAMS: usize = 16;
const MOST_TRANSFERS: usize = 16;
const MOST_FORWARDS: usize = 4;

/// Why init ends, and the sentence for the log.
pub(crate) type Ending = (Code, String);

pub(crate) struct Sandbox {
    control: Control,
    signals: Signals,
    alarm: Alarm,
    user: User,
    ceiling: Duration,
    heartbeat: Duration,
    last_heartbeat: Duration,
    programs: Vec<Program>,
    transfers: Vec<Transfer>,
    forwards: Vec<Forwarder>,
    pause: Pause,
    /// A program of the agent ran since the last sweep.
    dirty: bool,
    /// Since when everything is being killed after the last program's end.
    sweep: Option<Duration>,
}

/// How far the worker's orders are carried out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Orders {
    /// All that are queued.
    Done,
    /// Some wait for the end of a sweep.
    Swept,
    /// Some wait for a child that is slow to write.
    Held,
    /// More may be queued.
    More,
}

impl Sandbox {
    pub(crate) fn new(
        arguments: &Arguments,
        ceiling: Duration,
        control: Control,
        signals: Signals,
        alarm: Alarm,
    ) -> Sandbox {
        Sandbox {
            control,
            signals,
            alarm,
            user: User {
                uid: arguments.uid,
                gid: arguments.gid,
            },
            ceiling,
            heartbeat: arguments.heartbeat,
            last_heartbeat: deadline::now(),
            programs: Vec::new(),
            transfers: Vec::new(),
            forwards: Vec::new(),
            pause: Pause::default(),
            dirty: false,
            sweep: None,
        }
    }

    /// Serves until there is a reason to end.
    pub(crate) fn run(mut self) -> Ending {
        let ready = Ready {
            build: env!("CARGO_PKG_VERSION").to_owned(),
        };
        self.control.notify(&Notice::Ready(ready));
        loop {
            if let Err(ending) = self.turn() {
                return ending;
            }
        }
    }

    fn turn(&mut self) -> Result<(), Ending> {
        if deadline::now() >= self.ceiling {
            return Err((Code::Ceiling, "the ceiling has passed".into()));
        }
        if self.signals.step() {
            return Err((Code::Terminated, "SIGTERM".into()));
        }
        let orders = self.obey()?;
        let now = deadline::now();
        let more = self.bury(now);
        self.move_bytes(now);
        self.control.flush()?;
        // A sweep is short, so its end is awaited; a child that does not write excuses nothing.
        let judge = matches!(orders, Orders::Done | Orders::Held);
        if judge && now >= self.last_heartbeat + self.heartbeat {
            return Err((Code::NoHeartbeat, format!("none for {:?}", self.heartbeat)));
        }
        self.wait(more || orders == Orders::More)
    }

    /// Reads and carries out all queued orders.
    fn obey(&mut self) -> Result<Orders, Ending> {
        for _ in 0..READS {
            // Orders that were decoded before a hold come first.
            while !self.held() {
                let Some(order) = self.control.order()? else {
                    break;
                };
                self.carry_out(order)?;
            }
            if self.held() {
                return Ok(if self.sweep.is_some() {
                    Orders::Swept
                } else {
                    Orders::Held
                });
            }
            match self.control.receive() {
                Received::Some => {}
                Received::Nothing => return Ok(Orders::Done),
                Received::End => return Err((Code::ControlClosed, "end of stream".into())),
            }
        }
        Ok(Orders::More)
    }

    fn held(&self) -> bool {
        self.sweep.is_some() || self.transfers.iter().any(Transfer::holds)
    }

    fn carry_out(&mut self, order: Order) -> Result<(), Ending> {
        let user = self.user;
        match order {
            Order::Heartbeat => self.last_heartbeat = deadline::now(),
            Order::End => return Err((Code::Ended, "the worker's order".into())),
            Order::Start(id, start) => {
                let program = self
                    .admit(id, self.programs.len() < MOST_PROGRAMS)
                    .and_then(|()| Program::start(id, &start, user));
                match program {
                    Ok(program) => self.programs.push(program),
                    Err(refusal) => self.done(id, Err(refusal)),
                }
            }
            Order::Put(id, file) => {
                let transfer = self
                    .admit(id, self.transfers.len() < MOST_TRANSFERS)
                    .and_then(|()| Transfer::put(id, file, user));
                self.add(id, transfer);
            }
            Order::Get(id, file) => {
                let transfer = self
                    .admit(id, self.transfers.len() < MOST_TRANSFERS)
                    .and_then(|()| Transfer::get(id, file, user));
                self.add(id, transfer);
            }
            Order::Data(id, bytes) => {
                // What follows a refused or finished `Put` has nowhere to go.
                if let Some(transfer) = self.transfers.iter_mut().find(|t| t.id == id) {
                    transfer.data(&bytes);
                }
            }
            Order::Stdin(id, bytes) => {
                if let Some(program) = self.programs.iter_mut().find(|p| p.id == id)
                    && !program.stdin(&bytes)
                {
                    let refusal = Refusal::new("The program does not read its standard input.");
                    self.done(id, Err(refusal));
                }
            }
            Order::CloseStdin(id) => {
                if let Some(program) = self.programs.iter_mut().find(|p| p.id == id) {
                    program.close_stdin();
                }
            }
            Order::Signal(id, signal) => {
                if let Some(program) = self.programs.iter().find(|p| p.id == id) {
                    program.signal(signal);
                }
            }
            Order::Pause(id) => self.pause.begin(id, deadline::now()),
            Order::Resume(id) => self.pause.resume(id, &mut self.control),
            Order::Forward(id, forward) => {
                let forwarder = self
                    .admit(id, self.forwards.len() < MOST_FORWARDS)
                    .and_then(|()| Forwarder::new(forward, format!("{SOCKETS}/{GATEWAY}")));
                let result = forwarder.map(|forwarder| self.forwards.push(forwarder));
                self.done(id, result);
            }
        }
        Ok(())
    }

    /// Whether there is room, and the id is free.
    fn admit(&self, id: Id, room: bool) -> Result<(), Refusal> {
        let taken = self.programs.iter().any(|program| program.id == id)
            || self.transfers.iter().any(|transfer| transfer.id == id);
        match (room, taken) {
            (_, true) => Err(Refusal::new(format!("The id {id} is in use."))),
            (false, false) => Err(Refusal::new("Too many of these run at once.")),
            (true, false) => Ok(()),
        }
    }

    fn add(&mut self, id: Id, transfer: Result<Transfer, Refusal>) {
        match transfer {
            Ok(transfer) => self.transfers.push(transfer),
            Err(refusal) => self.done(id, Err(refusal)),
        }
    }

    fn done(&mut self, id: Id, result: Result<(), Refusal>) {
        self.control.notify(&Notice::Done(id, result));
    }

    /// Collects what ended, and goes on with a sweep. `true`: look again at once.
    fn bury(&mut self, now: Duration) -> bool {
        if self.sweep.is_some() {
            kernel::signal_all(libc::SIGKILL);
        }
        let reaped = reap();
        for (pid, status) in reaped.ended {
            for program in &mut self.programs {
                program.reaped(pid, status, now);
            }
            for transfer in &mut self.transfers {
                transfer.reaped(pid, status);
            }
        }
        let control = &mut self.control;
        self.programs
            .retain_mut(|program| program.announce(control));
        self.dirty |= self.programs.iter().any(Program::started);
        let begins =
            self.dirty && self.sweep.is_none() && !self.programs.iter().any(Program::running);
        if begins {
            self.sweep = Some(now);
        }
        let sweeping = self.sweep.is_some();
        let cleared = self
            .sweep
            .is_some_and(|since| reaped.alone || now >= since + SWEEP);
        for program in &mut self.programs {
            program.step(control, cleared);
        }
        if cleared || !sweeping {
            let (gone, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.programs)
                .into_iter()
                .partition(|program| program.finished(control, now, cleared));
            self.programs = left;
            for program in gone {
                program.farewell(control);
            }
        }
        if cleared && self.programs.is_empty() {
            self.dirty = false;
            self.sweep = None;
        }
        reaped.more || (begins && self.sweep.is_some())
    }

    fn move_bytes(&mut self, now: Duration) {
        let control = &mut self.control;
        self.transfers
            .retain_mut(|transfer| match transfer.step(control, now) {
                Some(result) => {
                    transfer.farewell(result, control);
                    false
                }
                None => true,
            });
        self.forwards.iter_mut().for_each(Forwarder::step);
        let transfers: Vec<_> = self
            .transfers
            .iter()
            .filter_map(Transfer::running)
            .collect();
        self.pause.step(control, now, &transfers);
    }

    /// Sleeps until a handle or the next deadline wants something.
    fn wait(&mut self, again: bool) -> Result<(), Ending> {
        let now = deadline::now();
        let repeats = self.sweep.is_some()
            || self.pause.busy()
            || self.programs.iter().any(|program| !program.running());
        let mut next = self.ceiling.min(self.last_heartbeat + self.heartbeat);
        if repeats {
            next = next.min(now + BEAT);
        }
        next = self
            .transfers
            .iter()
            .map(Transfer::until)
            .fold(next, Duration::min);
        if again {
            next = now;
        }
        let broken = |error: Errno| (Code::Broken, error.to_string());
        self.alarm.set(next).map_err(broken)?;

        let full = self.control.full();
        let reads = self
            .programs
            .iter()
            .flat_map(|program| program.wanted_reads(full))
            .chain(
                self.transfers
                    .iter()
                    .filter_map(|transfer| transfer.wanted_reads(full)),
            )
            .chain(self.forwards.iter().flat_map(Forwarder::wanted_reads));
        let writes = self
            .programs
            .iter()
            .filter_map(Program::wanted_writes)
            .chain(self.transfers.iter().filter_map(Transfer::wanted_writes))
            .chain(self.forwards.iter().flat_map(Forwarder::wanted_writes));
        let mut handles: Vec<PollFd<'_>> = vec![
            PollFd::new(&self.alarm, PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
        ];
        handles.extend(self.control.wanted(self.held()));
        handles.extend(reads.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        handles.extend(writes.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
        match poll(&mut handles, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(broken(error)),
        }
        // Setting the alarm anew clears it; reading it only keeps this turn's wake-up single.
        let _ = read(&self.alarm, &mut [0; 8]);
        Ok(())
    }
}
