//! Messages that come without an end, each agent's numbered.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use mayfly_tests::http;
use serde_json::json;

use crate::fleet::{Fleet, Truth};

/// Unsettled messages at most.
const AHEAD: usize = 24;
/// Longest until somebody accepts a message.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longest wait for an answer; whoever waited asks again.
const ANSWER: Duration = Duration::from_secs(10);

pub(crate) struct Load {
    agents: Vec<String>,
    doors: Vec<PathBuf>,
    truth: Truth,
    posted: usize,
}

impl Load {
    pub(crate) fn new(fleet: &Fleet, agents: usize) -> Load {
        Load {
            agents: (0..agents).map(|_| fleet.workers[0].agent()).collect(),
            doors: fleet
                .workers
                .iter()
                .map(|worker| worker.data_dir().to_owned())
                .collect(),
            truth: fleet.truth(),
            posted: 0,
        }
    }

    pub(crate) fn posted(&self) -> usize {
        self.posted
    }

    /// The agents with how many messages each got.
    pub(crate) fn of_agents(&self) -> impl Iterator<Item = (&str, usize)> {
        let (all, agents) = (self.posted, self.agents.len());
        let share = move |n: usize| all / agents + usize::from(n < all % agents);
        self.agents
            .iter()
            .enumerate()
            .map(move |(n, agent)| (agent.as_str(), share(n)))
    }

    /// Posts until it is over, and so many at least.
    pub(crate) fn post_until(&mut self, over: &AtomicBool, least: usize) {
        while !over.load(Ordering::Relaxed) || self.posted < least {
            let full = self.posted >= self.truth.settled() + AHEAD;
            // What comes beyond the least keeps the stream alive until the last blow.
            let enough = least > 0 && self.posted >= least && !full && over.load(Ordering::Relaxed);
            if full || enough {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            self.post();
        }
    }

    /// The next one, as a client posts that hears no answer: again, with the same key.
    fn post(&mut self) {
        let agent = &self.agents[self.posted % self.agents.len()];
        let number = self.posted / self.agents.len() + 1;
        let body = json!({"text": format!("echo {number} >>log; sleep 0.05; cat log")}).to_string();
        let head = format!(
            "POST /v1/agents/{agent}/messages\ncontent-type: application/json\nidempotency-key: m-{}",
            self.posted
        );
        let request = http::request(&head, body.as_bytes());
        let deadline = Instant::now() + PATIENCE;
        for attempt in self.posted.. {
            let door = &self.doors[attempt % self.doors.len()];
            let (status, said) = answer(door, &request);
            match status {
                200..300 => break,
                // Nobody there, or not able to store it now.
                0 | 503 => assert!(
                    Instant::now() < deadline,
                    "message {} is not accepted",
                    self.posted
                ),
                other => panic!("message {}: {other} {said}", self.posted),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.posted += 1;
    }
}

/// 0 where there was none.
fn answer(door: &Path, request: &[u8]) -> (u16, String) {
    let asked = || -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(door.join("mayfly.sock"))?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(request)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    };
    asked().map_or((0, String::new()), |bytes| {
        let answer = http::read(bytes.as_slice());
        (answer.status, answer.body)
    })
}
