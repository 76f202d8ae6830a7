//! Stops every process of the agent until all stand still. Init's own transfers go on, or the
//! worker's next orders would wait behind them.

use std::time::Duration;

use mayfly_init::protocol::{Id, Notice, Refusal};
use rustix::process::{Pid, Signal, kill_process};

use crate::control::Control;
use crate::{kernel, processes};

/// How long a process may take to stop, be it in the kernel.
const LIMIT: Duration = Duration::from_secs(5);

/// Pauses that are not answered yet.
#[derive(Default)]
pub(crate) struct Pause {
    waiting: Vec<(Id, Duration)>,
}

impl Pause {
    pub(crate) fn begin(&mut self, id: Id, now: Duration) {
        self.waiting.push((id, now + LIMIT));
    }

    pub(crate) fn resume(&mut self, id: Id, control: &mut Control) {
        for (pause, _) in self.waiting.drain(..) {
            let refusal = Refusal::new("Processes were continued before all had stopped.");
            control.notify(&Notice::Done(pause, Err(refusal)));
        }
        kernel::signal_all(libc::SIGCONT);
        control.notify(&Notice::Done(id, Ok(())));
    }

    /// A process that is forked or continued meanwhile is stopped in the next turn.
    pub(crate) fn step(&mut self, control: &mut Control, now: Duration, transfers: &[Pid]) {
        if self.waiting.is_empty() {
            return;
        }
        kernel::signal_all(libc::SIGSTOP);
        for pid in transfers {
            // One that has just ended needs nothing.
            let _ = kill_process(*pid, Signal::CONT);
        }
        let stopped = processes::all_stopped_but(transfers);
        self.waiting.retain(|(id, until)| {
            let result = match () {
                () if stopped => Ok(()),
                () if now >= *until => Err(Refusal::new("Some processes did not stop.")),
                () => return true,
            };
            control.notify(&Notice::Done(*id, result));
            false
        });
    }

    pub(crate) fn busy(&self) -> bool {
        !self.waiting.is_empty()
    }
}
