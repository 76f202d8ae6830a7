//! Agents that do not want to end, or to let others live.

use std::time::{Duration, Instant, SystemTime};

use mayfly_domain::{Limits, MessageOutcome};
use mayfly_orchestrator::{agent::profile::Profile, view::MessageView};
use mayfly_tests::{
    engine,
    server::Server,
    world::{Setup, World},
};
use rustix::process::{Pid, Signal, kill_process};

use crate::table::{message, world};

const BUSY: &str = include_str!("../../hostile/busy.py");
const BOMB: &str = include_str!("../../hostile/bomb.py");
const STOPPED: &str = include_str!("../../hostile/stopped.py");
const HEADLESS: &str = include_str!("../../hostile/headless.py");
/// Ignores everything that can be ignored.
const DEAF: &str = "trap '' INT TERM HUP; echo deaf; while :; do sleep 0.1; done";

const WALL: u64 = 3;
/// From the limit to SIGKILL.
const POLITE: Duration = Duration::from_secs(5);
/// Start and teardown of a sandbox on a busy machine.
const SLACK: Duration = Duration::from_secs(5);

fn limits() -> Limits {
    Limits {
        wall_clock_s: WALL,
        pids: 80,
        memory_mib: 256,
        ..Limits::default()
    }
}

/// A script below a shell that is as deaf as the script.
fn deaf_script(body: &str) -> String {
    format!("trap '' INT TERM HUP; {}", message(body))
}

fn in_time(began: Instant) {
    let limit = Duration::from_secs(WALL) + POLITE + SLACK;
    assert!(
        began.elapsed() < limit,
        "{:?} is over {limit:?}",
        began.elapsed()
    );
}

fn text(message: &MessageView) -> &str {
    message.reply.as_ref().map_or("", |reply| &reply.text)
}

fn timed_out_and_discarded(message: &MessageView, said: &str) {
    let text = text(message);
    let notice = format!("time limit of {WALL} s reached, changes discarded");
    assert!(text.contains(said) && text.contains(&notice), "{text}");
    assert_eq!(message.outcome, Some(MessageOutcome::Noticed), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slowing_pid_1_and_55_busy_loops_do_not_move_the_deadline() {
    let world = world(limits()).await;
    let agent = world.shell().await;
    world.say(agent, "echo warm").await;
    let began = Instant::now();
    let said = world.say(agent, &deaf_script(BUSY)).await;
    in_time(began);
    timed_out_and_discarded(&said, "55 loops");
    assert!(!text(&said).contains("SUCCEEDED"), "{}", text(&said));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ignores_stops_or_hides_itself_ends_by_sigkill() {
    let world = World::docker_with(Setup {
        limits: limits(),
        worker: mayfly_orchestrator::worker::WorkerConfig {
            max_running: 8,
            ..Setup::default().worker
        },
        ..Setup::default()
    })
    .await;
    let mut agents = Vec::new();
    for _ in 0..6 {
        agents.push(world.shell().await);
    }
    world.say(agents[0], "touch kept").await;
    let began = Instant::now();
    let deaf = world.post(agents[0], &format!("rm kept; {DEAF}")).await;
    let stopped = world.post(agents[1], &deaf_script(STOPPED)).await;
    let headless = world.post(agents[2], &deaf_script(HEADLESS)).await;
    let killed = "python3 -c 'import os; os.kill(-1, 9); os.write(1, b\"alone\")'; echo after";
    let killed = world.post(agents[3], killed).await;
    let silent = world.post(agents[4], "exec >&- 2>&- <&-; sleep 1").await;
    let daemon = "setsid sh -c 'trap \"\" INT TERM; while :; do date >> log; sleep 0.01; done' \
                  >/dev/null 2>&1 & sleep 0.3; echo bye";
    let daemon = world.post(agents[5], daemon).await;

    timed_out_and_discarded(&world.outcome(&deaf).await, "deaf");
    timed_out_and_discarded(&world.outcome(&stopped).await, "stopping");
    timed_out_and_discarded(&world.outcome(&headless).await, "headless");
    in_time(began);
    let killed = world.outcome(&killed).await;
    assert!(
        text(&killed).contains("killed by signal 9, changes discarded"),
        "{killed:?}"
    );
    let silent = world.outcome(&silent).await;
    assert_eq!(text(&silent), "no answer, changes kept");
    assert_eq!(text(&world.outcome(&daemon).await), "bye");

    assert_eq!(world.reply(agents[0], "ls").await, "kept");
    let log = world
        .reply(agents[5], "wc -l < log; sleep 1; wc -l < log")
        .await;
    let counts: Vec<u32> = log.lines().map(|line| line.parse().unwrap()).collect();
    assert!(
        counts[0] > 0 && counts[0] == counts[1],
        "it runs on: {counts:?}"
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_ends_at_the_deadline_and_neighbours_go_on() {
    let world = world(limits()).await;
    let (bomber, neighbour) = (world.shell().await, world.shell().await);
    world.say(neighbour, "echo warm").await;
    let began = Instant::now();
    let bomb = world.post(bomber, &deaf_script(BOMB)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked = Instant::now();
    assert_eq!(world.reply(neighbour, "echo hi").await, "hi");
    assert!(
        asked.elapsed() < Duration::from_secs(WALL),
        "{:?}",
        asked.elapsed()
    );
    timed_out_and_discarded(&world.outcome(&bomb).await, "no more room");
    in_time(began);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_output_costs_neither_memory_nor_time() {
    let world = world(Limits {
        output_bytes: 64 << 10,
        transcript_bytes: 256 << 10,
        ..limits()
    })
    .await;
    let agent = world.shell().await;
    world.say(agent, "yes | head -c 1000000").await;
    let (before, began) = (resident_kib(), Instant::now());
    let flood = world.post(agent, "yes >&2 & yes '\u{1b}[2J' & yes").await;
    let mut most = 0;
    let flood = loop {
        let now = world.commands().message(flood.id).await.unwrap();
        most = most.max(resident_kib());
        if now.outcome.is_some() {
            break now;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    in_time(began);
    assert!(
        most < before + (64 << 10),
        "{before} KiB grew to {most} KiB"
    );
    assert!(
        text(&flood).contains("time limit of 3 s reached"),
        "{}",
        text(&flood).len()
    );
    assert!(text(&flood).len() < 128 << 10, "{}", text(&flood).len());
    let ran = world
        .commands()
        .tick(flood.tick.expect("it ran"))
        .await
        .unwrap();
    let written = ran.tick.usage.output_bytes;
    assert!(written > 10 << 20, "no flood: {written} bytes");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_never_reads_its_message() {
    let mut setup = Setup {
        limits: limits(),
        ..Setup::default()
    };
    for (name, script) in [
        ("sleeper", "sleep 1; echo awake"),
        ("closer", "exec 0<&-; echo shut"),
    ] {
        let profile = Profile {
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            limits: limits(),
            ..Profile::default()
        };
        setup.profiles.push((name.to_owned(), profile));
    }
    let world = World::docker_with(setup).await;
    let long = "x".repeat((1 << 20) - 1);
    for (profile, answer) in [("sleeper", "awake"), ("closer", "shut")] {
        let agent = world.agent(profile).await.unwrap();
        assert_eq!(world.reply(agent, &long).await, answer);
    }
    world.end().await;
}

/// The message's program is deaf until then; after that it is harmless.
fn deaf_until(then: SystemTime) -> String {
    let then = then
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("after 1970")
        .as_secs();
    format!(
        "if [ $(date +%s) -ge {then} ]; then echo harmless; exit; fi\n\
         for i in $(seq 20); do setsid sh -c 'trap \"\" INT TERM HUP; while :; do :; done' & done\n{DEAF}"
    )
}

#[test]
fn with_every_process_of_ours_dead_or_asleep_a_deaf_agent_is_gone_in_15_s() {
    std::thread::scope(|scope| {
        for (signal, limit) in [(Signal::KILL, 5), (Signal::STOP, 15 + 4)] {
            scope.spawn(move || outlives_its_worker(signal, Duration::from_secs(limit)));
        }
    });
}

fn outlives_its_worker(signal: Signal, limit: Duration) {
    let mut server = Server::new(env!("CARGO_BIN_EXE_mayfly-under-test"));
    server.start();
    let agent = server.agent();
    let harmless = now() + Duration::from_secs(13);
    let text = deaf_until(harmless);
    let mut client = server
        .command(&["agent", "send", &agent, &text])
        .spawn()
        .unwrap();
    let prefix = server.prefix();
    let until = Instant::now() + Duration::from_secs(10);
    let processes = loop {
        let processes: usize = running(&prefix).iter().map(|name| processes(name)).sum();
        if processes > 20 {
            break processes;
        }
        assert!(
            Instant::now() < until,
            "the agent does not start: {}",
            server.log()
        );
        std::thread::sleep(Duration::from_millis(100));
    };
    let pid = Pid::from_raw(server.pid() as i32).unwrap();
    kill_process(pid, signal).unwrap();
    let _ = client.kill();
    client.wait().unwrap();
    let began = Instant::now();
    while !running(&prefix).is_empty() {
        assert!(
            began.elapsed() < limit,
            "{processes} processes live on after {signal:?}"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    if signal == Signal::STOP {
        let soon = Duration::from_secs(8);
        assert!(
            began.elapsed() > soon,
            "{:?}: it was not the heartbeat",
            began.elapsed()
        );
        kill_process(pid, Signal::CONT).unwrap();
    } else {
        server.kill();
        std::thread::sleep(harmless.duration_since(now()).unwrap_or_default());
        server.start();
    }
    server.until_sql("SELECT count(*) FROM messages WHERE outcome IS NULL", "0");
    server.stop();
    server.assert_nothing_left();
}

/// As the sandbox reads it.
#[allow(clippy::disallowed_methods)]
fn now() -> SystemTime {
    SystemTime::now()
}

fn running(prefix: &str) -> Vec<String> {
    let names = engine::run("docker", &["ps", "--format", "{{.Names}}"]);
    names
        .lines()
        .filter(|name| name.starts_with(prefix))
        .map(str::to_owned)
        .collect()
}

fn processes(container: &str) -> usize {
    let top = std::process::Command::new("docker")
        .args(["top", container, "-eo", "pid"])
        .output();
    top.map_or(0, |top| {
        String::from_utf8_lossy(&top.stdout).lines().count()
    })
}

/// Memory of this process, which is the server's.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let count = line.and_then(|line| line.split_whitespace().next());
    count
        .and_then(|count| count.parse().ok())
        .expect("VmRSS is there")
}
