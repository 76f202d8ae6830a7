//! What breaks, and when it is whole again.

use super::{Event, Ms, Server, World};

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// A worker is killed.
    Kill,
    /// A worker is stopped, and goes on later.
    Pause,
    /// A worker is cut off from a server.
    Cut,
    /// The clock of a host is set.
    Jump,
    /// The queue's server is emptied, or away, or both.
    Queue,
    /// The database is away.
    Database,
}

impl World<'_> {
    fn apart(&self, fault: Fault) -> f64 {
        let (scene, workers) = (self.scene, self.scene.workers as f64);
        1000.0
            * match fault {
                Fault::Kill => scene.kill / workers,
                Fault::Pause => scene.pause / workers,
                Fault::Cut => scene.cut / workers,
                Fault::Jump => scene.jump / workers,
                Fault::Queue => scene.redis,
                Fault::Database => scene.database,
            }
    }

    pub(super) fn begin_breaking(&mut self) {
        for fault in [
            Fault::Kill,
            Fault::Pause,
            Fault::Cut,
            Fault::Jump,
            Fault::Queue,
            Fault::Database,
        ] {
            self.plan(fault);
        }
    }

    fn plan(&mut self, fault: Fault) {
        let apart = self.apart(fault);
        let next = self.chance.until_next(apart);
        self.schedule.after(next, Event::Break(fault));
    }

    pub(super) fn break_something(&mut self, fault: Fault) {
        if self.mended {
            return;
        }
        self.plan(fault);
        let worker = self.chance.below(self.workers.len() as u64) as usize;
        match fault {
            Fault::Kill if self.is_up(worker) => {
                self.figures.count("kills");
                self.crash(worker, "killed");
            }
            Fault::Pause if self.is_up(worker) && self.workers[worker].paused.is_none() => {
                self.pause(worker)
            }
            Fault::Kill | Fault::Pause => {}
            Fault::Cut => self.cut(worker),
            Fault::Jump if self.scene.right => {}
            Fault::Jump => self.jump(worker),
            Fault::Queue => {
                if self.chance.happens(0.5) {
                    self.figures.count("queue emptied");
                    self.tell_trace(|| "the queue is emptied".to_owned());
                    self.shared.empty();
                }
                if self.chance.happens(0.5) {
                    let long = self.chance.between(200, 20_000);
                    self.take_away(Server::Queue, long);
                }
            }
            Fault::Database => {
                let long = self.chance.between(200, 45_000);
                self.take_away(Server::Database, long);
            }
        }
    }

    fn pause(&mut self, worker: usize) {
        self.outages += 1;
        let number = self.outages;
        self.workers[worker].paused = Some(number);
        let long = match self.chance.below(3) {
            0 => self.chance.between(100, 10_000),
            1 => self.chance.between(10_000, 45_000),
            _ => self.chance.between(28_000, 120_000),
        };
        self.figures.count("pauses");
        self.tell_trace(|| format!("w{worker} is stopped for {long} ms"));
        self.schedule.after(long, Event::Resume(worker, number));
    }

    pub(super) fn resume(&mut self, worker: usize, pause: u64) {
        let process = &mut self.workers[worker];
        if process.paused != Some(pause) {
            return;
        }
        process.paused = None;
        let held = std::mem::take(&mut process.held);
        self.tell_trace(|| format!("w{worker} goes on"));
        for event in held {
            // All that waits is ready at once, in no order that could be relied on.
            let wait = self.chance.below(4);
            self.schedule.after(wait, event);
        }
    }

    fn cut(&mut self, worker: usize) {
        let long = self.outage();
        let both = self.chance.below(3);
        for server in [Server::Database, Server::Queue] {
            if both != 2 && both != server as u64 {
                continue;
            }
            self.outages += 1;
            let number = self.outages;
            self.workers[worker].cut[server as usize] = Some(number);
            self.figures.count("cuts");
            self.tell_trace(|| format!("w{worker} is cut off from the {server:?} for {long} ms"));
            self.schedule
                .after(long, Event::Reach(worker, server, number));
        }
    }

    fn outage(&mut self) -> Ms {
        match self.chance.below(3) {
            0 => self.chance.between(100, 5_000),
            1 => self.chance.between(5_000, 35_000),
            _ => self.chance.between(28_000, 90_000),
        }
    }

    pub(super) fn reach(&mut self, worker: usize, server: Server, cut: u64) {
        self.workers[worker].cut[server as usize].take_if(|known| *known == cut);
    }

    fn take_away(&mut self, server: Server, long: Ms) {
        self.outages += 1;
        let number = self.outages;
        self.away[server as usize] = Some(number);
        self.figures.count(match server {
            Server::Database => "database away",
            Server::Queue => "queue away",
        });
        self.tell_trace(|| format!("the {server:?} is away for {long} ms"));
        self.schedule.after(long, Event::Back(server, number));
    }

    pub(super) fn back(&mut self, server: Server, outage: u64) {
        self.away[server as usize].take_if(|known| *known == outage);
    }

    fn jump(&mut self, worker: usize) {
        self.figures.count("clocks set");
        // One of the bots' or the queue's now and then.
        match self.chance.below(10) {
            0 => self.shared_clock.jump(&mut self.chance),
            1 => {
                let bot = worker % self.bots.len();
                self.bots[bot].clock.jump(&mut self.chance);
            }
            _ => self.workers[worker].clock.jump(&mut self.chance),
        }
        self.tell_trace(|| format!("w{worker}, or a server: its clock is set"));
    }

    /// From now on nothing breaks, and what is broken is whole.
    pub(super) fn mend(&mut self) {
        self.mended = true;
        self.tell_trace(|| "all is mended".to_owned());
        self.away = [None; 2];
        for worker in 0..self.workers.len() {
            self.workers[worker].cut = [None; 2];
            if let Some(pause) = self.workers[worker].paused {
                self.resume(worker, pause);
            }
        }
    }
}
