//! A server that goes away in the middle of a request.

use std::{
    io::Read as _,
    os::unix::net::UnixListener,
    process::Output,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use mayfly_tests::server::Server;
use rustix::process::{Pid, Signal, kill_process};

use super::{PROGRAM, refused, simulated};

/// Runs a command against a server that reads each request and never answers; returns what it heard.
fn unanswered(arguments: &[&str]) -> (Output, Vec<String>) {
    let server = Server::new(PROGRAM);
    std::fs::create_dir(server.data_dir()).expect("a data dir");
    let listener = UnixListener::bind(server.data_dir().join("mayfly.sock")).expect("a socket");
    let heard = Arc::new(Mutex::new(Vec::new()));
    let log = heard.clone();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut bytes = [0; 4096];
            let count = client.read(&mut bytes).unwrap_or(0);
            let request = String::from_utf8_lossy(&bytes[..count]).into_owned();
            // The first knock only asks whether somebody listens.
            if let Some(line) = request.lines().next() {
                log.lock().expect("a log").push(line.to_owned());
            }
        }
    });
    let output = server.mayfly(arguments);
    let heard = heard.lock().expect("a log").clone();
    (output, heard)
}

#[test]
fn what_may_have_been_done_is_not_asked_for_twice() {
    for (arguments, look) in [
        (
            ["agent", "rollback", "1a2b3c4d"].as_slice(),
            "mayfly agent show 1a2b3c4d",
        ),
        (
            &["agent", "rollback", "1a2b3c4d", "5e6f"],
            "mayfly agent show 1a2b3c4d",
        ),
        (&["agent", "fork", "1a2b3c4d"], "mayfly agent list"),
        (
            &["agent", "stop", "1a2b3c4d", "--all"],
            "mayfly agent log 1a2b3c4d",
        ),
        (&["agent", "rm", "1a2b3c4d"], "mayfly agent list"),
        (&["agent", "new"], "mayfly agent list"),
        (&["agent", "new", "-m", "date"], "mayfly agent list"),
        (&["parked", "retry", "1a2b3c4d"], "mayfly parked list"),
    ] {
        let (output, heard) = unanswered(arguments);
        refused(&output, 12, &["went away", "is not known", look]);
        assert_eq!(heard.len(), 1, "{arguments:?}: {heard:?}");
    }
}

#[test]
fn what_counts_once_is_asked_again() {
    let (output, heard) = unanswered(&["agent", "list"]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(heard.len() > 1, "{heard:?}");
    let (output, heard) = unanswered(&["agent", "send", "1a2b3c4d", "date"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("send it again with --key "), "{said}");
    assert!(heard.len() > 1, "{heard:?}");
}

#[test]
fn who_stops_waiting_is_told_that_the_message_goes_on() {
    let server = simulated();
    let agent = server.agent();
    for signal in [Signal::INT, Signal::TERM] {
        let mut command = server.command(&["agent", "send", &agent, "sleep 3; echo late"]);
        let command = command.stdout(std::process::Stdio::piped());
        let child = command
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("it starts");
        let pid = Pid::from_raw(child.id() as i32).expect("a process id");
        let running = "SELECT count(*) FROM ticks WHERE outcome IS NULL";
        server.until_sql(running, "1");
        // The answer that it is accepted may still be on its way.
        thread::sleep(Duration::from_millis(500));
        kill_process(pid, signal).expect("it can be signalled");
        let output = child.wait_with_output().expect("it ends");
        refused(
            &output,
            130,
            &["interrupted; message", "is accepted", "mayfly agent log"],
        );
        server.until_sql(running, "0");
    }
    let answered = "SELECT count(*) FROM messages WHERE outcome = 'answered'";
    assert_eq!(server.sql(answered), "2");
}

#[test]
fn a_waiting_sender_outlives_two_servers() {
    let mut server = simulated();
    let agent = server.agent();
    let mut command = server.command(&["agent", "send", &agent, "sleep 3; echo late"]);
    let command = command.stdout(std::process::Stdio::piped());
    let child = command
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    server.until_sql("SELECT count(*) FROM ticks WHERE outcome IS NULL", "1");
    server.kill();
    thread::sleep(Duration::from_secs(1));
    server.start();
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("waiting for it to come back"), "{said}");
    assert_eq!(output.stdout, b"late\n");
    assert_eq!(server.sql("SELECT count(*) FROM messages"), "1");
}
