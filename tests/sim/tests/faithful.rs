//! The simulated Redis answers what a real one does, to any run of the queue's calls.

use std::time::Duration;

use mayfly_domain::AgentId;
use mayfly_orchestrator::{
    queue::{
        Length, Offer, Rest, Room, Work,
        redis::{
            SOURCE, keys,
            speech::{self, Call, Speech},
        },
    },
    worker::Identity,
};
use mayfly_sim::{
    Chance,
    shared::{Ring, Shared},
};
use mayfly_tests::redis_server::RedisServer;
use redis::{Client, Connection, Script, Value};

const LANES: u64 = 12;
const CALLS: u64 = 1500;

struct Both {
    real: Connection,
    script: Script,
    simulated: Shared,
}

impl Both {
    /// What both answer; milliseconds until something is due may differ by what a call takes.
    fn call(&mut self, call: &Call) -> Value {
        let mut invocation = self.script.prepare_invoke();
        for key in keys("test") {
            invocation.key(key);
        }
        for argument in call {
            invocation.arg(argument);
        }
        let (seconds, micros): (i64, i64) = redis::cmd("TIME").query(&mut self.real).unwrap();
        self.simulated.set(seconds * 1000 + micros / 1000);
        let simulated = self.simulated.call(call);
        let real: Value = invocation.invoke(&mut self.real).unwrap();
        match (&real, &simulated) {
            (Value::Int(real), Value::Int(simulated)) if call[0] == "take" => {
                assert!(
                    (real - simulated).abs() < 1500,
                    "{call:?}: {real} {simulated}"
                );
            }
            _ => assert_eq!(sorted(real), sorted(simulated.clone()), "{call:?}"),
        }
        simulated
    }
}

/// Members of a set have no order.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(mut all) => {
            all.sort_by_key(|one| format!("{one:?}"));
            Value::Array(all)
        }
        other => other,
    }
}

fn offer(chance: &mut Chance, lanes: &[AgentId]) -> Offer {
    let user = chance.below(4);
    Offer {
        work: Work {
            lane: lanes[chance.below(LANES) as usize],
            user: format!("u{user}"),
            profile: format!("p{}", user % 2),
            length: if user == 3 {
                Length::Short
            } else {
                Length::Long
            },
        },
        delay: Duration::from_secs(if chance.happens(0.2) { 3600 } else { 0 }),
    }
}

fn room(chance: &mut Chance) -> Room {
    let mut room = Room {
        long: chance.happens(0.7),
        ..Room::for_all()
    };
    if chance.happens(0.4) {
        room.per_user = Some(2);
        room.per_profile.insert("p0".to_owned(), 3);
    }
    room
}

#[test]
fn the_simulated_redis_answers_as_a_real_one() {
    let server = RedisServer::start(&[]);
    let mut both = Both {
        real: Client::open(server.url())
            .unwrap()
            .get_connection()
            .unwrap(),
        script: Script::new(SOURCE),
        simulated: Shared::new("test"),
    };
    let mut chance = Chance::new(7);
    let lanes: Vec<AgentId> = (0..LANES).map(|_| AgentId::new()).collect();
    let identity = |id: u64, epoch: i64| Identity {
        id: format!("w{id}"),
        epoch,
    };
    let mut workers: Vec<(i64, Speech, Vec<AgentId>)> = (0..3)
        .map(|id| (1, Speech::new(identity(id, 1)), Vec::new()))
        .collect();
    let (mut taken, mut buried, mut turns) = (0, 0, 0);
    for _ in 0..CALLS {
        let at = chance.below(3) as usize;
        match chance.below(12) {
            0..4 => {
                let offers: Vec<Offer> = (0..chance.between(1, 3))
                    .map(|_| offer(&mut chance, &lanes))
                    .collect();
                for call in Speech::offer(&offers) {
                    both.call(&call);
                }
            }
            4..7 => {
                let room = room(&mut chance);
                let answer = both.call(&workers[at].1.take(&room));
                // Sometimes nobody has heard it.
                if chance.happens(0.8)
                    && let Ok(Ok(work)) = workers[at].1.taken(answer)
                {
                    taken += 1;
                    workers[at].2.push(work.lane);
                }
            }
            7..9 => {
                let again = chance.happens(0.5).then(|| offer(&mut chance, &lanes));
                let (_, speech, held) = &mut workers[at];
                let Some(lane) = held.pop() else { continue };
                let again = again.map(|mut again| {
                    again.work.lane = lane;
                    again
                });
                if let Some(call) = speech.done(lane, again.as_ref()) {
                    both.call(&call);
                    both.call(&call);
                }
            }
            9 => {
                both.call(&workers[at].1.beat());
                // None ends between the two, whose clocks are not read at one moment.
                let mut turn = speech::turn();
                turn[1..].fill("600000".to_owned());
                turns += i64::from(both.call(&turn) == Value::Int(1));
                if chance.happens(0.3) {
                    let mut rest = speech::rest(Rest::Round);
                    rest[1] = "0".to_owned();
                    both.call(&rest);
                }
                if chance.happens(0.3) {
                    both.call(&workers[at].1.leave());
                }
            }
            10 => {
                let lane = lanes[chance.below(LANES) as usize];
                both.call(&speech::place(lane));
                let rung = both.simulated.rung(Ring::Long);
                let popped: Value = redis::cmd("LPOP")
                    .arg(&keys("test")[12])
                    .query(&mut both.real)
                    .unwrap();
                assert_eq!(rung, popped != Value::Nil);
            }
            _ => {
                // A new start finds what the old one held; one or two deaths are enough here.
                let (epoch, speech, held) = &mut workers[at];
                // In which order it comes upon several is left to it.
                for lane in held.drain(1.min(held.len())..) {
                    both.call(&speech.done(lane, None).expect("it was taken"));
                }
                both.call(&speech.leave());
                *epoch += 1;
                *speech = Speech::new(identity(at as u64, *epoch));
                held.clear();
                let mut arrive = speech.arrive();
                arrive[3] = chance.between(1, 2).to_string();
                both.call(&arrive);
                let Value::Array(dead) = both.call(&speech::dead()) else {
                    panic!("a list");
                };
                buried += dead.len();
                if chance.happens(0.5) {
                    for lane in &lanes {
                        both.call(&speech::forgive(*lane));
                    }
                }
            }
        }
    }
    assert!(
        taken > 100 && buried > 5 && turns > 5,
        "{taken} {buried} {turns}"
    );
    for lane in lanes {
        both.call(&speech::place(lane));
    }
}
