//! What happens to the shared queue when its workers die, its server does, or it answers badly.

use std::{
    collections::HashSet,
    io::{Read as _, Write as _},
    net::TcpListener,
    time::{Duration, Instant},
};

use mayfly_domain::AgentId;
use mayfly_orchestrator::{
    queue::{BEAT, Queue, QueueError, Redis, Rest, Room, redis::LEASE},
    worker::Identity,
};
use mayfly_tests::redis_server::{RedisCluster, RedisServer};
use rand::seq::IndexedRandom as _;

use super::{NOTHING, PATIENCE, nothing_is_there, now, on, take, take_in, work};

/// Two workers, one dies with a lane and one goes on: what the dead one held comes back, what the living
/// one holds does not, however long it takes.
#[tokio::test]
async fn qu_06_qu_08_a_dead_workers_lane_comes_back_and_a_living_ones_does_not() {
    let server = RedisServer::start(&[]);
    let (dead, living, next) = (
        on(&server, "dead", 1),
        on(&server, "living", 1),
        on(&server, "next", 1),
    );
    let (a, b) = (work("ada"), work("bob"));
    dead.offer(&[now(&a), now(&b)]).await.unwrap();
    let (lost, held) = (take(&dead).await, take(&living).await);
    let began = Instant::now();
    let beating = async {
        loop {
            living.beat().await.unwrap();
            tokio::time::sleep(BEAT).await;
        }
    };
    let room = Room::for_all();
    let taking = async {
        let back = tokio::time::timeout(LEASE + 2 * BEAT, next.take(&room)).await;
        let back = back.expect("the dead one is given up").unwrap();
        assert_eq!(back.lane, lost);
        assert!(
            began.elapsed() >= LEASE - Duration::from_millis(50),
            "{:?}",
            began.elapsed()
        );
        assert!(began.elapsed() < LEASE + 2 * BEAT, "{:?}", began.elapsed());
        nothing_is_there(&next, &room).await;
    };
    tokio::select! {
        () = taking => {}
        () = beating => {}
    }
    living.done(held, None).await.unwrap();
    // The dead one wakes up: what it says about the lane counts no more.
    dead.done(lost, Some(now(&a))).await.unwrap();
    nothing_is_there(&living, &room).await;
    next.done(lost, None).await.unwrap();
}

#[tokio::test]
async fn a_worker_that_starts_again_takes_back_what_its_earlier_start_held() {
    let server = RedisServer::start(&[]);
    let lanes = [work("ada"), work("bob"), work("eve")];
    let first = on(&server, "w", 1);
    let other = on(&server, "ww", 1);
    first.offer(&lanes.each_ref().map(now)).await.unwrap();
    let held = [take(&first).await, take(&first).await];
    let others = take(&other).await;
    let second = on(&server, "w", 2);
    let back = HashSet::from([take(&second).await, take(&second).await]);
    assert_eq!(back, HashSet::from(held));
    assert!(!back.contains(&others));
    nothing_is_there(&second, &Room::for_all()).await;
}

/// A lane that ends each worker before it can claim is put aside in the end, and its neighbours are not.
#[tokio::test]
async fn qu_03_a_lane_that_ends_every_worker_is_put_aside_and_its_neighbour_goes_on() {
    let server = RedisServer::start(&[]);
    let poison = work("ada");
    let watcher = on(&server, "watcher", 1);
    watcher.offer(&[now(&poison)]).await.unwrap();
    let key = |name: &str| format!("{{mayfly:test}}:{name}");
    let lane = poison.lane.to_string();
    let mut deaths = 0;
    take(&on(&server, "w", 1)).await;
    while watcher.dead().await.unwrap().is_empty() {
        // Its taker is given up at once, and the pause after it is over.
        server.command(&["ZADD", &key("taken"), "XX", "1", &lane]);
        server.command(&["HDEL", &key("meta"), "swept"]);
        let next = on(&server, &format!("w{deaths}"), 1);
        deaths += 1;
        assert!(
            deaths <= mayfly_orchestrator::queue::DEATHS,
            "never put aside"
        );
        let began = Instant::now();
        while watcher.dead().await.unwrap().is_empty() {
            assert!(began.elapsed() < PATIENCE, "it does not come back");
            let room = Room::for_all();
            if let Ok(taken) = tokio::time::timeout(NOTHING, next.take(&room)).await {
                assert_eq!(taken.unwrap().lane, poison.lane);
                break;
            }
            server.command(&["ZADD", &key("later"), "XX", "1", &lane]);
        }
    }
    assert_eq!(deaths, mayfly_orchestrator::queue::DEATHS);
    assert_eq!(watcher.dead().await.unwrap(), [poison.lane]);
    let neighbour = work("bob");
    watcher
        .offer(&[now(&poison), now(&neighbour)])
        .await
        .unwrap();
    assert_eq!(take(&watcher).await, neighbour.lane);
    nothing_is_there(&watcher, &Room::for_all()).await;
    watcher.forgive(poison.lane).await.unwrap();
    watcher.offer(&[now(&poison)]).await.unwrap();
    assert_eq!(take(&watcher).await, poison.lane);
}

/// One that dies before it can claim, and is started again at once each time, is counted too.
#[tokio::test]
async fn qu_03_a_worker_that_is_started_again_and_again_counts_as_deaths() {
    let server = RedisServer::start(&[]);
    let poison = work("ada");
    on(&server, "w", 1).offer(&[now(&poison)]).await.unwrap();
    let later = "{mayfly:test}:later";
    for epoch in 1..=i64::from(mayfly_orchestrator::queue::DEATHS) {
        let worker = on(&server, "w", epoch);
        worker.beat().await.unwrap();
        server.command(&["ZADD", later, "XX", "1", &poison.lane.to_string()]);
        assert_eq!(take(&worker).await, poison.lane);
    }
    let last = on(&server, "w", 100);
    assert_eq!(last.dead().await.unwrap(), [poison.lane]);
    assert!(last.forgive(poison.lane).await.unwrap());
    assert!(
        !last.forgive(poison.lane).await.unwrap(),
        "only one takes it back in"
    );
}

/// An offer does not shorten the pause after a death.
#[tokio::test]
async fn a_lane_with_deaths_comes_back_ever_later() {
    let server = RedisServer::start(&[]);
    let lane = work("ada");
    on(&server, "w", 1).offer(&[now(&lane)]).await.unwrap();
    for epoch in 1..=3 {
        let worker = on(&server, "w", epoch);
        worker.beat().await.unwrap();
        server.command(&[
            "ZADD",
            "{mayfly:test}:later",
            "XX",
            "1",
            &lane.lane.to_string(),
        ]);
        take(&worker).await;
    }
    let next = on(&server, "w", 4);
    next.offer(&[now(&lane)]).await.unwrap();
    nothing_is_there(&next, &Room::for_all()).await;
}

/// The server's clock was set back by two days in the middle of such a pause.
#[tokio::test]
async fn a_pause_after_deaths_does_not_outlast_a_clock_that_was_set_back() {
    let server = RedisServer::start(&[]);
    let lane = work("ada");
    on(&server, "w", 1).offer(&[now(&lane)]).await.unwrap();
    for epoch in 1..=2 {
        take(&on(&server, "w", epoch)).await;
    }
    let next = on(&server, "w", 3);
    next.beat().await.unwrap();
    next.offer(&[now(&lane)]).await.unwrap();
    nothing_is_there(&next, &Room::for_all()).await;
    let far = (mayfly_orchestrator::clock::unix_ms() + 2 * 24 * 3600 * 1000).to_string();
    let id = lane.lane.to_string();
    server.command(&["ZADD", "{mayfly:test}:later", "XX", &far, &id]);
    next.offer(&[now(&lane)]).await.unwrap();
    assert_eq!(take(&next).await, lane.lane);
}

/// A queue that was emptied is filled by whoever asks first, and by nobody's being through with what is lost again.
#[tokio::test]
async fn whoever_asks_an_emptied_queue_has_the_turn_to_offer_all_lanes() {
    let server = RedisServer::start(&[]);
    let (teller, next) = (on(&server, "teller", 1), on(&server, "next", 1));
    assert!(teller.turn().await.unwrap());
    assert!(!next.turn().await.unwrap());
    server.command(&["FLUSHALL"]);
    for rest in [Rest::Turn, Rest::Round] {
        teller.rest(rest).await.unwrap();
    }
    assert!(next.turn().await.unwrap(), "what was offered is lost");
    next.rest(Rest::Round).await.unwrap();
    server.command(&["FLUSHALL"]);
    assert!(next.turn().await.unwrap());
}

/// The server's clock was set back by two days in the middle of a turn.
#[tokio::test]
async fn a_turn_does_not_outlast_a_clock_that_was_set_back() {
    let server = RedisServer::start(&[]);
    let queue = on(&server, "w", 1);
    assert!(queue.turn().await.unwrap());
    let far = (mayfly_orchestrator::clock::unix_ms() + 2 * 24 * 3600 * 1000).to_string();
    server.command(&["HSET", "{mayfly:test}:meta", "round", &far]);
    assert!(queue.turn().await.unwrap());
    assert!(!queue.turn().await.unwrap());
}

/// Whoever is at a limit holds up nobody else, however many lanes of theirs stand in front; and what lost
/// its owner is not counted for ever.
#[tokio::test]
async fn limits_hold_up_nobody_else() {
    let server = RedisServer::start(&[]);
    let queue = on(&server, "w", 1);
    let room = Room {
        per_user: Some(1),
        ..Room::for_all()
    };
    let many: Vec<_> = (0..600).map(|_| work("ada")).collect();
    let offers: Vec<_> = many.iter().map(now).collect();
    queue.offer(&offers).await.unwrap();
    let held = take_in(&queue, &room).await;
    assert_eq!(held.user, "local/ada");
    for _ in 0..700 {
        let other = work("bob");
        queue.offer(&[now(&other)]).await.unwrap();
        assert_eq!(take_in(&queue, &room).await.lane, other.lane);
        queue.done(other.lane, None).await.unwrap();
    }
    nothing_is_there(&queue, &room).await;
    server.command(&["DEL", "{mayfly:test}:owner"]);
    queue.done(held.lane, None).await.unwrap();
    assert_eq!(take_in(&queue, &room).await.user, "local/ada");
}

/// Keys vanish in the middle of work, as where memory is short and Redis may throw keys away: what is
/// offered again is served, nothing fails and nothing stands twice.
#[tokio::test]
async fn whatever_keys_are_lost_what_is_offered_again_is_served() {
    let server = RedisServer::start(&[]);
    let queue = on(&server, "w", 1);
    let mut random = rand::rng();
    for round in 0..60 {
        let lanes: Vec<_> = (0..8).map(|n| work(&format!("user {}", n % 3))).collect();
        let offers: Vec<_> = lanes.iter().map(now).collect();
        queue.offer(&offers).await.unwrap();
        let held = [take(&queue).await, take(&queue).await];
        let keys = server.command(&["KEYS", "*"]);
        let keys: Vec<&str> = keys.lines().collect();
        for key in keys.choose_multiple(&mut random, 3) {
            server.command(&["DEL", key]);
        }
        for lane in held {
            queue.done(lane, None).await.unwrap();
        }
        let mut open: HashSet<AgentId> = lanes.iter().map(|lane| lane.lane).collect();
        held.iter().for_each(|lane| assert!(open.remove(lane)));
        let mut looks = 0;
        while !open.is_empty() {
            let again: Vec<_> = offers
                .iter()
                .filter(|offer| open.contains(&offer.work.lane))
                .cloned()
                .collect();
            queue.offer(&again).await.unwrap();
            let lane = take(&queue).await;
            open.remove(&lane);
            queue.done(lane, None).await.unwrap();
            looks += 1;
            assert!(looks < 40, "round {round}: still waiting: {open:?}");
        }
        server.command(&["FLUSHALL"]);
    }
}

/// Waits until the server tells this of its clients.
async fn until_told(server: &RedisServer, wanted: &str) {
    let began = Instant::now();
    loop {
        let told = server.command(&["INFO", "clients"]);
        if told.lines().any(|line| line.trim() == wanted) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{wanted}: {told}");
        tokio::time::sleep(NOTHING / 10).await;
    }
}

/// A server closes what was idle: the first call after that goes through all the same.
#[tokio::test]
async fn rc_05_a_connection_that_was_closed_while_idle_costs_no_call() {
    let server = RedisServer::start(&["--timeout", "1"]);
    let queue = on(&server, "w", 1);
    for _ in 0..2 {
        let (ready, later) = (work("ada"), work("ada"));
        queue.offer(&[now(&ready)]).await.expect("it is told");
        assert_eq!(take(&queue).await, ready.lane);
        queue.done(ready.lane, None).await.unwrap();
        // Whoever waits has a connection of its own, which is idle while there is no place.
        let offering = async {
            until_told(&server, "blocked_clients:1").await;
            queue.offer(&[now(&later)]).await.expect("it is told");
        };
        let (taken, ()) = tokio::join!(take(&queue), offering);
        assert_eq!(taken, later.lane);
        // Nobody is connected but who asks.
        until_told(&server, "connected_clients:1").await;
        queue.done(later.lane, None).await.expect("it is told");
        until_told(&server, "connected_clients:1").await;
    }
}

/// A blocking read has its own connection: whoever waits for a lane holds up no other call of its process.
#[tokio::test]
async fn rc_05_whoever_waits_for_a_lane_holds_up_no_call() {
    let server = RedisServer::start(&[]);
    let queue = on(&server, "w", 1);
    let mut quickest = PATIENCE;
    for _ in 0..5 {
        let lane = work("ada");
        let calling = async {
            until_told(&server, "blocked_clients:1").await;
            let began = Instant::now();
            queue.beat().await.unwrap();
            quickest = quickest.min(began.elapsed());
            queue.offer(&[now(&lane)]).await.unwrap();
        };
        let (taken, ()) = tokio::join!(take(&queue), calling);
        assert_eq!(taken, lane.lane);
        queue.done(lane.lane, None).await.unwrap();
    }
    assert!(quickest < Duration::from_millis(400), "{quickest:?}");
}

#[tokio::test]
async fn rc_05_a_server_that_restarts_empty_is_used_again_without_its_scripts() {
    let mut server = RedisServer::start(&[]);
    let queue = on(&server, "w", 1);
    let (a, b) = (work("ada"), work("bob"));
    queue.offer(&[now(&a)]).await.unwrap();
    server.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(take(&queue).await, a.lane);
    server.kill();
    let silent = queue.offer(&[now(&b)]).await.expect_err("it is gone");
    assert!(silent.0.contains("does not answer"), "{silent}");
    let waiting = queue.take(&Room::for_all()).await.expect_err("it is gone");
    assert!(waiting.0.contains("does not answer"), "{waiting}");
    server.run();
    until_it_answers(&queue).await;
    queue.offer(&[now(&b)]).await.unwrap();
    assert_eq!(take(&queue).await, b.lane);
    queue.done(a.lane, None).await.unwrap();
}

/// Nothing is connected at first: it may start later than the worker.
#[tokio::test]
async fn a_server_that_starts_later_is_found() {
    let mut server = RedisServer::start(&[]);
    server.kill();
    let queue = on(&server, "w", 1);
    assert!(
        queue
            .beat()
            .await
            .expect_err("it is not there")
            .0
            .contains("does not answer")
    );
    server.run();
    until_it_answers(&queue).await;
}

async fn until_it_answers(queue: &Redis) {
    let began = Instant::now();
    while let Err(error) = queue.beat().await {
        assert!(began.elapsed() < Duration::from_secs(15), "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn each_refusal_is_one_sentence_with_the_way_out() {
    let server = RedisServer::start(&["--requirepass", "right"]);
    let open = |url: &str| {
        let identity = Identity {
            id: "w".into(),
            epoch: 1,
        };
        Redis::open(url, "test", identity)
    };
    let socket = server.url();
    let refusal = async |queue: &Redis| queue.beat().await.expect_err("it refuses").0;
    for url in [socket.clone(), format!("{socket}?pass=wrong-one")] {
        let told = refusal(&open(&url).unwrap()).await;
        assert!(told.contains("refuses the user or password"), "{told}");
        assert!(
            told.contains("MAYFLY__QUEUE__URL") && !told.contains("wrong-one"),
            "{told}"
        );
    }
    open(&format!("{socket}?pass=right"))
        .unwrap()
        .beat()
        .await
        .unwrap();

    let QueueError(told) = open("http://user:secret-one@example.org").unwrap_err();
    assert!(
        told.contains("redis://") && !told.contains("secret-one"),
        "{told}"
    );

    let full = RedisServer::start(&["--maxmemory", "1mb", "--maxmemory-policy", "noeviction"]);
    let queue = on(&full, "w", 1);
    let told = queue
        .offer(&[now(&work("ada"))])
        .await
        .expect_err("it is full")
        .0;
    assert!(
        told.contains("is out of memory: raise its maxmemory"),
        "{told}"
    );
    full.command(&["CONFIG", "SET", "maxmemory", "0"]);
    queue.offer(&[now(&work("ada"))]).await.unwrap();
    // Also to those who are asked for no lanes: that all is well is told by whoever says so.
    assert!(queue.turn().await.unwrap());
    full.command(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let told = queue.turn().await.expect_err("it is full again").0;
    assert!(told.contains("is out of memory"), "{told}");

    let replica = RedisServer::start(&[
        "--replicaof",
        "127.0.0.1",
        "1",
        "--replica-serve-stale-data",
        "yes",
    ]);
    let told = refusal(&on(&replica, "w", 1)).await;
    assert!(
        told.contains("is a read-only replica: name its primary"),
        "{told}"
    );
}

/// A server that says it is of this version, as far as it is asked.
fn pretend(version: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    let asked = String::from_utf8_lossy(&buffer[..read]).to_uppercase();
                    let info = format!("# Server\r\nredis_version:{version}\r\n");
                    let answer = match asked.contains("\nINFO\r\n") {
                        true => format!("${}\r\n{info}\r\n", info.len()),
                        false => "+OK\r\n".repeat(asked.matches('*').count()),
                    };
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!("redis://{address}")
}

#[tokio::test]
async fn a_version_that_is_too_old_is_refused_with_both_versions() {
    let identity = Identity {
        id: "w".into(),
        epoch: 1,
    };
    let queue = Redis::open(&pretend("6.0.16"), "test", identity).unwrap();
    let told = queue.beat().await.expect_err("it is old").0;
    assert!(
        told.contains("is version 6.0: it has to be 6.2 or later"),
        "{told}"
    );
}

/// All keys are of one slot, so Redis Cluster takes the script.
#[tokio::test]
async fn a_clusters_node_takes_it() {
    let server = RedisServer::start(&["--cluster-enabled", "yes", "--port", "0"]);
    server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let began = Instant::now();
    while !server
        .command(&["CLUSTER", "INFO"])
        .contains("cluster_state:ok")
    {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "the node takes no part"
        );
        std::thread::sleep(NOTHING / 10);
    }
    let queue = on(&server, "w", 1);
    let lane = work("ada");
    queue.offer(&[now(&lane)]).await.unwrap();
    assert_eq!(take(&queue).await, lane.lane);
    queue.done(lane.lane, None).await.unwrap();
}

/// All keys are in one slot: whichever node is named, the one that has it is asked, also after the slot was moved.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_three_is_used_by_the_address_of_any_of_its_nodes() {
    let cluster = RedisCluster::start();
    let key = "{mayfly:test}:work";
    let room = Room::for_all();
    let open = |url: &str, worker: &str| {
        let id = worker.to_owned();
        Redis::open(url, "test", Identity { id, epoch: 1 }).unwrap()
    };
    let queues: Vec<Redis> = cluster
        .urls()
        .iter()
        .enumerate()
        .map(|(number, url)| open(url, &format!("w{number}")))
        .collect();
    let rung = work("ada");
    for taker in &queues {
        // Whoever waits is woken, and asks again where the keys are.
        let began = Instant::now();
        let offered = async {
            tokio::time::sleep(NOTHING).await;
            queues[0].offer(&[now(&rung)]).await.unwrap();
        };
        let (taken, ()) = tokio::join!(taker.take(&room), offered);
        assert_eq!(taken.unwrap().lane, rung.lane);
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
        taker.beat().await.unwrap();
        taker.done(rung.lane, None).await.unwrap();
    }
    let kept = work("bob");
    queues[0].offer(&[now(&kept)]).await.unwrap();
    let owner = cluster.owner(key);
    for step in 1..3 {
        cluster.move_slot(key, (owner + step) % 3);
        for taker in &queues {
            assert_eq!(take(taker).await, kept.lane);
            taker.done(kept.lane, Some(now(&kept))).await.unwrap();
        }
    }
}
