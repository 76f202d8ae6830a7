//! The server dies while messages that waited are claimed, run and answered together.

use crate::scene::{Posted, Scene, id_of};

/// Each for its second passing: the first is that of the message before them.
const POINTS: &[&str] = &[
    "claim.inside:2",
    "spawn.claimed:2",
    "scope.after:2",
    "run.started:2",
    "report.removed:2",
    "commit.inside:2",
    "commit.after:2",
    "deliver.before:2",
    "deliver.after:2",
];

#[test]
fn p1_what_is_merged_is_answered_together_and_once_wherever_the_server_dies() {
    let mut scene = Scene::empty();
    scene
        .server
        .set_env("MAYFLY__PROFILES__SHELL__WAITING", "merge");
    scene.server.start();
    scene.settle_in();
    scene.server.stop();
    for point in POINTS {
        eprintln!("{point}");
        scene.server.start_with_fault(point);
        let before = scene.post("sleep 3; echo before $T");
        scene.until_running(&before);
        let three: Vec<Posted> = (0..3)
            .map(|_| scene.post("echo $T >> log; echo got $T"))
            .collect();
        scene.server.wait_dead();
        scene.server.start();
        assert_together(&mut scene, point, &before, &three);
        scene.assert_tidy();
        scene.server.stop();
    }
    scene.server.start();
    scene.end();
}

/// The first has the answer to all, the others are part of it; each line is there once.
fn assert_together(scene: &mut Scene, point: &str, before: &Posted, three: &[Posted]) {
    for posted in three {
        scene.send_again(posted);
    }
    scene.assert_one(before, "answered", "answer");
    scene.assert_one(&three[0], "answered", "answer");
    let answer = scene.reply(&three[0]);
    for merged in &three[1..] {
        assert_eq!(scene.of(merged, "outcome"), "merged", "{point}");
        let into = format!("merged_into = {}", id_of(&three[0]));
        assert_eq!(scene.of(merged, &into), "1", "{point}");
        let told = format!(
            "SELECT count(*) FROM deliveries WHERE message = {}",
            id_of(merged)
        );
        assert_eq!(scene.server.sql(&told), "0", "{point}");
    }
    for posted in three {
        let got = format!("got {}", posted.token);
        assert_eq!(answer.matches(&got).count(), 1, "{point}: {answer}");
        let counted = format!("grep -c {} log", posted.token);
        assert_eq!(scene.say(&counted), "1", "{point}");
    }
}
