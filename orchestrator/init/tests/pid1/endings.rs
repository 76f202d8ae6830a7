//! Every way in which a sandbox ends, and that nothing the agent does prevents it.

use std::time::{Duration, Instant};

use mayfly_init::exit::Code;
use mayfly_init::protocol::{Order, Put};

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
    sandbox.arguments.heartbeat = Duration::from_millis(1500);
    sandbox.run();
    sandbox.start(1, &["sleep", "600"]);
    let began = Instant::now();
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(300));
        sandbox.order(&Order::Heartbeat);
    }
    ends(&mut sandbox, Code::NoHeartbeat);
    assert!(began.elapsed() >= Duration::from_millis(3800));
}

#[test]
fn not_by_heartbeats_that_waited_while_init_was_stopped() {
    let mut sandbox = Sandbox::prepare();
    sandbox.arguments.heartbeat = Duration::from_millis(1500);
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
    std::thread::sleep(Duration::from_millis(2200));
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

#[test]
fn whatever_the_agent_does_to_the_child_that_writes_its_file() {
    let mut sandbox = Sandbox::prepare();
    sandbox.arguments.heartbeat = Duration::from_secs(2);
    sandbox.run();
    let mut order = start(&["sh", "-c", "while :; do kill -STOP -1; done"]);
    order.head = 0;
    sandbox.order(&Order::Start(1, order));
    sandbox.done(1).unwrap();
    let file = Put {
        path: "/slot/f".into(),
        mode: 0o600,
        size: 8 << 20,
    };
    sandbox.order(&Order::Put(5, file));
    // Past what init keeps unwritten, so that it takes no further order.
    for _ in 0..5 {
        sandbox.order(&Order::Data(5, vec![0; 1 << 20]));
    }
    ends(&mut sandbox, Code::NoHeartbeat);
}

#[test]
fn at_the_ceiling_though_the_worker_takes_nothing() {
    let mut sandbox = Sandbox::prepare();
    sandbox.arguments.ceiling = Duration::from_secs(2);
    sandbox.run();
    let mut order = start(&["yes"]);
    order.head = u64::MAX;
    sandbox.order(&Order::Start(1, order));
    ends(&mut sandbox, Code::Ceiling);
}

#[test]
fn by_the_engines_signal() {
    let mut sandbox = Sandbox::started();
    sandbox.start(1, &["sleep", "600"]);
    let pid = sandbox.pid().to_string();
    assert!(
        std::process::Command::new("kill")
            .arg(&pid)
            .status()
            .unwrap()
            .success()
    );
    ends(&mut sandbox, Code::Terminated);
}
