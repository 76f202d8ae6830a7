//! The rule of who is next is written twice, in Rust and in Lua: any run of calls has the same answers.

use std::{collections::BTreeMap, time::Duration};

use mayfly_domain::AgentId;
use mayfly_orchestrator::queue::{Length, Local, Offer, Queue, Room, Work};
use mayfly_tests::{full, redis_server::RedisServer};
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use tokio::{runtime::Runtime, time::timeout};

use super::{NOTHING, on};

const LANES: usize = 12;

#[derive(Debug, Clone)]
enum Call {
    Offer(usize, usize, bool),
    Take { long: bool, limits: bool },
    Done { which: usize, again: Option<bool> },
    Place(usize),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = prop_oneof![
        4 => (0..LANES, 0..4usize, prop::bool::weighted(0.2)).prop_map(|(lane, user, later)| Call::Offer(lane, user, later)),
        3 => (prop::bool::weighted(0.7), any::<bool>()).prop_map(|(long, limits)| Call::Take { long, limits }),
        2 => (0..LANES, prop::option::of(prop::bool::weighted(0.3))).prop_map(|(which, again)| Call::Done { which, again }),
        1 => (0..LANES).prop_map(Call::Place),
    ];
    vec(call, 1..60)
}

/// What both are asked, and whether each has something to give at once.
async fn answers(
    queue: &impl Queue,
    patience: Duration,
    lanes: &[AgentId],
    calls: &[Call],
) -> Vec<String> {
    let mut taken: Vec<Work> = Vec::new();
    let mut answers = Vec::new();
    for call in calls {
        answers.push(match call {
            Call::Offer(lane, user, later) => {
                let offer = offer(lanes[*lane], *user, *later);
                format!("{:?}", queue.offer(&[offer]).await)
            }
            Call::Take { long, limits } => {
                let room = Room {
                    long: *long,
                    per_user: limits.then_some(1),
                    per_profile: match limits {
                        true => BTreeMap::from([("p0".to_owned(), 2)]),
                        false => BTreeMap::new(),
                    },
                };
                match timeout(patience, queue.take(&room)).await {
                    Ok(work) => {
                        let work = work.expect("it answers");
                        taken.push(work.clone());
                        format!("{work:?}")
                    }
                    Err(_) => "nothing".to_owned(),
                }
            }
            Call::Done { which, again } => {
                if taken.is_empty() {
                    continue;
                }
                let work = taken.remove(which % taken.len());
                let again = again.map(|later| offer(work.lane, *which % 4, later));
                format!("{:?}", queue.done(work.lane, again).await)
            }
            Call::Place(lane) => format!("{:?}", queue.place(lanes[*lane]).await),
        });
    }
    answers
}

fn offer(lane: AgentId, user: usize, later: bool) -> Offer {
    Offer {
        work: Work {
            lane,
            user: format!("u{user}"),
            profile: format!("p{}", user % 2),
            length: if user == 3 {
                Length::Short
            } else {
                Length::Long
            },
        },
        delay: Duration::from_secs(if later { 3600 } else { 0 }),
    }
}

#[test]
fn both_queues_give_the_same_answers_to_any_run_of_calls() {
    let runtime = Runtime::new().unwrap();
    let server = RedisServer::start(&[]);
    let cases = if full() { 200 } else { 15 };
    let mut runner = TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let done = runner.run(&calls(), |calls| {
        let lanes: Vec<AgentId> = (0..LANES).map(|_| AgentId::new()).collect();
        server.command(&["FLUSHALL"]);
        let (local, shared) = runtime.block_on(async {
            // What is there comes at the first look.
            let at_once = Duration::from_millis(1);
            let local = answers(&Local::default(), at_once, &lanes, &calls).await;
            let shared = answers(&on(&server, "w", 1), NOTHING, &lanes, &calls).await;
            (local, shared)
        });
        prop_assert_eq!(local, shared);
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
}
