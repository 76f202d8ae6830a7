//! Sandboxes that cannot start, end too early, do not go away, or outlive those who made them.

use std::{
    collections::VecDeque,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use mayfly_domain::{AgentId, MessageId, MessageOutcome};
use mayfly_orchestrator::{command::NewAgent, view::MessageView};
use mayfly_tests::{
    engine,
    front::{Act, Front, Request},
    second_engine::SecondEngine,
    server::Server,
    world::{PATIENCE, Setup, World},
};

const MAYFLY: &str = env!("CARGO_BIN_EXE_mayfly-under-test");

fn behind(front: &Front) -> Setup {
    Setup {
        docker_host: Some(front.host()),
        ..Setup::default()
    }
}

fn text(message: &MessageView) -> &str {
    message.reply.as_ref().map_or("", |reply| &reply.text)
}

/// The container of a message's n-th tick, once its program runs.
async fn running(world: &World, message: MessageId, nth: u32) -> String {
    let ticks = format!("FROM ticks WHERE message = '{message}'");
    let wanted =
        format!("SELECT count(*) = {nth} AND max(outcome IS NULL AND phase = 'running') {ticks}");
    world.until_sql(&wanted, "1").await;
    world.sql(&format!(
        "SELECT json_extract(names, '$.container') {ticks} AND outcome IS NULL"
    ))
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        sleep(Duration::from_millis(50));
    }
}

/// Five attempts are created and do not start: each has names of its own, nothing of them is left,
/// and the sixth answers.
#[tokio::test(flavor = "multi_thread")]
async fn cl_01_created_and_not_started_five_times() {
    let left = Mutex::new(5);
    let front = Front::new(move |request| {
        let mut left = left.lock().unwrap();
        if request.starts() && *left > 0 {
            *left -= 1;
            return Act::Answer(500, "cannot start");
        }
        Act::Pass
    });
    let world = World::docker_with(behind(&front)).await;
    let agent = world.shell().await;
    let message = world.say(agent, "echo started").await;
    assert_eq!(message.outcome, Some(MessageOutcome::Parked));
    assert!(
        text(&message).contains("gave up after 3 attempts"),
        "{}",
        text(&message)
    );
    assert_eq!(engine::containers(&world.prefix()), Vec::<String>::new());
    assert_eq!(engine::volumes(&world.prefix()), Vec::<String>::new());
    let retried = world.commands().retry(&message.id.to_string()).await;
    let message = world.outcome(&retried.unwrap()).await;
    assert_eq!(text(&message), "started");
    let started: Vec<String> = front
        .heard()
        .into_iter()
        .filter(Request::starts)
        .map(|r| r.path)
        .collect();
    let mut names = started.clone();
    names.sort();
    names.dedup();
    assert_eq!((started.len(), names.len()), (6, 6), "{started:?}");
    world.end().await;
}

/// The server dies with sandboxes that are created, running, paused and exited: a new start
/// removes all four, and each message is answered once.
#[test]
fn cl_02_killed_with_sandboxes_in_every_state() {
    let hold = Arc::new(AtomicBool::new(false));
    let held = hold.clone();
    let front = Front::new(move |request| {
        if request.starts() && held.load(Ordering::SeqCst) {
            until("the start is let go", || !held.load(Ordering::SeqCst));
            return Act::Answer(500, "nobody waits for this any more");
        }
        Act::Pass
    });
    let mut server = Server::new(MAYFLY).env("MAYFLY__DOCKER__HOST", &front.host());
    server.start();
    let command = "test -n \"$AGAIN$again\" && echo again || sleep 600";
    let mut sent = Vec::new();
    let mut send = |server: &Server, running: usize| {
        let agent = server.agent();
        let view = server.json(&["agent", "send", "--no-wait", &agent, command]);
        let id = view["id"].as_str().expect("an id").to_owned();
        let ticks = format!("FROM ticks WHERE message = '{id}'");
        let count = "SELECT count(*) FROM ticks WHERE phase = 'running'";
        until("it runs", || server.sql(count) == running.to_string());
        until("it has a tick", || {
            server.sql(&format!("SELECT count(*) {ticks}")) == "1"
        });
        sent.push(id);
        server.sql(&format!(
            "SELECT json_extract(names, '$.container') {ticks}"
        ))
    };
    let (running, paused, exited) = (send(&server, 1), send(&server, 2), send(&server, 3));
    hold.store(true, Ordering::SeqCst);
    let created = send(&server, 3);
    until("it is created", || engine::containers(&created).len() == 1);
    engine::run("docker", &["pause", &paused]);
    // A running one whose init cannot notice that its worker is gone.
    let pid = engine::run("docker", &["inspect", "-f", "{{.State.Pid}}", &running]);
    engine::run("kill", &["-STOP", pid.trim()]);
    server.kill();
    hold.store(false, Ordering::SeqCst);
    let state = |name: &str| {
        let state = engine::run("docker", &["inspect", "-f", "{{.State.Status}}", name]);
        state.trim().to_owned()
    };
    until("init has noticed", || state(&exited) == "exited");
    let states = [&created, &running, &paused, &exited].map(|name| state(name));
    assert_eq!(states, ["created", "running", "paused", "exited"]);

    server.set_env("MAYFLY__PROFILES__SHELL__ENV__AGAIN", "1");
    server.start();
    let open = "SELECT count(*) FROM messages WHERE outcome IS NULL";
    until("all have an outcome", || server.sql(open) == "0");
    let unproved = "SELECT count(*) FROM ticks WHERE removed_at IS NULL";
    until("all are proved to be gone", || server.sql(unproved) == "0");
    let told = "SELECT m.outcome, count(d.id), min(d.text) FROM messages m JOIN deliveries d
                ON d.message = m.id GROUP BY m.id";
    assert_eq!(server.sql(told), ["answered|1|again"; 4].join("\n"));
    let first = "SELECT count(*) FROM ticks WHERE outcome = 'interrupted' AND retry_of IS NULL";
    assert_eq!(server.sql(first), "4");
    server.stop();
    server.assert_nothing_left();
}

/// A removal is answered "in progress" twice, then "busy", then somebody else has done it.
#[tokio::test(flavor = "multi_thread")]
async fn cl_03_a_removal_that_is_refused_is_repeated() {
    let script = [(409, "in progress"), (409, "in progress"), (500, "busy")];
    let script = Mutex::new(VecDeque::from(script));
    let asked = Arc::new(Mutex::new(0));
    let count = asked.clone();
    let front = Front::new(move |request| {
        if !request.removes_container() || request.path.contains("-base-") {
            return Act::Pass;
        }
        *count.lock().unwrap() += 1;
        match script.lock().unwrap().pop_front() {
            Some((status, message)) => Act::Answer(status, message),
            None => {
                let name = request.path.rsplit('/').next().unwrap_or_default();
                engine::run("docker", &["rm", "-f", name]);
                Act::Pass
            }
        }
    });
    let world = World::docker_with(behind(&front)).await;
    let agent = world.shell().await;
    let message = world.say(agent, "echo there >f; echo answered").await;
    assert_eq!(text(&message), "answered");
    assert_eq!(message.attempts, 0);
    assert_eq!(*asked.lock().unwrap(), 4);
    world.end().await;
}

/// A volume that cannot be removed: after the minute in which the removal is tried nothing of it
/// is kept, the message runs again, the stuck one stays on the list and is told, and is removed
/// when that is possible.
#[tokio::test(flavor = "multi_thread")]
async fn cl_03_what_cannot_be_removed_is_told_and_holds_up_nobody() {
    let stuck: Arc<Mutex<Option<String>>> = Arc::default();
    let (victim, free) = (stuck.clone(), Arc::new(AtomicBool::new(false)));
    let freed = free.clone();
    let front = Front::new(move |request| {
        let removes = request.method == "DELETE" && request.path.starts_with("/volumes/");
        if !removes || request.path.contains("-base-") || freed.load(Ordering::SeqCst) {
            return Act::Pass;
        }
        let mut victim = victim.lock().unwrap();
        match &*victim {
            Some(path) if *path != request.path => return Act::Pass,
            _ => *victim = Some(request.path.clone()),
        }
        Act::Answer(500, "device or resource busy")
    });
    let world = World::docker_with(behind(&front)).await;
    let agent = world.shell().await;
    let other = world.shell().await;
    let began = Instant::now();
    let posted = world
        .post(agent, "cat f; echo once >>f; echo answered")
        .await;
    until("a removal is stuck", || stuck.lock().unwrap().is_some());
    assert_eq!(world.reply(other, "echo beside it").await, "beside it");
    let patience = Duration::from_secs(85);
    let message = world.commands().wait(posted.id, patience).await.unwrap();
    assert_eq!(text(&message), "answered", "{:?}", began.elapsed());
    assert_eq!(message.attempts, 1);
    assert_eq!(world.reply(agent, "cat f").await, "once");
    let unproved = "SELECT count(*) FROM ticks WHERE removed_at IS NULL";
    assert_eq!(world.sql(unproved), "1");

    assert_eq!(
        world.commands().ready().await.warnings,
        Vec::<String>::new()
    );
    let database = world.data_dir().join("mayfly.db");
    let earlier = "UPDATE ticks SET ended_at = ended_at - 600000 WHERE removed_at IS NULL";
    engine::run(
        "sqlite3",
        &[
            "-cmd",
            ".timeout 60000",
            database.to_str().unwrap(),
            earlier,
        ],
    );
    let ready = world.commands().ready().await;
    let name =
        world.sql("SELECT json_extract(names, '$.container') FROM ticks WHERE removed_at IS NULL");
    assert!(ready.ready, "{ready:?}");
    assert!(
        ready.warnings.len() == 1 && ready.warnings[0].contains(&name),
        "{ready:?}"
    );

    free.store(true, Ordering::SeqCst);
    world.until_sql(unproved, "0").await;
    assert_eq!(
        world.commands().ready().await.warnings,
        Vec::<String>::new()
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cl_04_removed_by_somebody_else_in_the_middle() {
    let world = World::docker().await;
    let agent = world.shell().await;
    world.reply(agent, "echo good >f").await;
    let posted = world
        .post(agent, "cat f; echo lost >f; sleep 3; echo end")
        .await;
    let container = running(&world, posted.id, 1).await;
    let began = Instant::now();
    engine::run("docker", &["rm", "-f", &container]);
    let closed = format!(
        "SELECT outcome FROM ticks WHERE message = '{}' ORDER BY id LIMIT 1",
        posted.id
    );
    world.until_sql(&closed, "interrupted").await;
    assert!(began.elapsed() < Duration::from_secs(14), "{began:?}");
    let message = world.outcome(&posted).await;
    assert_eq!(text(&message), "good\nend");
    assert_eq!(message.attempts, 1);
    assert_eq!(world.reply(agent, "cat f").await, "lost");
    world.end().await;
}

/// Three interruptions: the message is parked with a notice and stays there until a person says so.
#[tokio::test(flavor = "multi_thread")]
async fn cl_04_interrupted_three_times_is_parked_and_answers_after_a_retry() {
    let world = World::docker().await;
    let agent = world.shell().await;
    let posted = world.post(agent, "sleep 2; echo alive").await;
    for nth in 1..=3 {
        let container = running(&world, posted.id, nth).await;
        if nth == 2 {
            let pid = engine::run("docker", &["inspect", "-f", "{{.State.Pid}}", &container]);
            engine::run("kill", &["-KILL", pid.trim()]);
        } else {
            engine::run("docker", &["rm", "-f", &container]);
        }
    }
    let message = world.outcome(&posted).await;
    assert_eq!(message.outcome, Some(MessageOutcome::Parked));
    let told = text(&message);
    assert!(
        told.starts_with("gave up after 3 attempts: ") && told.ends_with(", changes discarded"),
        "{told}"
    );
    let parked = world.commands().parked().await.unwrap();
    assert_eq!(parked.len(), 1);
    // It holds up nothing.
    assert_eq!(world.reply(agent, "echo next").await, "next");
    let retried = world.commands().retry(&message.id.short()).await.unwrap();
    let message = world.outcome(&retried).await;
    assert_eq!(message.outcome, Some(MessageOutcome::Answered));
    assert_eq!(text(&message), "alive");
    assert!(world.commands().retry(&message.id.short()).await.is_err());
    world.end().await;
}

async fn restarted(live_restore: bool) {
    let mut engine = SecondEngine::start(live_restore);
    let world = World::docker_with(Setup {
        docker_host: Some(engine.host()),
        ..Setup::default()
    })
    .await;
    let agent = world.shell().await;
    world.reply(agent, "echo good >f").await;
    let posted = world
        .post(agent, "cat f; echo lost >f; sleep 3; echo end")
        .await;
    running(&world, posted.id, 1).await;
    let began = Instant::now();
    engine.restart();
    let ended = format!(
        "SELECT count(*) FROM ticks WHERE message = '{}' AND phase = 'running' AND outcome IS NULL",
        posted.id
    );
    if !live_restore {
        world.until_sql(&ended, "0").await;
        assert!(began.elapsed() < Duration::from_secs(20), "{began:?}");
    }
    // With live-restore the program goes on, but its volume may stay until the engine's next start.
    let patience = Duration::from_secs(150);
    let message = world.commands().wait(posted.id, patience).await.unwrap();
    assert_eq!(text(&message), "good\nend");
    assert!(message.attempts <= 1, "{message:?}");
    assert_eq!(world.reply(agent, "cat f").await, "lost");
    let unproved = "SELECT count(*) FROM ticks WHERE removed_at IS NULL";
    if live_restore && world.sql(unproved) != "0" {
        engine.restart();
    }
    world.until_sql(unproved, "0").await;
    world.end().await;
    assert_eq!(engine.left(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn cl_04_the_engine_is_restarted_in_the_middle() {
    restarted(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cl_04_the_engine_is_restarted_in_the_middle_with_live_restore() {
    restarted(true).await;
}

/// Three hundred orphans under a limit of 256 processes: init buries each.
/// The engine has some thirty networks to give. Ticks one after the other, at once and killed take none of them.
#[tokio::test(flavor = "multi_thread")]
async fn cl_06_no_tick_makes_or_joins_a_network() {
    let front = Front::new(|_| Act::Pass);
    let world = World::docker_with(behind(&front)).await;
    let mut posted = Vec::new();
    for _ in 0..4 {
        let agent = world.shell().await;
        for text in ["sleep 6; echo one", "echo two", "echo three"] {
            posted.push(world.post(agent, text).await);
        }
    }
    let mut containers = Vec::new();
    for message in posted.iter().step_by(3) {
        containers.push(running(&world, message.id, 1).await);
    }
    for container in &containers {
        let networks = "{{.HostConfig.NetworkMode}}{{range $name, $_ := .NetworkSettings.Networks}} {{$name}}{{end}}";
        let found = engine::run("docker", &["inspect", "-f", networks, container]);
        assert_eq!(found.trim(), "none none");
    }
    for container in &containers[..2] {
        engine::run("docker", &["rm", "-f", container]);
    }
    for message in &posted {
        let message = world.outcome(message).await;
        assert_eq!(message.outcome, Some(MessageOutcome::Answered));
    }
    let heard = front.heard();
    assert!(heard.iter().filter(|asked| asked.starts()).count() >= 14);
    let of_networks = |asked: &&Request| asked.path.starts_with("/networks");
    assert_eq!(
        heard.iter().find(of_networks).map(|asked| &asked.path),
        None
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cl_07_three_hundred_orphans_are_buried() {
    let world = World::docker().await;
    let agent = world.shell().await;
    let orphans = "cat >orphans.py <<'END'
import os
for _ in range(300):
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.waitpid(child, 0)
print('forked')
END
python3 orphans.py && python3 orphans.py && ls /proc | grep -c '^[0-9]'";
    let reply = world.reply(agent, orphans).await;
    let (forked, left) = reply.rsplit_once('\n').unwrap_or_default();
    assert_eq!(forked, "forked\nforked");
    assert!(
        left.parse::<u32>().unwrap() < 20,
        "{left} processes are left"
    );
    world.end().await;
}

/// The host dies with a tick: nothing comes back by itself, and a new start answers.
#[test]
fn cl_07_nothing_restarts_by_itself_after_the_host_did() {
    let mut engine = SecondEngine::start(false);
    let mut server = Server::new(MAYFLY).env("MAYFLY__DOCKER__HOST", &engine.host());
    server.start();
    let agent = server.agent();
    server.json(&[
        "agent",
        "send",
        "--no-wait",
        &agent,
        "sleep 2; echo answered",
    ]);
    let open = "SELECT count(*) FROM ticks WHERE phase = 'running' AND outcome IS NULL";
    until("it runs", || server.sql(open) == "1");
    server.kill();
    engine.lose();
    engine.up();
    // An engine starts what has a restart policy before and shortly after it answers.
    let window = Instant::now() + Duration::from_secs(3);
    while Instant::now() < window {
        let running = engine.docker(&["ps", "--format", "{{.Names}} {{.Status}}"]);
        assert_eq!(running, Vec::<String>::new());
        sleep(Duration::from_millis(100));
    }
    let records = engine.docker(&["ps", "-a", "-q"]);
    assert_eq!(records.len(), 1, "its record is there to be found");
    let policy = "{{.HostConfig.RestartPolicy.Name}} {{.RestartCount}}";
    assert_eq!(
        engine.docker(&["inspect", "-f", policy, &records[0]]),
        ["no 0"]
    );
    server.start();
    until("it is answered", || {
        server.sql("SELECT group_concat(text, '+') FROM deliveries") == "answered"
    });
    let unproved = "SELECT count(*) FROM ticks WHERE removed_at IS NULL";
    until("all are proved to be gone", || server.sql(unproved) == "0");
    server.stop();
    assert_eq!(engine.left(), Vec::<String>::new());
}

/// An image made for one test.
struct Image(String);

impl Image {
    fn build(name: &str, dockerfile: &str) -> Image {
        let name = format!("mayfly-test/{name}");
        let build =
            "printf '%s' \"$1\" | DOCKER_BUILDKIT=0 docker build --network none -q -t \"$0\" -";
        let built = Command::new("sh")
            .args(["-c", build, &name, dockerfile])
            .stdout(Stdio::null())
            .status();
        assert!(built.expect("sh").success(), "{name} cannot be built");
        Image(name)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let remove = Command::new("docker").args(["rmi", &self.0]).output();
        drop(remove);
    }
}

async fn of_image(world: &World, image: &str) -> AgentId {
    let sandbox = Some(format!("docker:{image}").parse().unwrap());
    let new = NewAgent {
        profile: None,
        sandbox,
    };
    world.commands().create_agent(new).await.unwrap().id
}

/// The service is root, the agent is not: whatever the image says of users and owners, the agent
/// writes its state, finds it as its own in the next tick, and its files are its own on the host.
#[tokio::test(flavor = "multi_thread")]
async fn cf_03_state_is_the_agents_own_whatever_the_image_says() {
    let user = Image::build("user501", "FROM mayfly/base\nUSER 501\n");
    let locked = Image::build(
        "locked",
        "FROM mayfly/base\nUSER root\nRUN rm -rf /work /home/agent && mkdir -m 700 /work && \
         echo seed >/work/seed\n",
    );
    let world = World::docker().await;
    for (image, uid) in [
        ("mayfly/base", "1000"),
        ("mayfly/tiny", "1000"),
        (user.0.as_str(), "501"),
        (locked.0.as_str(), "1000"),
    ] {
        let agent = of_image(&world, image).await;
        let write =
            "id -u && mkdir d && echo 1 >d/f && echo 2 >~/h && stat -c %u . ~ d/f ~/h | uniq";
        assert_eq!(
            world.reply(agent, write).await,
            format!("{uid}\n{uid}"),
            "{image}"
        );
        let again = "echo 3 >>d/f && rm -f seed && mv d e && cat e/f ~/h && id -un >/dev/null && echo named";
        assert_eq!(world.reply(agent, again).await, "1\n3\n2\nnamed", "{image}");
        let layer = world.sql(&format!(
            "SELECT s.layer FROM snapshots s JOIN agents a ON a.head = s.id WHERE a.id = '{agent}'"
        ));
        let file = world.data_dir().join("l").join(layer).join("work/e/f");
        let owner = engine::run("stat", &["-c", "%u", file.to_str().unwrap()]);
        assert_eq!(owner.trim(), uid, "{image}");
    }
    world.end().await;
}
