//! People who write, and bots that accept it: a platform hands an event over until it is acknowledged.

use std::{sync::Arc, time::Duration};

use mayfly_domain::{AgentId, Arrival, AttachmentLimits, Author, NewMessage};
use mayfly_orchestrator::{
    db::accept::Acceptance, queue::Lanes, trouble::Trouble, worker::Identity,
};

use super::{Event, Server, World, database::died_inside, time::Clock};
use crate::{
    agents::{self, HOGS},
    remote::{Remote, Way},
};

/// A process that accepts. What is left of it after it died is nothing that matters, so it is there at once.
#[derive(Debug)]
pub(super) struct Bot {
    pub(super) clock: Clock,
    pub(super) way: Arc<Way>,
}

/// What somebody wrote.
#[derive(Debug, Clone)]
pub(super) struct Post {
    key: String,
    agent: u64,
    author: Author,
}

impl World<'_> {
    pub(super) fn write(&mut self) {
        if self.written >= self.scene.messages {
            return;
        }
        let all = self.scene.agents;
        let agent = match self.chance.happens(0.4) {
            // Some are talked to much.
            true => self.chance.below((all / 50).max(1)),
            false => self.chance.below(all),
        };
        let author = agents::person(agent);
        self.post(agent, author);
        let apart = self.scene.seconds as f64 * 1000.0 / self.scene.messages as f64;
        let next = self.chance.until_next(apart);
        self.schedule.after(next, Event::Write);
    }

    /// Somebody writes to many agents at once.
    pub(super) fn burst(&mut self, hog: usize) {
        let half = self.scene.workers as u64 * u64::from(self.scene.places) / 2;
        let lanes = half * HOGS[hog];
        // Agents that nobody else talks to much.
        let first = self.scene.agents / 50 + half * HOGS[..hog].iter().sum::<u64>();
        for number in first..first + lanes {
            self.post(number % self.scene.agents, agents::hog(hog));
        }
        self.figures.wants(hog, lanes);
    }

    fn post(&mut self, agent: u64, author: Author) {
        self.written += 1;
        let post = Post {
            key: format!("post{}", self.written),
            agent,
            author,
        };
        if self.chance.happens(0.02) {
            // Told twice, by two ways.
            self.hand_over(post.clone(), 5);
        }
        self.hand_over(post, 5);
    }

    fn hand_over(&mut self, post: Post, within: u64) {
        let bot = self.chance.below(self.bots.len() as u64) as usize;
        let wait = self.chance.between(1, within);
        self.schedule.after(wait, Event::Accept { bot, post });
    }

    pub(super) fn accept(&mut self, bot: usize, post: Post) {
        let now = self.now();
        if self.away[Server::Database as usize].is_some() {
            return self.hand_over(post, 5000);
        }
        let arrival = Arrival {
            thread: agents::thread(post.agent),
            key: post.key.clone(),
            raw: post.key.clone().into_bytes(),
            message: Some(NewMessage {
                text: post.key.clone(),
                author: post.author.clone(),
                sandbox: None,
                files: Vec::new(),
            }),
        };
        let inside = self.breaks(self.scene.inside).then_some("accept.inside");
        self.show_database();
        self.bots[bot].clock.show(now);
        let limits = AttachmentLimits::default();
        let asked = died_inside(inside, self.db.accept(&arrival, &limits));
        let Some(answer) = self.runtime.block_on(asked) else {
            self.tell_trace(|| format!("b{bot} dies while it stores {}", post.key));
            return self.hand_over(post, 5000);
        };
        let accepted = match answer {
            Ok(Acceptance::Accepted(accepted)) => accepted,
            other => {
                return self.break_(&format!("P1: {} is not accepted: {other:?}", post.key), &[]);
            }
        };
        let stored = self.runtime.block_on(self.db.message(accepted.message));
        let Ok(Some(stored)) = stored else {
            return self.break_("P1: what was accepted is not there", &[post.key]);
        };
        let said = (accepted.agent, accepted.message, accepted.new, stored.seq);
        let judged = self.oracle.accept(&post.key, &post.author.id, said, now);
        self.judge(judged);
        let new = accepted.new;
        self.tell_trace(|| {
            let seq = stored.seq;
            format!(
                "b{bot} accepts {} for agent {} at {seq}, new {new}",
                post.key, post.agent
            )
        });
        if self.breaks(self.scene.lost) {
            // Nobody heard it.
            return self.hand_over(post, 5000);
        }
        if !self.breaks(self.scene.inside) {
            let agent = accepted.agent;
            self.schedule.after(1, Event::Offer { bot, agent });
        }
    }

    pub(super) fn tell(&mut self, bot: usize, agent: AgentId) {
        if self.away[Server::Database as usize].is_some() {
            return;
        }
        let now = self.now();
        let Bot { clock, way } = &self.bots[bot];
        way.cut(self.away[Server::Queue as usize].is_some());
        let identity = Identity {
            id: format!("bot{bot}"),
            epoch: 1,
        };
        let remote = Arc::new(Remote::new(&self.shared, identity, way));
        clock.show(now);
        self.shared.set(self.shared_clock.wall(now));
        let lanes = Lanes::new(
            remote,
            self.db.clone(),
            self.profiles.clone(),
            Trouble::default(),
        );
        self.runtime.block_on(lanes.offer(agent, Duration::ZERO));
    }
}
