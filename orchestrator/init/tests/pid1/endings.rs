//! Every way in which a sandbox ends, and that nothing the agent does prevents it.

use std::time::{Duration, Instant};

use mayfly_init::exit::Code;
use mayfly_init::protocol::Order;

use crate::harness::{Sandbox, start};

#[track_caller]
fn ends(sandbox: &mut Sandbox, code: Code) {
    let found = sandbox.exit_code();
    assert_eq!(Code::of(found.into()), Some(code), "exit code {found}");
}

#[test]
fn by_order_by_hanging_up_and_by_a_bad_frame() {
    let mut sandbox = Sandbox::started();
    sandbox.start(1, &["sleep", "600"]);
    sandbox.order(&Order::End);
    ends(&mut sandbox, Code::Ended);

    let mut sandbox = Sandbox::started();
    sandbox.start(1, &["sleep", "600"]);
    sandbox.hang_up();
    ends(&mut sandbox, Code::ControlClosed);

    let mut sandbox = Sandbox::started();
    sandbox.start(1, &["sleep", "600"]);
    sandbox.raw(&[0, 0, 0, 0, 9, 10, 0, 0, 0, 0]);
    ends(&mut sandbox, Code::BadFrame);
}

#[test]
fn by_a_silent_worker_but_not_before() {
    let mut sandbox = Sandbox::prepare();
    sandbox.arguments.heartbeat = Duration::from_millis(600);
    sandbox.run();
    sandbox.start(1, &["sleep", "600"]);
    let began = Instant::now();
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(250));
        sandbox.order(&Order::Heartbeat);
    }
    ends(&mut sandbox, Code::NoHeartbeat);
    assert!(began.elapsed() >= Duration::from_millis(2000));
}

#[test]
fn not_by_heartbeats_that_waited_while_init_was_stopped() {
    let mut sandbox = Sandbox::prepare();
    sandbox.arguments.heartbeat = Duration::from_millis(600);
    sandbox.run();
    let pid = sandbox.pid().to_string();
    let send = |signal: &str| {
        assert!(
            std::process::Command::new("kill")
                .args([signal, &pid])
                .status()
                .unwrap()
                .success()
        );
    };
    send("-STOP");
    std::thread::sleep(Duration::from_millis(1000));
    sandbox.order(&Order::Heartbeat);
    send("-CONT");
    assert_eq!(sandbox.script("echo on").text(), "on\n");
    ends(&mut sandbox, Code::NoHeartbeat);
}

#[test]
fn at_the_ceiling_under_load() {
    let mut sandbox = Sandbox::prepare();
    sandbox.arguments.ceiling = Duration::from_secs(3);
    sandbox.run();
    let began = Instant::now();
    let mut order = start(&[
        "sh",
        "-c",
        "for i in $(seq 20); do (while :; do kill -STOP 1; (true &); done) 2>/dev/null & done; yes",
    ]);
    order.head = 0;
    order.tail = 10;
    sandbox.order(&Order::Start(1, order));
    ends(&mut sandbox, Code::Ceiling);
    assert!(
        began.elapsed() < Duration::from_secs(6),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn without_a_connection() {
    let mut sandbox = Sandbox::prepare();
    sandbox.arguments.connect = Duration::from_millis(200);
    sandbox.launch();
    ends(&mut sandbox, Code::NoConnection);
}

#[test]
fn with_a_wrong_slot() {
    for (folder, upper, code) in [
        ("/slot", "/elsewhere", Code::SlotUpper),
        ("/plain", "/elsewhere", Code::SlotMissing),
        ("/tmp", "/elsewhere", Code::SlotNotOverlay),
    ] {
        let mut sandbox = Sandbox::prepare();
        sandbox.arguments.slots.push((folder.into(), upper.into()));
        sandbox.launch();
        ends(&mut sandbox, code);
    }
}

#[test]
fn with_a_wrong_command_line_and_outside_a_namespace() {
    let mut sandbox = Sandbox::prepare();
    sandbox.arguments.uid = 0;
    sandbox.launch();
    ends(&mut sandbox, Code::Usage);
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_mayfly-init"))
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(Code::NotFirst.number()));
}
