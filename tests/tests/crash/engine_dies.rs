//! The container engine dies in the middle of a tick. Its container writes on, so nothing may be
//! sealed before the engine is back and says that the container is gone.

use std::{path::PathBuf, thread::sleep, time::Duration};

use mayfly_tests::{second_engine::SecondEngine, server::Server};

use crate::scene::{Posted, Scene, id_of};

/// Six seconds of writing, then the line.
const WRITES: &str = "for i in $(seq 60); do echo $i >> count; sleep 0.1; done; \
                      echo $T >> log; echo got $T";

fn scene(engine: &SecondEngine) -> Scene {
    let server = Server::new(env!("CARGO_BIN_EXE_mayfly-under-test"));
    let mut scene = Scene::on(server.env("MAYFLY__DOCKER__HOST", &engine.host()));
    scene.engine = Some(engine.host());
    scene.server.start();
    scene.settle_in();
    scene
}

/// The file that the running tick of a message writes.
fn upper(scene: &Scene, posted: &Posted) -> PathBuf {
    let layer = format!(
        "SELECT layer FROM ticks WHERE message = {} ORDER BY id LIMIT 1",
        id_of(posted)
    );
    let layer = scene.server.sql(&layer);
    let slot = scene.server.data_dir().join("u").join(layer).join("work");
    slot.join("up/count")
}

fn size(path: &std::path::Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}

fn assert_writes_on(scene: &Scene, posted: &Posted) {
    let path = upper(scene, posted);
    let before = size(&path);
    sleep(Duration::from_millis(700));
    let after = size(&path);
    assert!(
        before < after,
        "{before} {after}: this engine's end ends its containers"
    );
}

/// Side by side: both wait most of the time.
#[test]
fn the_engine_dies_in_a_tick() {
    std::thread::scope(|scope| {
        scope.spawn(and_comes_back);
        and_stays_down_longer_than_a_removal_is_tried();
    });
}

fn and_comes_back() {
    let mut engine = SecondEngine::start(false);
    let mut scene = scene(&engine);
    let posted = scene.post(WRITES);
    scene.until_running(&posted);
    engine.kill_daemon();
    assert_writes_on(&scene, &posted);
    sleep(Duration::from_secs(5));
    engine.up();
    scene.assert_answered_once(&posted);
    assert_eq!(scene.say("wc -l < count"), "60");
    scene.end();
}

fn and_stays_down_longer_than_a_removal_is_tried() {
    let mut engine = SecondEngine::start(false);
    let mut scene = scene(&engine);
    let other = scene.server.agent();
    let posted = scene.post(WRITES);
    scene.until_running(&posted);
    engine.kill_daemon();
    assert_writes_on(&scene, &posted);

    // What comes now waits; it is told once, and this is no attempt.
    let waiting = scene.post_to(&other, "echo $T >> log; echo got $T");
    let signs = |posted: &Posted| {
        format!(
            "SELECT count(*) FROM deliveries WHERE kind = 'waiting' AND message = {}",
            id_of(posted)
        )
    };
    scene.until_sql(&signs(&waiting), "1");
    let (status, ready) = scene.ask("GET", "/readyz", "", None).expect("an answer");
    assert_eq!((status, &ready["ready"]), (503, &false.into()), "{ready}");

    // Without the proof of removal nothing is sealed, and the tick counts as an attempt.
    let outcomes = format!(
        "SELECT group_concat(coalesce(outcome, 'open')) FROM ticks WHERE message = {}",
        id_of(&posted)
    );
    scene.until_sql(&outcomes, "interrupted");
    assert_eq!(scene.of(&posted, "attempts"), "1");
    assert_eq!(scene.server.sql("SELECT count(*) FROM layers"), "1");
    assert!(
        size(&upper(&scene, &posted)) > 0,
        "what it wrote is kept until it is gone"
    );
    scene.until_sql(&signs(&posted), "1");
    sleep(Duration::from_secs(3));
    for (posted, attempts) in [(&posted, "1"), (&waiting, "0")] {
        assert_eq!(scene.server.sql(&signs(posted)), "1");
        assert_eq!(scene.of(posted, "attempts"), attempts);
    }

    engine.up();
    scene.assert_answered_once(&posted);
    assert_eq!(scene.server.sql(&outcomes), "interrupted,done");
    scene.assert_one(&waiting, "answered", "answer");
    assert_eq!(scene.of(&waiting, "attempts"), "0");
    assert_eq!(scene.say("wc -l < count"), "60");
    let (status, ready) = scene.ask("GET", "/readyz", "", None).expect("an answer");
    assert_eq!(status, 200, "{ready}");
    scene.end();
}
