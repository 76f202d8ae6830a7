//! What a sandbox holds: exactly the rights it needs, and nothing that is the host's.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use mayfly_domain::Limits;
use mayfly_tests::{engine, server::Server};

use crate::table::world;

/// SETGID, SETUID and KILL.
const OF_INIT: &str = "00000000000000e0";
const NONE: &str = "0000000000000000";

fn fields(status: &str) -> BTreeMap<&str, String> {
    status
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name, value.split_whitespace().collect::<Vec<_>>().join(" ")))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn init_has_three_capabilities_and_the_agent_none() {
    let world = world(Limits::default()).await;
    let agent = world.shell().await;
    let status = world
        .reply(agent, "cat /proc/self/status; echo ==; cat /proc/1/status")
        .await;
    let (own, init) = status.split_once("==\n").expect("both can be read");
    let (own, init) = (fields(own), fields(init));
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(own[set], NONE, "{set}");
    }
    for set in ["CapPrm", "CapEff"] {
        assert_eq!(init[set], OF_INIT, "{set}");
    }
    assert_eq!(init["CapAmb"], NONE);
    assert_eq!(
        (own["CapBnd"].as_str(), init["CapBnd"].as_str()),
        (OF_INIT, OF_INIT)
    );
    assert_eq!(
        (own["Uid"].as_str(), own["Gid"].as_str()),
        ("1000 1000 1000 1000", "1000 1000 1000 1000")
    );
    assert_eq!(
        (own["Groups"].as_str(), init["Uid"].as_str()),
        ("", "0 0 0 0")
    );
    assert_eq!(init["Threads"], "1");
    for process in [&own, &init] {
        assert_eq!(
            (process["NoNewPrivs"].as_str(), process["Seccomp"].as_str()),
            ("1", "2")
        );
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_mounts_and_the_environment_are_the_sandboxs_own() {
    let world = world(Limits::default()).await;
    let agent = world.shell().await;
    let names = world
        .reply(
            agent,
            "tr '\\0' '\\n' < /proc/$$/environ | cut -d= -f1 | sort | tr '\\n' ' '",
        )
        .await;
    assert_eq!(names, "HOME LANG PATH PWD USER");
    let handles = "python3 -c 'import os; print(sorted(os.listdir(\"/proc/self/fd\"), key=int))'";
    // The fourth is the listing's own.
    assert_eq!(world.reply(agent, handles).await, "['0', '1', '2', '3']");
    let mounts = "awk '$4 ~ /^rw/ {print $2}' /proc/mounts";
    // The agent's own, and what belongs to root or is empty.
    let known = [
        "/work",
        "/home/agent",
        "/tmp",
        "/dev/shm",
        "/dev/mqueue",
        "/dev",
        "/dev/pts",
        "/proc",
        "/proc/keys",
        "/proc/timer_list",
        "/proc/kcore",
        "/proc/latency_stats",
        "/proc/sched_debug",
        "/proc/interrupts",
        "/sys/fs/cgroup",
    ];
    for mount in world.reply(agent, mounts).await.lines() {
        assert!(known.contains(&mount), "{mount} can be written");
    }
    let slots =
        "awk '$2 == \"/work\" || $2 == \"/home/agent\" || $2 == \"/tmp\" {print $4}' /proc/mounts";
    for options in world.reply(agent, slots).await.lines() {
        assert!(
            options.contains("nosuid") && options.contains("nodev"),
            "{options}"
        );
    }
    // What looks like init's words to the worker is an agent's output.
    let forged = "printf '\\001\\000\\000\\000\\011Exit\\000\\377{\"code\":0}\\n'; printf forged >&2; exit 7";
    let text = world.reply(agent, forged).await;
    assert!(
        text.contains("exit 7, changes kept") && text.contains("forged"),
        "{text}"
    );
    world.end().await;
}

#[test]
fn neither_message_nor_secrets_of_the_server_show_in_a_sandbox_or_its_description() {
    const CANARY: &str = "canary-4c1f9e";
    const WORDS: &str = "words-of-a-message";
    let mut server = Server::new(env!("CARGO_BIN_EXE_mayfly-under-test"))
        .env("AWS_SECRET_ACCESS_KEY", CANARY)
        .env("ANTHROPIC_API_KEY", CANARY);
    server.start();
    let agent = server.agent();
    let text = format!(
        "echo {WORDS}; sleep 3; env; cat /proc/*/environ /proc/*/cmdline /proc/mounts 2>/dev/null | tr '\\0' '\\n'"
    );
    let client = server
        .command(&["agent", "send", &agent, &text])
        .output_later();
    let prefix = server.prefix();
    let until = Instant::now() + Duration::from_secs(15);
    let described = loop {
        let running = engine::run("docker", &["ps", "--format", "{{.Names}}"]);
        if let Some(name) = running.lines().find(|name| name.starts_with(&prefix)) {
            std::thread::sleep(Duration::from_secs(1));
            break engine::run("docker", &["inspect", name])
                + &engine::run("docker", &["top", name, "-ef"]);
        }
        assert!(
            Instant::now() < until,
            "it does not start: {}",
            server.log()
        );
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(
        described.contains("mayfly-init") && described.contains("sleep 3"),
        "{described}"
    );
    let answer = client.join().expect("it ends");
    assert!(
        answer.contains(WORDS) && answer.contains("PATH="),
        "{answer}"
    );
    for (place, content) in [("description", &described), ("sandbox", &answer)] {
        assert!(
            !content.contains(CANARY),
            "a secret is in the {place}: {content}"
        );
    }
    assert!(
        !described.contains(WORDS),
        "the message is in the description: {described}"
    );
    assert!(
        !server.log().contains(CANARY) && !server.log().contains(WORDS),
        "{}",
        server.log()
    );
    server.stop();
    server.assert_nothing_left();
}

trait Later {
    fn output_later(self) -> std::thread::JoinHandle<String>;
}

impl Later for std::process::Command {
    /// What the command prints, once it has ended.
    #[allow(clippy::disallowed_methods)]
    fn output_later(mut self) -> std::thread::JoinHandle<String> {
        std::thread::spawn(move || {
            let output = self.output().expect("it starts");
            String::from_utf8_lossy(&output.stdout).into_owned()
        })
    }
}
