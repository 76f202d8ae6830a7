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

use crate::{fleet::Fleet, kind::Kind, truth::Truth, witness::SAYS};

/// Unsettled messages at most, where half as many as there are agents are not more.
const AHEAD: usize = 24;
/// Between two looks at the database for how many are settled, each of which is a process.
const LOOK: Duration = Duration::from_millis(100);
/// One of so many messages takes as long as its kind's programs can.
const LASTS: usize = 40;
/// Longest until somebody accepts a message.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longest wait for an answer; whoever waited asks again.
const ANSWER: Duration = Duration::from_secs(10);

pub(crate) struct Load {
    kind: Kind,
    agents: Vec<String>,
    doors: Vec<PathBuf>,
    truth: Truth,
    posted: usize,
    /// When it was last looked.
    settled: usize,
}

impl Load {
    pub(crate) fn new(fleet: &Fleet, agents: usize) -> Load {
        let doors: Vec<PathBuf> = fleet
            .workers
            .iter()
            .map(|worker| worker.data_dir().to_owned())
            .collect();
        Load {
            kind: fleet.kind,
            agents: (0..agents).map(|_| agent(&doors[0])).collect(),
            doors,
            truth: fleet.truth(),
            posted: 0,
            settled: 0,
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

    /// Posts until it is over, and so many at least: the stream lives until the last blow.
    pub(crate) fn post_until(&mut self, over: &AtomicBool, least: usize) {
        while !over.load(Ordering::Relaxed) || self.posted < least {
            let ahead = AHEAD.max(self.agents.len() / 2);
            if self.posted >= self.settled + ahead {
                self.settled = self.truth.settled();
            }
            match self.posted < self.settled + ahead {
                true => self.post(),
                false => std::thread::sleep(LOOK),
            }
        }
    }

    /// The next one, as a client posts that hears no answer: again, with the same key.
    fn post(&mut self) {
        let agent = &self.agents[self.posted % self.agents.len()];
        let number = self.posted / self.agents.len() + 1;
        let lasts = match self.posted % LASTS {
            n if n + 1 == LASTS => self.kind.lasting(),
            _ => "0.05",
        };
        let text = format!("{SAYS}; echo {number} >>log; sleep {lasts}; {SAYS}; cat log");
        let body = json!({"text": text}).to_string();
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

/// A new one of the `shell` profile.
fn agent(door: &Path) -> String {
    let request = http::request("POST /v1/agents\ncontent-type: application/json", b"{}");
    let made = http::on_socket(door, &request);
    let id = made.json()["id"].as_str().map(str::to_owned);
    id.unwrap_or_else(|| panic!("no agent: {}", made.body))
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
