//! Sandboxes outlive their worker's process for as long as init lets them.

use mayfly_domain::{AgentId, TickId};

use super::{Event, Ms, World, jobs::JobId, workers::Life};

/// Init ends the sandbox after this long without a heartbeat.
const SILENCE: Ms = 15_000;
/// How long killing everything takes at the most on a host that is so busy that its worker stood still.
const KILLING: Ms = 4_000;
/// The same where only the worker has died: less than a new start takes.
const ENDING: Ms = 250;

/// See the module. It is there until all in it is dead.
#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) agent: AgentId,
    /// Who has made it.
    pub(super) worker: usize,
    pub(super) life: Life,
    pub(super) job: JobId,
    last_heartbeat: Ms,
    /// Init has begun to kill.
    ending: bool,
    running: bool,
}

impl World<'_> {
    /// A sandbox whose init waits.
    pub(super) fn make_sandbox(&mut self, worker: usize, job: JobId, agent: AgentId, tick: TickId) {
        let sandbox = Sandbox {
            agent,
            worker,
            life: self.workers[worker].life,
            job,
            last_heartbeat: self.now(),
            ending: false,
            running: false,
        };
        self.sandboxes.insert(tick, sandbox);
        self.schedule.after(SILENCE, Event::Init(tick));
    }

    /// Init is told to start the program; false if it is not there any more.
    pub(super) fn start_program(&mut self, tick: TickId) -> bool {
        let Some(sandbox) = self.sandboxes.get_mut(&tick) else {
            return false;
        };
        if sandbox.ending {
            return false;
        }
        sandbox.running = true;
        let agent = sandbox.agent;
        let judged = self.oracle.program(agent, tick);
        self.judge(judged);
        let runs = match self.chance.happens(self.scene.long) {
            true => self.chance.between(30_000, 90_000),
            false if self.chance.happens(0.3) => self.chance.between(5_000, 20_000),
            false => self.chance.between(200, 5_000),
        };
        self.schedule.after(runs, Event::Ended(tick));
        true
    }

    /// The worker lives, and says so to all its sandboxes.
    pub(super) fn heartbeat(&mut self, worker: usize) {
        let (life, now) = (self.workers[worker].life, self.now());
        let ticks: Vec<TickId> = self.workers[worker]
            .jobs
            .values()
            .filter_map(|job| job.sandbox)
            .collect();
        for tick in ticks {
            if let Some(sandbox) = self.sandboxes.get_mut(&tick)
                && sandbox.life == life
            {
                sandbox.last_heartbeat = now;
            }
        }
    }

    /// The process that held the connection is gone: init ends at once.
    pub(super) fn let_go(&mut self, worker: usize) {
        let ticks: Vec<TickId> = self.workers[worker]
            .jobs
            .values()
            .filter_map(|job| job.sandbox)
            .collect();
        for tick in ticks {
            self.kill_sandbox(tick, ENDING);
        }
    }

    pub(super) fn init_looks(&mut self, tick: TickId) {
        let now = self.now();
        let Some(sandbox) = self.sandboxes.get(&tick) else {
            return;
        };
        let until = sandbox.last_heartbeat + SILENCE;
        match (sandbox.ending, until > now) {
            (true, _) => self.sandbox_is_gone(tick),
            (false, true) => self.schedule.after(until - now, Event::Init(tick)),
            (false, false) => self.kill_sandbox(tick, KILLING),
        }
    }

    fn kill_sandbox(&mut self, tick: TickId, at_most: Ms) {
        let takes = self.chance.between(1, at_most);
        if let Some(sandbox) = self.sandboxes.get_mut(&tick)
            && !sandbox.ending
        {
            sandbox.ending = true;
            self.schedule.after(takes, Event::Init(tick));
        }
    }

    fn sandbox_is_gone(&mut self, tick: TickId) {
        let Some(sandbox) = self.sandboxes.remove(&tick) else {
            return;
        };
        self.oracle.program_over(sandbox.agent, tick);
        self.tell_trace(|| format!("w{} sandbox of {} is dead", sandbox.worker, tick.short()));
        self.sandbox_died(sandbox.worker, sandbox.life, sandbox.job);
    }

    /// The program ends by itself.
    pub(super) fn program_ends(&mut self, tick: TickId) {
        let Some(sandbox) = self.sandboxes.get(&tick) else {
            return;
        };
        if sandbox.ending {
            return;
        }
        let (worker, life, job) = (sandbox.worker, sandbox.life, sandbox.job);
        self.oracle.program_over(sandbox.agent, tick);
        self.program_ended(worker, life, job);
    }

    /// The worker has removed it, and the proof that nothing runs in it.
    pub(super) fn remove_sandbox(&mut self, tick: TickId) {
        if let Some(sandbox) = self.sandboxes.remove(&tick) {
            self.oracle.program_over(sandbox.agent, tick);
        }
    }
}
