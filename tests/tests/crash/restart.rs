//! Ends on purpose: drains, a second signal, and messages that take the server down with them.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::scene::{Posted, Scene, id_of};

fn terminate(scene: &Scene) {
    let pid = Pid::from_raw(scene.server.pid() as i32).expect("a process id");
    kill_process(pid, Signal::TERM).expect("it can be signalled");
}

fn outcomes(scene: &Scene, posted: &Posted) -> String {
    let id = id_of(posted);
    scene.server.sql(&format!(
        "SELECT group_concat(outcome) FROM (SELECT outcome FROM ticks WHERE message = {id} ORDER BY id) AS t"
    ))
}

#[test]
fn a_tick_that_outlasts_the_grace_is_handed_back_without_an_attempt() {
    let mut scene = Scene::new();
    scene.server.set_env("MAYFLY__WORKER__GRACE_S", "1");
    scene.server.start();
    let posted = scene.post("echo $T >> log; sleep 4; echo got $T");
    scene.until_running(&posted);
    scene.server.stop();
    assert_eq!(outcomes(&scene, &posted), "interrupted");
    assert_eq!(scene.of(&posted, "coalesce(outcome, 'open')"), "open");
    assert_eq!(scene.of(&posted, "attempts"), "0");
    scene.server.start();
    scene.assert_answered_once(&posted);
    assert_eq!(outcomes(&scene, &posted), "interrupted,done");
    assert_eq!(scene.of(&posted, "attempts"), "0");
    scene.end();
}

#[test]
fn a_short_tick_ends_before_the_server_does() {
    let mut scene = Scene::new();
    scene.server.start();
    let posted = scene.post("echo $T >> log; sleep 1; echo got $T");
    let later = scene.post("echo $T >> log; echo got $T");
    scene.until_running(&posted);
    scene.server.stop();
    assert_eq!(outcomes(&scene, &posted), "done");
    assert_eq!(outcomes(&scene, &later), "", "nothing new starts");
    scene.server.start();
    scene.assert_answered_once(&posted);
    scene.assert_answered_once(&later);
    assert_eq!(outcomes(&scene, &posted), "done");
    scene.end();
}

#[test]
fn a_second_signal_does_not_wait() {
    let mut scene = Scene::new();
    scene.server.start();
    let posted = scene.post("trap '' INT TERM; echo $T >> log; sleep 8; echo got $T");
    scene.until_running(&posted);
    terminate(&scene);
    sleep(Duration::from_millis(300));
    assert!(scene.server.running(), "one signal waits for the tick");
    let since = Instant::now();
    terminate(&scene);
    scene.server.wait_dead();
    assert!(since.elapsed() < Duration::from_secs(5));
    scene.server.start();
    scene.assert_answered_once(&posted);
    assert_eq!(outcomes(&scene, &posted), "interrupted,done");
    scene.end();
}

#[test]
fn the_third_crash_in_a_row_parks_the_message_with_a_notice() {
    let mut scene = Scene::new();
    scene.server.start_with_fault("run.started");
    let posted = scene.post("echo $T >> log; echo got $T");
    for _ in 0..2 {
        scene.server.wait_dead();
        scene.server.start_with_fault("run.started");
    }
    scene.server.wait_dead();
    scene.server.start();
    scene.assert_one(&posted, "parked", "notice");
    let notice = scene.reply(&posted);
    assert!(notice.contains("3 attempts"), "{notice}");
    assert!(notice.contains("changes discarded"), "{notice}");
    assert_eq!(
        outcomes(&scene, &posted),
        "interrupted,interrupted,interrupted"
    );
    let parked = scene.server.json(&["parked", "list"]);
    let id = parked[0]["id"].as_str().expect("one is parked").to_owned();
    assert_eq!(parked.as_array().map(Vec::len), Some(1));
    // A parked message does not hold up what comes after it.
    assert_eq!(scene.say("cat first; ls"), "one\nfirst");
    scene.server.json(&["parked", "retry", &id]);
    scene.until_settled(&posted);
    assert_eq!(scene.of(&posted, "outcome"), "answered");
    let counted = format!("grep -c {} log; cat first", posted.token);
    assert_eq!(scene.say(&counted), "1\none");
    assert_eq!(
        scene.server.json(&["parked", "list"]),
        serde_json::json!([])
    );
    scene.end();
}

/// What an interrupted tick has done outside nobody can take back: it runs again when a person says so, and not before.
#[test]
fn rb_03_what_may_have_had_effects_outside_runs_again_only_when_a_person_says_so() {
    let mut scene = Scene::new();
    scene.server.start();
    let posted = scene.post("echo $T >> log; sleep 6; echo got $T");
    scene.until_running(&posted);
    let possible = "UPDATE ticks SET effects = 'possible' WHERE outcome IS NULL";
    scene.server.change(possible);
    scene.server.kill();
    scene.server.start();
    scene.assert_one(&posted, "parked", "notice");
    let notice = scene.reply(&posted);
    assert!(notice.contains("effects outside"), "{notice}");
    assert_eq!(scene.say("cat first; ls"), "one\nfirst");
    assert_eq!(outcomes(&scene, &posted), "interrupted");
    let parked = scene.server.json(&["parked", "list"]);
    let id = parked[0]["id"].as_str().expect("it is parked").to_owned();
    scene.server.json(&["parked", "retry", &id]);
    scene.until_settled(&posted);
    assert_eq!(scene.of(&posted, "outcome"), "answered");
    assert_eq!(outcomes(&scene, &posted), "interrupted,done");
    scene.end();
}

/// All that ran is suspect. What was there twice runs as the only suspect, so the message that takes the server down
/// parks alone.
#[test]
fn qu_a_suspect_runs_alone() {
    let mut scene = Scene::new();
    scene.server.start();
    let agents: Vec<String> = (0..2).map(|_| scene.server.agent()).collect();
    let poison = scene.post("sleep 60; echo got $T");
    let harmless: Vec<Posted> = agents
        .iter()
        .map(|agent| scene.post_to(agent, "sleep 3; echo got $T"))
        .collect();
    for posted in harmless.iter().chain([&poison]) {
        scene.until_running(posted);
    }
    scene.server.kill();
    for attempt in 1..3 {
        scene.server.start();
        scene.until_running(&poison);
        assert_eq!(scene.of(&poison, "attempts"), attempt.to_string());
        if attempt == 2 {
            let open = "SELECT count(*) FROM ticks WHERE outcome IS NULL";
            assert_eq!(scene.server.sql(open), "1", "a suspect runs beside it");
        }
        scene.server.kill();
    }
    scene.server.start();
    scene.assert_one(&poison, "parked", "notice");
    for posted in &harmless {
        scene.assert_one(posted, "answered", "answer");
        let attempts = scene.of(posted, "attempts");
        assert!(["1", "2"].contains(&attempts.as_str()), "{attempts}");
    }
    assert_eq!(scene.say("cat first"), "one");
    scene.end();
}
