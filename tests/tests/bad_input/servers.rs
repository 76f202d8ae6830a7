use std::{
    net::TcpListener,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use mayfly_tests::server::{Server, pass_environment};

use super::{PROGRAM, printed, refused, simulated};

#[test]
fn a_second_server_is_refused_by_the_first_ones_name() {
    let server = simulated();
    let pid = server.pid().to_string();
    let since = Instant::now();
    let second = server.mayfly(&["serve", "--simulate"]);
    refused(&second, 6, &["in use by mayfly serve", &pid, "--data-dir"]);
    refused(
        &server.mayfly(&["adopt"]),
        6,
        &["in use by mayfly serve", &pid],
    );
    assert!(since.elapsed() < Duration::from_secs(20));
    server.agent();
}

#[test]
fn a_server_waits_for_a_command_that_is_at_work() {
    let mut server = Server::new(PROGRAM);
    let agent = server.agent();
    let mut send = server.command(&["agent", "send", &agent, "sleep 3; echo done"]);
    let send = send.stdout(Stdio::piped()).spawn().expect("it starts");
    let running = "SELECT count(*) FROM ticks WHERE outcome IS NULL";
    server.until_sql(running, "1");
    server.start();
    let output = send.wait_with_output().expect("it ends");
    assert_eq!(output.stdout, b"done\n");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !server.log().contains("mayfly listens") {
        assert!(Instant::now() < deadline, "{}", server.log());
        thread::sleep(Duration::from_millis(50));
    }
    assert!(
        server.log().contains("waiting for its end"),
        "{}",
        server.log()
    );
    server.stop();
    server.assert_nothing_left();
}

#[test]
fn a_taken_port_is_named_with_the_way_to_another() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let server = Server::new(PROGRAM).env("MAYFLY__HTTP__LISTEN", &address);
    let output = server.mayfly(&["serve", "--simulate"]);
    refused(&output, 5, &[&address, "taken", "http.listen"]);
    let server = Server::new(PROGRAM).env("MAYFLY__HTTP__LISTEN", "192.0.2.1:80");
    let output = server.mayfly(&["serve", "--simulate"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("cannot listen on 192.0.2.1:80"), "{said}");
}

#[test]
fn simulated_and_real_agents_do_not_share_a_data_dir() {
    let mut server = simulated();
    server.agent();
    server.stop();
    let command = server.mayfly(&["agent", "list"]);
    refused(
        &command,
        6,
        &["simulated agents", "mayfly serve --simulate"],
    );
    refused(&server.mayfly(&["adopt"]), 6, &["nothing to adopt"]);
    let real = Server::new(PROGRAM);
    real.agent();
    let output = real.mayfly(&["serve", "--simulate"]);
    refused(&output, 6, &["real agents", "--data-dir"]);
    server.start();
    assert_eq!(
        server.json(&["agent", "list"]).as_array().map(Vec::len),
        Some(1)
    );
}

#[test]
fn who_is_not_root_is_told_so() {
    let server = simulated();
    let as_nobody = |server: &Server, arguments: &[&str]| {
        let program = server.command(arguments);
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.arg(program.get_program()).args(program.get_args());
        pass_environment(&program, &mut command);
        command.output().expect("setpriv is installed")
    };
    let shut = as_nobody(&server, &["agent", "list"]);
    refused(&shut, 6, &["cannot be entered", "as root"]);
    let folder = tempfile::Builder::new()
        .prefix("mn")
        .tempdir()
        .expect("a folder");
    std::os::unix::fs::chown(folder.path(), Some(65534), Some(65534)).expect("chown");
    let own = Server::new(PROGRAM).at(&folder.path().join("d"));
    for arguments in [["agent", "list"].as_slice(), &["agent", "new"], &["serve"]] {
        refused(
            &as_nobody(&own, arguments),
            13,
            &["65534", "run mayfly as root"],
        );
    }
    assert!(!own.data_dir().exists());
}

#[test]
fn a_database_that_vanishes_under_a_server_is_no_panic() {
    let mut server = simulated();
    let agent = server.agent();
    printed(&server.mayfly(&["agent", "send", &agent, "echo before"]));
    for name in ["mayfly.db", "mayfly.db-wal", "mayfly.db-shm"] {
        std::fs::remove_file(server.data_dir().join(name)).expect("it is there");
    }
    for text in ["echo one", "echo two"] {
        let sent = server.mayfly(&["agent", "send", &agent, text, "--timeout", "5"]);
        assert!(sent.status.code().is_some(), "{sent:?}");
    }
    assert!(server.running(), "{}", server.log());
    server.stop();
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

#[test]
fn a_second_signal_does_not_wait_and_the_message_runs_later() {
    let mut server = Server::new(PROGRAM);
    server.start();
    let agent = server.agent();
    let text = "if [ -e late ]; then echo again; else touch late; sleep 30; fi; echo done";
    let sent = printed(&server.mayfly(&["agent", "send", &agent, "--no-wait", text]));
    let running = "SELECT count(*) FROM ticks WHERE outcome IS NULL AND phase = 'running'";
    server.until_sql(running, "1");
    let since = Instant::now();
    for _ in 0..2 {
        server.terminate();
        thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(server.wait_dead().code(), Some(130));
    assert!(since.elapsed() < Duration::from_secs(15));
    // The next one closes the dead tick and runs the message again: its files were discarded.
    server.start();
    let attempts = format!("SELECT count(*) FROM ticks WHERE message = '{sent}'");
    server.until_sql(&attempts, "2");
    printed(&server.mayfly(&["agent", "stop", &agent]));
    assert!(server.stop().success());
    server.assert_nothing_left();
}

#[test]
fn a_command_that_only_looks_starts_nothing_that_waits() {
    let mut server = Server::new(PROGRAM);
    server.start();
    let agent = server.agent();
    let first = "if [ -e late ]; then true; else sleep 60; fi; echo first";
    let posted = printed(&server.mayfly(&["agent", "send", &agent, "--no-wait", first]));
    server.until_sql("SELECT count(*) FROM ticks WHERE phase = 'running'", "1");
    server.kill();
    // The pause before its second attempt is over.
    server.change("UPDATE messages SET claimable_at = 0");
    for _ in 0..3 {
        printed(&server.mayfly(&["agent", "list"]));
        server.change("UPDATE messages SET claimable_at = 0");
    }
    printed(&server.mayfly(&["agent", "fork", &agent]));
    assert_eq!(server.sql("SELECT count(*) FROM ticks"), "1");
    let outcome = format!("SELECT outcome IS NULL FROM messages WHERE id = '{posted}'");
    assert_eq!(server.sql(&outcome), "1");
    printed(&server.mayfly(&["agent", "stop", "--all", &agent]));
    assert_eq!(
        printed(&server.mayfly(&["agent", "send", &agent, "echo now"])),
        "now"
    );
    server.assert_nothing_left();
}

/// As at a boot that is faster than the network's file system: a service manager starts it again after 7.
#[test]
fn a_folder_of_the_store_that_is_not_there_yet_is_waited_for_by_starting_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("not mounted");
    let address = format!("file://{}", store.display()).replace(' ', "%20");
    let mut server = Server::simulated(PROGRAM).env("MAYFLY__STORE__URL", &address);
    let output = server.mayfly(&["serve", "--simulate"]);
    refused(
        &output,
        7,
        &[store.to_str().expect("UTF-8"), "mount it", "store.url"],
    );
    let unit = include_str!("../../../deploy/systemd/mayfly.service");
    let line = unit
        .lines()
        .find(|line| line.starts_with("RestartPreventExitStatus="));
    let codes = line.expect("it names codes").split(['=', ' ']);
    assert!(codes.skip(1).all(|code| code != "7"), "{line:?}");
    std::fs::create_dir(&store).expect("a folder");
    server.start();
    assert!(server.stop().success(), "{}", server.log());
}
