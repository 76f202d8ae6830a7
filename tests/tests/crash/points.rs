//! The server kills itself at every named point of a message's way and of its housekeeping.

use std::{collections::BTreeSet, path::Path, process::Command};

use mayfly_tests::engine;
use serde_json::json;

use crate::{
    scene::Scene,
    stored::{BROUGHT, PUT, SWEPT},
};

const ACCEPT: &[&str] = &["accept.before", "accept.inside", "accept.after"];
const SPAWN: &[&str] = &[
    "claim.inside",
    "spawn.claimed",
    "begin.folder",
    "spawn.uppers",
    "spawn.created",
    "spawn.started",
    "spawn.ready",
];
const RUN: &[&str] = &[
    "scope.before",
    "scope.opened",
    "scope.after",
    "run.started",
    "run.output",
    "run.ended",
];
const REPORT: &[&str] = &[
    "report.ended",
    "remove.container",
    "remove.volume",
    "report.removed",
    "seal.measured",
    "seal.fixed",
    "seal.synced",
];
const SEAL: &[&str] = &[
    "publish.before",
    "publish.renamed",
    "publish.durable",
    "trash.renamed",
    "report.sealed",
    "report.files",
];
const COMMIT: &[&str] = &[
    "commit.before",
    "commit.inside",
    "commit.after",
    "deliver.before",
    "deliver.after",
    "deliver.recorded",
];
const DISCARD: &[&str] = &["close.inside", "destroy.closed", "destroy.discarded"];
const MERGE: &[&str] = &[
    "merge.before",
    "merge.placed",
    "merge.synced",
    "merge.built",
    "merge.inside",
    "merge.after",
];
const BASE: &[&str] = &[
    "base.begun",
    "base.extracted",
    "base.finished",
    "base.after",
    "agent.inside",
];
const RECONCILE: &[&str] = &[
    "start.epoch",
    "reconcile.orphan",
    "reconcile.closed",
    "reconcile.gone",
    "reconcile.removed",
];
/// Each has a test of its own.
const OTHERS: &[&str] = &[
    "reconcile.stray",
    "reconcile.folder",
    "garbage.inside",
    "garbage.forgotten",
    "garbage.base",
    "commit.answer",
    "claim.answer",
    "rollback.inside",
    "rollback.after",
    "rollback.answer",
    "import.built",
    "import.inside",
    "import.answer",
    "upgrade.alone",
    "deliver.unrecorded",
];

/// `tests/backup.rs` dies at each of these.
const BACKUP: &[&str] = &[
    "backup.database",
    "backup.copying",
    "backup.copied",
    "backup.manifest",
    "backup.whole",
    "restore.named",
    "restore.copying",
    "restore.copied",
    "restore.database",
    "restore.moved",
];

/// `attachments.rs` dies at each of these.
const ATTACHMENTS: &[&str] = &[
    "blob.whole",
    "upload.stored",
    "received.cleared",
    "received.put",
    "garbage.blob",
];

/// `platforms.rs` dies at each of these.
pub(crate) const PLATFORMS: &[&str] = &[
    "take.inside",
    "take.after",
    "apply.inside",
    "fetch.inside",
    "order.acted",
];

/// `forks.rs` dies at each of these.
pub(crate) const FORKS: &[&str] = &["order.forked", "order.opened"];
/// ... and loses this answer.
pub(crate) const FORK_ANSWER: &str = "fork.answer";

/// `platforms.rs` dies there with a file that is shown and not recorded.
pub(crate) const FILE: &str = "deliver.file";

/// A point without a crash test fails here.
#[test]
fn every_point_of_the_source_is_listed_here() {
    let mut found = BTreeSet::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for folder in ["orchestrator/src", "bot/src", "adapters/src"] {
        points_in(&root.join(folder), &mut found);
    }
    let groups = [
        ACCEPT,
        SPAWN,
        RUN,
        REPORT,
        SEAL,
        COMMIT,
        DISCARD,
        MERGE,
        BASE,
        RECONCILE,
        OTHERS,
        BACKUP,
        ATTACHMENTS,
        PLATFORMS,
        FORKS,
        PUT,
        BROUGHT,
        SWEPT,
        &[FILE, FORK_ANSWER],
    ];
    let listed: BTreeSet<String> = groups.concat().iter().map(|p| (*p).to_owned()).collect();
    assert_eq!(
        listed.len(),
        groups.concat().len(),
        "a point is listed twice"
    );
    assert_eq!(found, listed);
}

fn points_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("source").flatten() {
        let path = entry.path();
        if path.is_dir() {
            points_in(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("source");
            for call in ["faults::point(\"", "faults::lose_answer(\""] {
                let rest = text.split(call).skip(1);
                found.extend(rest.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
            }
        }
    }
}

/// Dies at each point while it works on a message that adds a line, and is started again.
fn dies_at(points: &[&str]) {
    let mut scene = Scene::new();
    for point in points {
        eprintln!("{point}");
        scene.server.start_with_fault(point);
        let posted = scene.post_line();
        scene.server.wait_dead();
        scene.server.start();
        scene.assert_answered_once(&posted);
        let attempts: u32 = scene.of(&posted, "attempts").parse().expect("a number");
        assert!(attempts <= 1, "{point}: {attempts} attempts");
        scene.assert_tidy();
        scene.server.stop();
    }
    scene.server.start();
    scene.end();
}

#[test]
fn while_a_message_is_accepted() {
    dies_at(ACCEPT);
}

#[test]
fn while_a_sandbox_is_made() {
    dies_at(SPAWN);
}

#[test]
fn while_the_program_runs() {
    dies_at(RUN);
}

#[test]
fn while_the_sandbox_is_removed_and_its_files_are_judged() {
    dies_at(REPORT);
}

#[test]
fn while_a_layer_takes_its_place() {
    dies_at(SEAL);
}

#[test]
fn while_it_is_committed_and_delivered() {
    dies_at(COMMIT);
}

#[test]
fn while_changes_are_discarded() {
    let mut scene = Scene::new();
    for point in DISCARD {
        eprintln!("{point}");
        scene.server.start_with_fault(point);
        let posted = scene.post("echo $T >> log; kill -9 $$");
        scene.server.wait_dead();
        scene.server.start();
        scene.send_again(&posted);
        scene.assert_one(&posted, "noticed", "notice");
        let counted = format!("grep -c {} log 2>/dev/null; cat first", posted.token);
        let seen = scene.say(&counted);
        assert!(["one", "0\none"].contains(&seen.as_str()), "{seen}");
        scene.assert_tidy();
        scene.server.stop();
    }
    scene.server.start();
    scene.end();
}

#[test]
fn while_a_chain_is_merged() {
    let mut scene = Scene::new();
    scene.server.start();
    for _ in 0..10 {
        scene.say("echo $T >> log; echo $T > f-$T; rm -f f-token-4-; echo ok");
    }
    let short = scene.server.sql("SELECT max(id) FROM ticks");
    let files = "ls f-* | wc -l; cat f-token-3-; wc -l < log";
    // The tick passes the places of a seal first, the merge second.
    for point in [MERGE, &["publish.renamed:2"]].concat() {
        eprintln!("{point}");
        scene.server.stop();
        let merges: u32 = scene
            .server
            .sql("SELECT count(*) FROM merges")
            .parse()
            .expect("a number");
        scene.server.start_with_fault(point);
        let posted = scene.post_line();
        scene.server.wait_dead();
        if point == "merge.built" {
            // The merged layer lies there without a row.
            scene.server.start_with_fault("reconcile.folder");
            scene.server.wait_dead();
        }
        scene.server.start();
        scene.until_sql("SELECT count(*) FROM merges", &(merges + 1).to_string());
        scene.assert_answered_once(&posted);
        assert_eq!(scene.say(files), "9\ntoken-3-\n11");
        scene.assert_tidy();
        // The chain is one short of a merge again.
        scene
            .server
            .json(&["agent", "rollback", &scene.agent, &short]);
    }
    scene.end();
}

#[test]
fn while_the_first_agent_of_an_image_is_made() {
    for point in BASE {
        eprintln!("{point}");
        let mut scene = Scene::empty();
        scene.server.start_with_fault(point);
        let made = scene.ask("POST", "/v1/agents", "", Some(&json!({})));
        assert!(made.is_err(), "{point}: {made:?}");
        scene.server.wait_dead();
        scene.server.start();
        scene.settle_in();
        assert_eq!(scene.server.sql("SELECT count(*) FROM agents"), "1");
        scene.end();
    }
}

#[test]
fn while_it_cleans_up_after_a_crash() {
    let mut scene = Scene::new();
    for point in RECONCILE {
        eprintln!("{point}");
        scene.server.start_with_fault("run.output");
        let posted = scene.post_line();
        scene.server.wait_dead();
        scene.server.start_with_fault(point);
        scene.server.wait_dead();
        scene.server.start();
        scene.assert_answered_once(&posted);
        assert_eq!(scene.of(&posted, "attempts"), "1", "{point}");
        scene.assert_tidy();
        scene.server.stop();
    }
    // Something with our labels and prefix that no row names.
    let prefix = scene.server.prefix();
    let label = format!(
        "mayfly.installation={}",
        scene.server.sql("SELECT id FROM installation")
    );
    for name in ["base-a", "base-b"] {
        let name = format!("{prefix}{name}");
        let volume = format!("{name}-work:/work");
        let made = ["create", "--name", &name, "--label", &label, "-v", &volume];
        let volume = format!("{name}-work");
        engine::run("docker", &["volume", "create", "--label", &label, &volume]);
        engine::run("docker", &[&made[..], &["mayfly/base", "true"]].concat());
    }
    scene.server.start_with_fault("reconcile.stray");
    scene.server.wait_dead();
    assert_eq!(engine::containers(&prefix).len(), 1);
    scene.server.start();
    scene.end();
}

#[test]
fn while_garbage_is_removed() {
    let mut scene = Scene::new();
    scene.server.start();
    let keeper = std::mem::take(&mut scene.agent);
    for point in ["garbage.inside", "garbage.forgotten"] {
        eprintln!("{point}");
        scene.settle_in();
        scene.say("echo two > second; echo ok");
        scene.server.stop();
        scene.server.start_with_fault(point);
        let path = format!("/v1/agents/{}", scene.agent);
        let _ = scene.ask("DELETE", &path, "", None);
        scene.server.wait_dead();
        scene.server.start();
        scene.agent = keeper.clone();
        scene.assert_tidy();
        scene.server.until_sql("SELECT count(*) FROM layers", "1");
        assert_eq!(scene.say("cat first"), "one");
    }
    scene.end();
}

/// Its row says it is gone, its folder is there: the next round takes it, the next agent on the
/// image makes it anew.
#[test]
fn while_an_unused_base_is_removed() {
    let mut scene = Scene::new();
    scene.server.start();
    let path = format!("/v1/agents/{}", scene.agent);
    let _ = scene.ask("DELETE", &path, "", None);
    scene.server.stop();
    let database = scene.server.data_dir().join("mayfly.db");
    for old in ["bases SET used_at = 1", "agents SET removed_at = 1"] {
        engine::change(&database, &format!("UPDATE {old}"));
    }
    scene.server.start_with_fault("garbage.base");
    scene.server.wait_dead();
    let bases = scene.server.data_dir().join("b");
    let count = || std::fs::read_dir(&bases).expect("bases").count();
    assert_eq!(count(), 1);
    scene.server.start();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while count() > 0 {
        assert!(std::time::Instant::now() < deadline, "the base stays");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    scene.settle_in();
    assert_eq!(scene.say("cat first"), "one");
    scene.end();
}

/// The commit is durable, its answer is lost: the message is not run twice and its layer stays.
#[test]
fn the_answer_to_the_commit_is_lost() {
    let mut scene = Scene::new();
    scene.server.start_with_fault("commit.answer");
    let posted = scene.post_line();
    scene.until_settled(&posted);
    scene.assert_answered_once(&posted);
    let log = scene.server.log();
    assert!(log.contains("commit without an answer"), "{log}");
    let ticks = "SELECT count(*) FROM ticks t JOIN messages m ON m.id = t.message \
                 WHERE m.text LIKE '%send/f%'";
    assert_eq!(scene.server.sql(ticks), "1");
    assert_eq!(scene.of(&posted, "attempts"), "0");
    scene.server.stop();
    scene.server.start();
    assert_eq!(scene.say("cat send/f"), posted.token);
    scene.end();
}

/// The claim is durable, its answer is lost: nothing ran, so it is no attempt, and the lane is open.
#[test]
fn the_answer_to_the_claim_is_lost() {
    let mut scene = Scene::new();
    scene.server.start_with_fault("claim.answer");
    let posted = scene.post_line();
    scene.assert_answered_once(&posted);
    assert_eq!(scene.of(&posted, "attempts"), "0");
    scene.end();
}

/// `kill -9` at random times of a tick, seeded.
#[test]
fn killed_at_random_times() {
    use rand::{Rng as _, SeedableRng as _};
    let mut random = rand::rngs::StdRng::seed_from_u64(0x6d61_7966_6c79);
    let mut scene = Scene::new();
    let mut before = None;
    for round in 0..20 {
        scene.server.start();
        if let Some(posted) = before.take() {
            scene.send_again(&posted);
            scene.assert_one(&posted, "answered", "answer");
        }
        before = Some(scene.post("echo $T >> log; sleep 0.1; echo got $T"));
        let pause = random.random_range(0..900);
        eprintln!("round {round}: killed after {pause} ms");
        std::thread::sleep(std::time::Duration::from_millis(pause));
        scene.server.kill();
    }
    scene.server.start();
    scene.assert_answered_once(&before.expect("rounds"));
    assert_eq!(
        scene.say("sort log | uniq -c | grep -c ' 1 token'; wc -l < log"),
        "20\n20"
    );
    scene.end();
}

/// Nothing this suite relies on is missing.
#[test]
fn the_base_image_is_here() {
    let seen = Command::new("docker")
        .args(["inspect", "mayfly/base"])
        .output();
    assert!(
        seen.is_ok_and(|seen| seen.status.success()),
        "deploy/images/build base"
    );
}
