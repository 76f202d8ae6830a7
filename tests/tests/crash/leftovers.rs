//! What a start finds: a data dir that was copied in the middle of a tick, a worker that lost its
//! name, a layer that is gone; and reconcilers that are run twice.

use std::{fs, path::Path};

use mayfly_orchestrator::reconcile;
use mayfly_tests::{engine, server::Server, world::World};

use crate::scene::Scene;

fn picture(world: &World) -> String {
    let tables = [
        "ticks",
        "messages",
        "deliveries",
        "snapshots",
        "merges",
        "layers",
        "agents",
    ];
    let rows: Vec<String> = tables
        .iter()
        .map(|table| world.sql(&format!("SELECT * FROM {table} ORDER BY 1")))
        .collect();
    let files = engine::run(
        "find",
        &[
            world.data_dir().to_str().expect("UTF-8"),
            "-path",
            "*/[lbut]/*",
            "-printf",
            "%P %y %m %U %s %T@ %n\n",
        ],
    );
    format!("{}\n{files}", rows.join("\n"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconciler_that_runs_again_changes_nothing() {
    let world = World::docker().await;
    let agent = world.shell().await;
    for _ in 0..12 {
        world.reply(agent, "echo x >> log; echo ok").await;
    }
    world.until_sql("SELECT count(*) FROM merges", "1").await;
    let worker = world.service().worker().clone();
    let tools = &worker.tools;
    let before = picture(&world);
    for _ in 0..2 {
        assert_eq!(reconcile::orphans(tools).await.unwrap(), []);
        reconcile::leftovers(tools).await.unwrap();
        reconcile::strays(tools).await.unwrap();
        reconcile::folders(tools).await.unwrap();
        reconcile::chains(tools).await.unwrap();
        reconcile::garbage(tools).await.unwrap();
        reconcile::lanes(&worker).await.unwrap();
        reconcile::put_aside(&worker).await.unwrap();
        assert_eq!(picture(&world), before);
    }
    assert_eq!(world.reply(agent, "wc -l < log").await, "12");
    world.end().await;
}

/// The reconcilers run in a loop while ticks are claimed, sealed, committed and merged: nothing
/// that is in the making or just committed is taken for a leftover.
#[tokio::test(flavor = "multi_thread")]
async fn reconcilers_take_nothing_away_from_running_ticks() {
    let world = World::docker().await;
    let agents = [world.shell().await, world.shell().await];
    let worker = world.service().worker().clone();
    let sweeping = async {
        loop {
            reconcile::leftovers(&worker.tools).await.unwrap();
            reconcile::strays(&worker.tools).await.unwrap();
            reconcile::folders(&worker.tools).await.unwrap();
            reconcile::garbage(&worker.tools).await.unwrap();
        }
    };
    let talking = async {
        for _ in 0..14 {
            let posted = [
                world.post(agents[0], "echo x >> log; echo ok").await,
                world.post(agents[1], "echo x >> log; echo ok").await,
            ];
            for posted in &posted {
                world.outcome(posted).await;
            }
        }
    };
    tokio::select! {
        () = sweeping => {}
        () = talking => {}
    }
    for agent in agents {
        assert_eq!(world.reply(agent, "wc -l < log").await, "14");
    }
    let interrupted = "SELECT count(*) FROM ticks WHERE outcome <> 'done'";
    assert_eq!(world.sql(interrupted), "0");
    world.end().await;
}

/// Copied while a tick runs. The copy's tick is closed and its message runs there; the original's
/// container is the original's.
#[test]
fn a_copy_made_in_a_tick_is_adopted() {
    let mut scene = Scene::new();
    scene.server.start();
    let posted = scene.post("echo $T >> log; sleep 4; echo got $T");
    scene.until_running(&posted);
    let folder = tempfile::Builder::new()
        .prefix("mc")
        .tempdir()
        .expect("a folder");
    let copy = folder.path().join("d");
    let (from, to) = (scene.server.data_dir(), copy.to_str().expect("UTF-8"));
    engine::run("cp", &["-a", from.to_str().expect("UTF-8"), to]);
    let other = Server::new(env!("CARGO_BIN_EXE_mayfly-under-test")).at(&copy);
    let refused = other.mayfly(&["agent", "list"]);
    assert_eq!(refused.status.code(), Some(6), "a copy refuses");
    assert!(other.mayfly(&["adopt"]).status.success());
    let mut copied = Scene::on(other);
    copied.agent = scene.agent.clone();
    copied.posted = 1000;
    copied.server.start();
    let running = engine::containers(&scene.server.prefix());
    assert_eq!(running.len(), 1, "the original's tick goes on");
    copied.assert_answered_once(&posted);
    assert_eq!(copied.of(&posted, "attempts"), "1");
    copied.end();
    scene.assert_answered_once(&posted);
    assert_eq!(scene.of(&posted, "attempts"), "0");
    scene.end();
}

/// The file with the worker's id is lost: the ticks of the old name are closed all the same.
#[test]
fn a_worker_that_lost_its_name_closes_its_ticks() {
    let mut scene = Scene::new();
    scene.server.start_with_fault("run.output");
    let posted = scene.post_line();
    scene.server.wait_dead();
    fs::write(scene.server.data_dir().join("worker"), "").expect("it can be emptied");
    scene.server.start();
    scene.assert_answered_once(&posted);
    scene.end();
}

/// A state is never shown without one of its layers.
#[test]
fn a_missing_layer_is_told_and_the_message_parked() {
    let mut scene = Scene::new();
    let layer = scene.server.sql("SELECT id FROM layers");
    let (place, aside) = (
        layer_dir(&scene, &layer),
        scene.server.data_dir().join("aside"),
    );
    fs::rename(&place, &aside).expect("it is there");
    scene.server.start();
    let posted = scene.post("cat first; echo $T >> log");
    scene.assert_one(&posted, "parked", "notice");
    let notice = scene.reply(&posted);
    assert!(
        notice.contains(&format!("layer {layer} of this state is missing")),
        "{notice}"
    );
    fs::rename(&aside, &place).expect("it is brought back");
    let parked = scene.server.json(&["parked", "list"]);
    let id = parked[0]["id"].as_str().expect("one is parked");
    scene.server.json(&["parked", "retry", id]);
    scene.until_sql(
        "SELECT count(*) FROM messages WHERE outcome = 'parked'",
        "0",
    );
    scene.until_settled(&posted);
    let counted = format!("grep -c {} log; cat first", posted.token);
    assert_eq!(scene.say(&counted), "1\none");
    scene.end();
}

fn layer_dir(scene: &Scene, layer: &str) -> std::path::PathBuf {
    Path::new(scene.server.data_dir()).join("l").join(layer)
}

/// An import that dies is whole or nothing: what lies on disk without rows goes, and the archive
/// can be imported again.
fn import_dies_at(point: &str) {
    let program = env!("CARGO_BIN_EXE_mayfly-under-test");
    let (mut here, mut there) = (Server::new(program), Server::new(program));
    here.start();
    let agent = here.agent();
    let sent = here.mayfly(&["agent", "send", &agent, "echo whole > f; cat f"]);
    assert!(sent.status.success(), "{sent:?}");
    let archive = here.data_dir().join("../agent.tar");
    let archive = archive.to_str().expect("UTF-8").to_owned();
    let exported = here.mayfly(&["agent", "export", &agent, "-o", &archive]);
    assert!(exported.status.success(), "{exported:?}");
    here.stop();

    there.start_with_fault(point);
    there.mayfly(&["agent", "import", &archive]);
    there.wait_dead();
    there.start();
    assert_eq!(there.sql("SELECT count(*) FROM agents"), "0");
    assert_eq!(there.sql("SELECT count(*) FROM layers"), "0");
    let folders = || {
        ["l", "u"].map(|kind| {
            fs::read_dir(there.data_dir().join(kind))
                .expect("a folder")
                .count()
        })
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while folders() != [0, 0] {
        assert!(
            std::time::Instant::now() < deadline,
            "{:?} {}",
            folders(),
            there.log()
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let imported = there.mayfly(&["agent", "import", &archive]);
    assert!(imported.status.success(), "{imported:?}");
    let agents = there.json(&["agent", "list"]);
    let agent = agents[0]["id"].as_str().expect("an id").to_owned();
    let sent = there.mayfly(&["agent", "send", &agent, "cat f"]);
    assert_eq!(String::from_utf8_lossy(&sent.stdout), "whole\n", "{sent:?}");
    there.stop();
    there.assert_nothing_left();
}

#[test]
fn an_import_that_dies_before_its_rows_leaves_nothing() {
    import_dies_at("import.built");
}

#[test]
fn an_import_that_dies_in_its_transaction_leaves_nothing() {
    import_dies_at("import.inside");
}

/// The rows are durable, their answer is lost: the files of the agent stay. Its state has no layer.
#[test]
fn the_answer_to_an_import_is_lost() {
    let mut here = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"));
    here.start();
    let agent = here.agent();
    let out = tempfile::tempdir().expect("a folder");
    let archive = out.path().join("a.tar").display().to_string();
    let done = here.mayfly(&["agent", "export", &agent, "-o", &archive]);
    assert!(done.status.success(), "{done:?}");
    let mut there = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"));
    there.start_with_fault("import.answer");
    let imported = there.mayfly(&["agent", "import", &archive]);
    assert!(imported.status.success(), "{imported:?}");
    assert!(there.log().contains("import without an answer"));
    assert_eq!(there.sql("SELECT count(*) FROM agents"), "1");
    let sent = there.mayfly(&["agent", "send", &agent, "echo whole"]);
    assert_eq!(String::from_utf8_lossy(&sent.stdout), "whole\n", "{sent:?}");
    there.stop();
    there.assert_nothing_left();
}
