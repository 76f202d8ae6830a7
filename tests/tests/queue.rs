//! One suite for both queues: in the process, and on a real Redis. What only Redis can do is in
//! `queue/redis.rs`, step by step equality of both in `queue/model.rs`.

#[path = "queue/model.rs"]
mod model;
#[path = "queue/redis.rs"]
mod redis;

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use mayfly_domain::AgentId;
use mayfly_orchestrator::{
    queue::{Length, Local, Offer, Queue, ROUND, Redis, Rest, Room, TURN, Work},
    worker::Identity,
};
use mayfly_tests::redis_server::RedisServer;
use tokio::time::timeout;

/// Far above what any call takes here.
const PATIENCE: Duration = Duration::from_secs(10);
/// Nothing comes in this time.
const NOTHING: Duration = Duration::from_millis(150);

/// Runs a scenario on both.
macro_rules! on_both {
    ($($name:ident)*) => {
        mod local {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&super::Local::default()).await;
            })*
        }
        mod shared {
            $(#[tokio::test]
            async fn $name() {
                let server = super::RedisServer::start(&[]);
                super::$name(&super::on(&server, "w", 1)).await;
            })*
        }
    };
}

on_both! {
    lanes_are_served_in_turn_and_one_at_a_time
    users_take_turns_however_many_lanes_they_have
    a_lane_that_was_served_goes_behind_the_users_others
    a_delay_holds_and_an_offer_while_taken_brings_the_lane_back
    an_earlier_offer_moves_a_later_one
    limits_hold_over_users_and_profiles
    without_room_for_long_ones_short_ones_are_served
    whoever_waits_is_woken
    a_wait_that_was_given_up_loses_nothing
    lanes_know_their_place
    nothing_breaks_where_a_lane_is_given_back_twice_or_by_nobody
    one_at_a_time_has_the_turn_to_offer_all_lanes
}

fn on(server: &RedisServer, worker: &str, epoch: i64) -> Redis {
    let identity = Identity {
        id: worker.to_owned(),
        epoch,
    };
    Redis::open(&server.url(), "test", identity).expect("a good address")
}

fn work(user: &str) -> Work {
    Work {
        lane: AgentId::new(),
        user: format!("local/{user}"),
        profile: "shell".to_owned(),
        length: Length::Long,
    }
}

fn now(work: &Work) -> Offer {
    after(work, Duration::ZERO)
}

fn after(work: &Work, delay: Duration) -> Offer {
    Offer {
        work: work.clone(),
        delay,
    }
}

async fn take(queue: &impl Queue) -> AgentId {
    take_in(queue, &Room::for_all()).await.lane
}

async fn take_in(queue: &impl Queue, room: &Room) -> Work {
    let taken = timeout(PATIENCE, queue.take(room)).await;
    taken.expect("a lane is there").expect("the queue answers")
}

async fn nothing_is_there(queue: &impl Queue, room: &Room) {
    let taken = timeout(NOTHING, queue.take(room)).await;
    assert!(taken.is_err(), "{taken:?}");
}

/// How long it takes from now on until somebody has the turn to offer all lanes.
async fn until_turn(queue: &impl Queue) -> Duration {
    let began = Instant::now();
    while !queue.turn().await.unwrap() {
        assert!(began.elapsed() < PATIENCE, "nobody gets the turn");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    began.elapsed()
}

async fn lanes_are_served_in_turn_and_one_at_a_time(queue: &impl Queue) {
    let (a, b) = (work("ada"), work("bob"));
    queue.offer(&[now(&a), now(&a), now(&b)]).await.unwrap();
    assert_eq!(take(queue).await, a.lane);
    queue.offer(&[now(&a)]).await.unwrap();
    assert_eq!(take(queue).await, b.lane, "a is taken");
    nothing_is_there(queue, &Room::for_all()).await;
    queue.done(a.lane, None).await.unwrap();
    assert_eq!(take(queue).await, a.lane, "a was offered while taken");
    queue.done(a.lane, None).await.unwrap();
    queue.done(b.lane, None).await.unwrap();
    nothing_is_there(queue, &Room::for_all()).await;
}

async fn users_take_turns_however_many_lanes_they_have(queue: &impl Queue) {
    let many: Vec<Work> = (0..20).map(|_| work("ada")).collect();
    let offers: Vec<Offer> = many.iter().map(now).collect();
    queue.offer(&offers).await.unwrap();
    for lane in &many[..3] {
        assert_eq!(take(queue).await, lane.lane);
    }
    let (bob, eve) = ([work("bob"), work("bob")], work("eve"));
    queue
        .offer(&[now(&bob[0]), now(&bob[1]), now(&eve)])
        .await
        .unwrap();
    let mut next = Vec::new();
    for _ in 0..6 {
        next.push(take(queue).await);
    }
    let place = |work: &Work| next.iter().position(|lane| *lane == work.lane);
    assert!(
        place(&bob[0]).expect("bob's first is among them") < 3,
        "{next:?}"
    );
    assert!(place(&eve).expect("eve's is among them") < 3, "{next:?}");
    assert!(place(&bob[1]).is_some_and(|place| place >= 2), "{next:?}");
    let of_ada = next
        .iter()
        .filter(|lane| many.iter().any(|work| work.lane == **lane));
    assert!(of_ada.count() >= 2, "ada goes on: {next:?}");
}

async fn a_lane_that_was_served_goes_behind_the_users_others(queue: &impl Queue) {
    let lanes = [work("ada"), work("ada"), work("ada")];
    queue.offer(&lanes.each_ref().map(now)).await.unwrap();
    for round in 0..3 {
        for lane in &lanes {
            assert_eq!(take(queue).await, lane.lane, "round {round}");
            queue.done(lane.lane, Some(now(lane))).await.unwrap();
        }
    }
}

async fn a_delay_holds_and_an_offer_while_taken_brings_the_lane_back(queue: &impl Queue) {
    let lane = work("ada");
    queue.offer(&[now(&lane)]).await.unwrap();
    assert_eq!(take(queue).await, lane.lane);
    queue.offer(&[now(&lane)]).await.unwrap();
    let pause = Duration::from_millis(700);
    let began = Instant::now();
    queue
        .done(lane.lane, Some(after(&lane, pause)))
        .await
        .unwrap();
    assert_eq!(take(queue).await, lane.lane);
    assert!(
        began.elapsed() >= pause,
        "{:?}: the worker's delay holds",
        began.elapsed()
    );
    queue.offer(&[after(&lane, pause)]).await.unwrap();
    queue.done(lane.lane, None).await.unwrap();
    assert_eq!(take(queue).await, lane.lane);
    assert!(
        began.elapsed() >= 2 * pause,
        "{:?}: so does the offer's",
        began.elapsed()
    );
}

async fn an_earlier_offer_moves_a_later_one(queue: &impl Queue) {
    let (a, b) = (work("ada"), work("bob"));
    let hour = Duration::from_secs(3600);
    queue
        .offer(&[after(&a, hour), after(&b, hour)])
        .await
        .unwrap();
    nothing_is_there(queue, &Room::for_all()).await;
    queue.offer(&[after(&a, 2 * hour), now(&b)]).await.unwrap();
    assert_eq!(take(queue).await, b.lane);
    nothing_is_there(queue, &Room::for_all()).await;
}

async fn limits_hold_over_users_and_profiles(queue: &impl Queue) {
    let ada = [work("ada"), work("ada"), work("ada")];
    let mut slow = [work("bob"), work("eve")];
    slow.iter_mut()
        .for_each(|work| work.profile = "slow".into());
    let offers: Vec<Offer> = ada.iter().chain(&slow).map(now).collect();
    queue.offer(&offers).await.unwrap();
    let room = Room {
        long: true,
        per_user: Some(2),
        per_profile: BTreeMap::from([("slow".to_owned(), 1)]),
    };
    let mut taken: HashMap<String, usize> = HashMap::new();
    let mut slow_one = None;
    for _ in 0..3 {
        let work = take_in(queue, &room).await;
        *taken.entry(work.user.clone()).or_default() += 1;
        if work.profile == "slow" {
            slow_one = Some(work);
        }
    }
    assert_eq!(taken.get("local/ada"), Some(&2), "{taken:?}");
    let slow_one = slow_one.expect("one of the slow ones runs");
    nothing_is_there(queue, &room).await;
    queue.done(slow_one.lane, None).await.unwrap();
    let next = take_in(queue, &room).await;
    assert_eq!(next.profile, "slow");
    assert_ne!(next.lane, slow_one.lane);
    queue.done(ada[0].lane, None).await.unwrap();
    assert_eq!(take_in(queue, &room).await.lane, ada[2].lane);
}

async fn without_room_for_long_ones_short_ones_are_served(queue: &impl Queue) {
    let long = work("ada");
    let mut short = work("bob");
    short.length = Length::Short;
    queue.offer(&[now(&long)]).await.unwrap();
    let room = Room {
        long: false,
        ..Room::for_all()
    };
    nothing_is_there(queue, &room).await;
    queue.offer(&[now(&short)]).await.unwrap();
    assert_eq!(take_in(queue, &room).await, short);
    nothing_is_there(queue, &room).await;
    assert_eq!(take(queue).await, long.lane);
}

async fn whoever_waits_is_woken(queue: &impl Queue) {
    let lane = work("ada");
    let room = Room::for_all();
    let waiting = queue.take(&room);
    let offering = async {
        tokio::time::sleep(NOTHING).await;
        let began = Instant::now();
        queue.offer(&[now(&lane)]).await.unwrap();
        began
    };
    let (taken, began) = timeout(PATIENCE, async { tokio::join!(waiting, offering) })
        .await
        .expect("it is woken");
    assert_eq!(taken.unwrap(), lane);
    // The look without a ring comes after a second.
    assert!(
        began.elapsed() < Duration::from_millis(750),
        "{:?}",
        began.elapsed()
    );
}

async fn a_wait_that_was_given_up_loses_nothing(queue: &impl Queue) {
    let lanes: Vec<Work> = (0..50).map(|n| work(&format!("user {n}"))).collect();
    let mut taken = Vec::new();
    let room = Room::for_all();
    for (number, lane) in lanes.iter().enumerate() {
        queue.offer(&[now(lane)]).await.unwrap();
        // Given up anywhere between the question and the answer.
        let patience = Duration::from_micros(20 * number as u64);
        if let Ok(work) = timeout(patience, queue.take(&room)).await {
            taken.push(work.unwrap().lane);
        }
    }
    while taken.len() < lanes.len() {
        taken.push(take(queue).await);
    }
    taken.sort_unstable();
    let mut all: Vec<AgentId> = lanes.iter().map(|work| work.lane).collect();
    all.sort_unstable();
    assert_eq!(taken, all);
}

async fn lanes_know_their_place(queue: &impl Queue) {
    let lanes = [work("ada"), work("bob"), work("eve")];
    queue.offer(&lanes.each_ref().map(now)).await.unwrap();
    for (place, lane) in lanes.iter().enumerate() {
        assert_eq!(queue.place(lane.lane).await.unwrap(), Some(place));
    }
    assert_eq!(take(queue).await, lanes[0].lane);
    assert_eq!(queue.place(lanes[0].lane).await.unwrap(), None);
    assert_eq!(queue.place(lanes[2].lane).await.unwrap(), Some(1));
    assert_eq!(queue.place(AgentId::new()).await.unwrap(), None);
}

async fn nothing_breaks_where_a_lane_is_given_back_twice_or_by_nobody(queue: &impl Queue) {
    let lane = work("ada");
    queue.done(lane.lane, Some(now(&lane))).await.unwrap();
    nothing_is_there(queue, &Room::for_all()).await;
    queue.offer(&[now(&lane)]).await.unwrap();
    queue.done(lane.lane, None).await.unwrap();
    assert_eq!(
        take(queue).await,
        lane.lane,
        "it stood, nobody had taken it"
    );
    queue.beat().await.unwrap();
    queue.done(lane.lane, None).await.unwrap();
    queue.done(lane.lane, Some(now(&lane))).await.unwrap();
    nothing_is_there(queue, &Room::for_all()).await;
    queue.forgive(lane.lane).await.unwrap();
    assert!(queue.dead().await.unwrap().is_empty());
    queue.leave().await.unwrap();
}

async fn one_at_a_time_has_the_turn_to_offer_all_lanes(queue: &impl Queue) {
    let about = Duration::from_millis(50);
    assert!(queue.turn().await.unwrap(), "nobody had it");
    let died = until_turn(queue).await;
    assert!(died >= TURN - about, "{died:?}: the first one has it");
    assert!(died < TURN + PATIENCE / 5, "{died:?}: it died");
    let began = Instant::now();
    while began.elapsed() < TURN + TURN / 4 {
        queue.rest(Rest::Turn).await.unwrap();
        assert!(!queue.turn().await.unwrap(), "who has it goes on");
        tokio::time::sleep(TURN / 8).await;
    }
    queue.rest(Rest::Round).await.unwrap();
    let round = until_turn(queue).await;
    assert!(round >= ROUND - about, "{round:?}: all were offered");
    assert!(round < ROUND + PATIENCE / 5, "{round:?}");
}
