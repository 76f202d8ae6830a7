//! Prunes, lost images and neighbours on one engine: nothing of an agent is lost by housekeeping
//! that its owner does not know of.

use std::{path::PathBuf, time::Duration};

use mayfly_domain::MessageOutcome;
use mayfly_orchestrator::agent::profile::Profile;
use mayfly_tests::{
    engine,
    second_engine::SecondEngine,
    server::Server,
    world::{PATIENCE, Setup, World},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_mayfly-under-test");

const PRUNES: [&[&str]; 4] = [
    &["container", "prune", "--force"],
    &["image", "prune", "--force"],
    &["volume", "prune", "--force"],
    &["system", "prune", "--all", "--force", "--volumes"],
];

async fn world_on(engine: &SecondEngine) -> World {
    World::docker_with(Setup {
        docker_host: Some(engine.host()),
        ..Setup::default()
    })
    .await
}

/// Waits for something that is not in the database; at most [`PATIENCE`].
async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "not in time: {what}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Lets the agents' images be archived now instead of a minute after the first one was made.
async fn archived(world: &World) -> PathBuf {
    let database = world.data_dir().join("mayfly.db");
    let database = database.to_str().expect("test paths are UTF-8");
    let settle = "UPDATE bases SET created_at = 0";
    engine::run("sqlite3", &["-cmd", ".timeout 60000", database, settle]);
    let image = world.sql("SELECT DISTINCT image FROM agents");
    let archive = format!("images/{}.tar", &image["sha256:".len()..][..12]);
    let archive = world.data_dir().join(archive);
    until("an archive", || archive.exists()).await;
    archive
}

fn tags(engine: &SecondEngine) -> Vec<String> {
    engine.docker(&["images", "--format", "{{.Repository}}"])
}

/// A world has more to say of its own; this is what its second engine holds.
async fn end(world: World, engine: SecondEngine) {
    world.end().await;
    assert_eq!(engine.left(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prune_of_any_kind_costs_idle_agents_nothing() {
    let engine = SecondEngine::start(false);
    let world = world_on(&engine).await;
    let agent = world.shell().await;
    assert_eq!(world.reply(agent, "echo 1 > f && cat f").await, "1");
    archived(&world).await;
    for (round, prune) in PRUNES.into_iter().enumerate() {
        engine.docker(prune);
        let text = format!("echo {round} >> f && wc -l < f");
        assert_eq!(
            world.reply(agent, &text).await,
            format!("{}", round + 2),
            "{prune:?}"
        );
    }
    assert!(
        tags(&engine)
            .iter()
            .all(|tag| tag.starts_with("mayfly/keep-")),
        "the last one takes every image without a container: {:?}",
        tags(&engine)
    );
    end(world, engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prune_of_any_kind_costs_a_running_tick_nothing() {
    let engine = SecondEngine::start(false);
    let world = world_on(&engine).await;
    let agent = world.shell().await;
    assert_eq!(world.reply(agent, "echo before > f; cat f").await, "before");
    archived(&world).await;
    let text = "echo half >> f; while [ -e f ] && [ $((n += 1)) -lt 80 ]; do sleep .1; done; echo whole >> f; cat f";
    let running = world.post(agent, text).await;
    world
        .until_sql(
            "SELECT count(*) FROM ticks WHERE phase = 'running' AND outcome IS NULL",
            "1",
        )
        .await;
    for prune in PRUNES {
        engine.docker(prune);
    }
    let done = world.outcome(&running).await;
    assert_eq!(done.outcome, Some(MessageOutcome::Answered), "{done:?}");
    assert_eq!(done.reply.unwrap().text, "before\nhalf\nwhole");
    assert_eq!(world.sql("SELECT count(*) FROM ticks"), "2", "it ran once");
    assert_eq!(world.reply(agent, "cat f").await, "before\nhalf\nwhole");
    end(world, engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_image_without_an_archive_makes_the_lane_wait_until_it_is_back() {
    let engine = SecondEngine::start(false);
    let world = world_on(&engine).await;
    let agent = world.shell().await;
    assert_eq!(world.reply(agent, "echo 1 > f && cat f").await, "1");
    let id = world.sql("SELECT image FROM agents");
    engine.docker(&["rmi", "--force", &id]);
    let waiting = world.post(agent, "cat f").await;
    world
        .until_sql(
            "SELECT wait_noticed FROM messages WHERE outcome IS NULL",
            "1",
        )
        .await;
    let notice = world.sql("SELECT text FROM deliveries WHERE kind = 'waiting'");
    assert!(
        notice.contains(&id) && notice.contains("not on this host"),
        "{notice}"
    );
    let load = format!(
        "docker save mayfly/tiny | docker -H '{}' load",
        engine.host()
    );
    engine::run("sh", &["-c", &load]);
    let done = world.outcome(&waiting).await;
    assert_eq!(done.reply.unwrap().text, "1");
    assert_eq!(world.sql("SELECT max(attempts) FROM messages"), "0");
    end(world, engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_image_is_brought_back_and_marked_anew() {
    let engine = SecondEngine::start(false);
    let world = world_on(&engine).await;
    let agent = world.shell().await;
    let archive = archived(&world).await;
    let id = world.sql("SELECT image FROM agents");
    engine.docker(&["rmi", "--force", &id]);
    assert_eq!(tags(&engine), Vec::<String>::new());
    assert_eq!(world.reply(agent, "echo on").await, "on");
    let mark = world.prefix().replacen("mayfly-", "mayfly/keep-", 1);
    assert_eq!(tags(&engine), [mark.trim_end_matches('-')]);
    world.commands().remove_agent(agent, false).await.unwrap();
    // An image that was just asked for is kept for a minute.
    until("the archive is gone", || !archive.exists()).await;
    until("the mark is gone", || tags(&engine).is_empty()).await;
    end(world, engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_images_environment_reaches_the_program() {
    let name = format!("mayfly-test/env-{}", std::process::id());
    let build = format!(
        "printf 'FROM mayfly/tiny\\nENV GREETING=hello\\n' | DOCKER_BUILDKIT=0 docker build -q -t {name} - 2>&1"
    );
    engine::run("sh", &["-c", &build]);
    let profile = Profile {
        sandbox: format!("docker:{name}").parse().unwrap(),
        ..Profile::default()
    };
    let world = World::docker_with(Setup {
        profiles: vec![("greets".to_owned(), profile)],
        ..Setup::default()
    })
    .await;
    let agent = world.agent("greets").await.unwrap();
    assert_eq!(world.reply(agent, "echo $GREETING").await, "hello");
    world.end().await;
    engine::run("docker", &["rmi", &name]);
}

/// Two installations on one engine: what one leaves behind by dying is not the other's to remove.
#[test]
fn cl_02_a_neighbours_sandbox_is_not_touched_and_ones_own_is() {
    let (mut one, mut other) = (Server::new(PROGRAM), Server::new(PROGRAM));
    one.start();
    other.start();
    let (agent, others) = (one.agent(), other.agent());
    assert_ne!(one.prefix(), other.prefix());
    assert!(
        other
            .mayfly(&["agent", "send", &others, "echo on"])
            .status
            .success()
    );

    let sent = one.mayfly(&["agent", "send", &agent, "--no-wait", "sleep 12"]);
    assert!(sent.status.success(), "{sent:?}");
    one.until_sql("SELECT count(*) FROM ticks WHERE phase = 'running'", "1");
    one.kill();
    let left = engine::containers(&one.prefix());
    assert_eq!(left.len(), 1, "{left:?}");

    // Its start looks for strays, its rounds for leftovers, its ticks tear down.
    other.kill();
    other.start();
    assert!(
        other
            .mayfly(&["agent", "send", &others, "echo on"])
            .status
            .success()
    );
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(engine::containers(&one.prefix()), left);
    assert_eq!(engine::volumes(&one.prefix()).len(), 2);

    one.start();
    let deadline = std::time::Instant::now() + PATIENCE;
    while engine::containers(&one.prefix()).contains(&left[0]) {
        assert!(std::time::Instant::now() < deadline, "{}", one.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    // The message that was interrupted runs once more.
    one.until_sql("SELECT count(*) FROM messages WHERE outcome IS NULL", "0");
    one.stop();
    other.stop();
    one.assert_nothing_left();
    other.assert_nothing_left();
    engine::forget_images(&one.prefix());
    engine::forget_images(&other.prefix());
}

/// An adopted data dir is another installation: its images are marked anew, old marks stay.
#[test]
fn an_adopted_data_dir_marks_its_images_at_its_start() {
    let mut first = Server::new(PROGRAM);
    first.start();
    first.agent();
    first.stop();
    let before = first.prefix();
    let elsewhere = tempfile::Builder::new().prefix("ma").tempdir().unwrap();
    let copy = elsewhere.path().join("d");
    engine::copy(first.data_dir(), &copy);
    let mut server = Server::new(PROGRAM).at(&copy);
    let adopted = server.mayfly(&["adopt"]);
    assert!(adopted.status.success(), "{adopted:?}");
    let after = server.prefix();
    assert_ne!(before, after);
    let marks = |prefix: &str| {
        let mark = prefix
            .trim_end_matches('-')
            .replacen("mayfly-", "mayfly/keep-", 1);
        let list = engine::run("docker", &["images", "--format", "{{.Repository}}"]);
        list.lines().filter(|name| *name == mark).count()
    };
    assert_eq!((marks(&before), marks(&after)), (1, 0));
    server.start();
    let deadline = std::time::Instant::now() + PATIENCE;
    while marks(&after) != 1 {
        assert!(std::time::Instant::now() < deadline, "{}", server.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(marks(&before), 1, "left alone");
    server.stop();
    server.assert_nothing_left();
    engine::forget_images(&before);
    engine::forget_images(&after);
}

/// A worker in a container of the engine it drives: the engine sees its data dir elsewhere.
#[test]
fn a_worker_in_a_container() {
    let folder = tempfile::Builder::new().prefix("mc").tempdir().unwrap();
    let program = std::path::Path::new(PROGRAM).parent().unwrap();
    let name = format!("worker-{}", std::process::id());
    let binds = [
        format!("{}:/data", folder.path().display()),
        format!("{}:/program:ro", program.display()),
        "/run/mayfly:/run/mayfly".to_owned(),
        "/var/run/docker.sock:/var/run/docker.sock".to_owned(),
    ];
    let mut run = vec![
        "run",
        "--detach",
        "--name",
        &name,
        "--network",
        "none",
        "--init",
    ];
    run.extend([
        "--cap-add",
        "SYS_ADMIN",
        "--cap-add",
        "SYS_PTRACE",
        "--cap-add",
        "DAC_READ_SEARCH",
        "--security-opt",
        "seccomp=unconfined",
        "--pid",
        "host",
        "--user",
        "0",
        "--workdir",
        "/",
    ]);
    for bind in &binds {
        run.extend(["--volume", bind]);
    }
    for setting in ["MAYFLY__HTTP__LISTEN=off", "MAYFLY__DISK__FLOOR_MIB=64"] {
        run.extend(["--env", setting]);
    }
    let program = ["/program/mayfly-under-test", "--data-dir", "/data/d"];
    run.push("mayfly/base");
    run.extend(program);
    run.push("serve");
    std::fs::create_dir_all("/run/mayfly").unwrap();
    engine::run("docker", &run);
    let worker = Contained(name);
    let mayfly = |arguments: &[&str]| {
        let exec = ["exec", &worker.0];
        engine::run("docker", &[&exec[..], &program, arguments].concat())
    };
    let socket = folder.path().join("d/mayfly.sock");
    let deadline = std::time::Instant::now() + PATIENCE;
    while !socket.exists() {
        assert!(std::time::Instant::now() < deadline, "{}", worker.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    let made: serde_json::Value =
        serde_json::from_str(&mayfly(&["--json", "agent", "new"])).unwrap();
    let agent = made["agent"]["id"]
        .as_str()
        .unwrap_or_else(|| panic!("{made}"));
    let sent = mayfly(&["agent", "send", agent, "echo kept > f && cat f"]);
    assert_eq!(sent, "kept\n", "{}", worker.log());
    assert_eq!(
        mayfly(&["agent", "send", agent, "mv f g && cat g"]),
        "kept\n"
    );
    let id = engine::sql(
        &folder.path().join("d/mayfly.db"),
        "SELECT id FROM installation",
    );
    let digits = id.replace('-', "");
    let prefix = format!("mayfly-{}-", &digits[digits.len() - 8..]);
    assert_eq!(engine::containers(&prefix), Vec::<String>::new());
    assert_eq!(engine::volumes(&prefix), Vec::<String>::new());
    drop(worker);
    engine::forget_images(&prefix);
}

/// A container by name; dropped, it is removed.
struct Contained(String);

impl Contained {
    fn log(&self) -> String {
        engine::run("sh", &["-c", &format!("docker logs {} 2>&1", self.0)])
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        let remove = ["rm", "--force", "--volumes", &self.0];
        let _ = std::process::Command::new("docker").args(remove).output();
    }
}
