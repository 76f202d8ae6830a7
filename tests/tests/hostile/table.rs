//! Runs a table of attacks and reads its lines.

use std::{
    collections::BTreeMap,
    io::Write as _,
    os::unix::net::UnixListener,
    process::{Command, Stdio},
};

use mayfly_domain::{AgentId, Limits};
use mayfly_tests::world::{Setup, World};

const SHARED: &str = include_str!("../../hostile/attack.py");

/// By the attack's name: `refused …`, `SUCCEEDED …` or `BROKEN …`.
pub(crate) type Lines = BTreeMap<String, String>;

/// A program of the agent, with what all tables share.
pub(crate) fn script(body: &str) -> String {
    format!("{SHARED}\n{body}\n")
}

/// The message that runs a script.
pub(crate) fn message(body: &str) -> String {
    format!("python3 - <<'END-OF-SCRIPT'\n{}END-OF-SCRIPT", script(body))
}

/// A world with these limits.
pub(crate) async fn world(limits: Limits) -> World {
    World::docker_with(Setup {
        limits,
        ..Setup::default()
    })
    .await
}

/// Runs a table and fails unless each attack was refused.
pub(crate) async fn refuses(world: &World, agent: AgentId, body: &str, at_least: usize) -> Lines {
    let text = world.reply(agent, &message(body)).await;
    let lines = lines(&text);
    let failed: Vec<_> = lines
        .iter()
        .filter(|(_, verdict)| !verdict.starts_with("refused"))
        .collect();
    assert!(failed.is_empty(), "{failed:#?}\n{text}");
    assert!(lines.len() >= at_least, "{} lines: {text}", lines.len());
    lines
}

/// The lines of a table; Mayfly's own notes below it are left out.
pub(crate) fn lines(text: &str) -> Lines {
    let line = |line: &str| {
        let (name, verdict) = line
            .rsplit_once(": ")
            .unwrap_or((line, "BROKEN no verdict"));
        (name.to_owned(), verdict.to_owned())
    };
    let notes = |line: &&str| line.is_empty() || line.starts_with("note: ");
    text.lines().filter(|line| !notes(line)).map(line).collect()
}

/// Runs the same table as root in a container with the engine's usual capabilities, a root that
/// can be written, no filter of system calls, and sockets that anybody may dial. There nothing may
/// be refused but what is named, or the table proves nothing.
pub(crate) fn works_unconfined(body: &str, refused_anyway: &[&str]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mayfly = folder.path();
    for name in ["run", "bin"] {
        std::fs::create_dir(mayfly.join(name)).expect("a folder");
    }
    std::fs::write(mayfly.join("bin/mayfly-init"), "").expect("a file");
    let _sockets = ["control", "gateway"]
        .map(|name| UnixListener::bind(mayfly.join("run").join(name)).expect("a socket"));
    let mut child = Command::new("docker")
        .args(["run", "--rm", "-i", "--network", "none", "--user", "0"])
        .args(["--security-opt", "seccomp=unconfined", "--workdir", "/"])
        .args(["--tmpfs", "/work:exec", "--tmpfs", "/home/agent"])
        .args(["-v", &format!("{}:/mayfly", mayfly.display())])
        .args(["mayfly/base", "sh", "-c", "python3 -; true"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("docker runs");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(script(body).as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = lines(&text);
    assert!(!lines.is_empty(), "the table printed nothing");
    let proves_nothing: Vec<_> = lines
        .iter()
        .filter(|(name, verdict)| {
            let excused = refused_anyway.iter().any(|start| name.starts_with(start));
            verdict.starts_with("refused") && !excused
        })
        .collect();
    assert!(proves_nothing.is_empty(), "{proves_nothing:#?}\n{text}");
}
