//! Programs: how they start, speak, are cut and end.

use std::time::{Duration, Instant};

use mayfly_init::protocol::{Notice, Order, Signal};

use crate::harness::{Sandbox, start};

#[test]
fn streams_code_and_environment() {
    let mut sandbox = Sandbox::started();
    let outcome = sandbox.script("echo out; echo err >&2; echo \"$A $PWD $#\"; exit 7");
    assert_eq!(outcome.text(), "out\nb c /slot 0\n");
    assert_eq!(outcome.stderr, b"err\n");
    let exit = outcome.exit.unwrap();
    assert_eq!((exit.code, exit.signal, exit.oom), (Some(7), None, false));
    let outcome = sandbox.script("kill -9 $$");
    assert_eq!(outcome.exit.unwrap().signal, Some(9));
}

#[test]
fn what_cannot_start_is_refused_with_a_sentence() {
    let mut sandbox = Sandbox::started();
    let mut refused = |change: &dyn Fn(&mut mayfly_init::protocol::Start)| {
        let mut order = start(&["true"]);
        change(&mut order);
        sandbox.order(&Order::Start(3, order));
        sandbox.done(3).unwrap_err().reason
    };
    assert_eq!(
        refused(&|s| s.argv[0] = "nope".into()),
        "The program nope does not exist."
    );
    assert_eq!(
        refused(&|s| s.argv[0] = "/etc/passwd".into()),
        "The program /etc/passwd is not executable for the agent's user."
    );
    assert_eq!(
        refused(&|s| s.cwd = "/gone".into()),
        "The working directory /gone does not exist."
    );
    assert_eq!(
        refused(&|s| s.cwd = "slot".into()),
        "The working directory \"slot\" is not absolute."
    );
    assert_eq!(refused(&|s| s.argv.clear()), "No program is named.");
    assert!(refused(&|s| s.argv.push("\0".into())).starts_with("A NUL byte"));
    assert!(refused(&|s| s.tail = u64::MAX).starts_with("At most"));
    // And a program still starts.
    assert_eq!(sandbox.script("exit 3").code(), Some(3));
}

#[test]
fn a_leftover_that_holds_the_pipes_neither_delays_nor_survives() {
    let mut sandbox = Sandbox::started();
    let began = Instant::now();
    let outcome = sandbox.script(
        "sleep 600 & setsid sleep 601 & (setsid sh -c 'sleep 602 & sleep 603' &) ; echo hi",
    );
    assert_eq!((outcome.text().as_str(), outcome.code()), ("hi\n", Some(0)));
    assert!(
        began.elapsed() < Duration::from_millis(900),
        "{:?}",
        began.elapsed()
    );
    let left =
        sandbox.script("for p in /proc/[0-9]*; do cat $p/comm; done 2>/dev/null | grep -c sleep");
    assert_eq!(left.text(), "0\n");
}

#[test]
fn long_output_is_cut_in_the_middle() {
    let mut sandbox = Sandbox::started();
    let mut order = start(&["sh", "-c", "seq 1 2000000"]);
    (order.head, order.tail) = (1000, 500);
    sandbox.order(&Order::Start(1, order));
    sandbox.done(1).unwrap();
    let outcome = sandbox.outcome(1);
    let whole: String = (1..=2_000_000)
        .map(|number| format!("{number}\n"))
        .collect();
    assert_eq!(outcome.dropped, [whole.len() as u64 - 1500]);
    assert_eq!(outcome.head, 1000);
    assert_eq!(
        outcome.text(),
        format!("{}{}", &whole[..1000], &whole[whole.len() - 500..])
    );
}

#[test]
fn a_worker_that_does_not_read_stops_the_program_not_init() {
    let mut sandbox = Sandbox::started();
    let mut order = start(&["head", "-c", "60000000", "/dev/zero"]);
    order.head = u64::MAX;
    sandbox.order(&Order::Start(1, order));
    sandbox.done(1).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let status = std::fs::read_to_string(format!("/proc/{}/status", sandbox.pid())).unwrap();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let kilobytes: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kilobytes < 24_000, "{kilobytes} kB");
    assert_eq!(sandbox.outcome(1).stdout.len(), 60_000_000);
}

#[test]
fn standard_input_flows_and_ends() {
    let mut sandbox = Sandbox::started();
    sandbox.start(1, &["sh", "-c", "cat; echo end"]);
    let block = vec![b'x'; 1 << 20];
    for _ in 0..5 {
        sandbox.order(&Order::Stdin(1, block.clone()));
    }
    sandbox.order(&Order::CloseStdin(1));
    let outcome = sandbox.outcome(1);
    assert_eq!(outcome.dropped, [3 << 20 | 4]);
    assert!(outcome.text().ends_with("xend\n"));
    // A program that does not read loses its input, not more.
    sandbox.start(2, &["sh", "-c", "sleep 1; echo alive"]);
    for _ in 0..9 {
        sandbox.order(&Order::Stdin(2, block.clone()));
    }
    assert!(sandbox.done(2).is_err());
    assert_eq!(sandbox.outcome(2).text(), "alive\n");
    // One that has closed it is no error.
    sandbox.start(3, &["sh", "-c", "exec <&-; sleep 0.3; echo alive"]);
    std::thread::sleep(Duration::from_millis(100));
    sandbox.order(&Order::Stdin(3, vec![1; 100]));
    assert_eq!(sandbox.outcome(3).text(), "alive\n");
}

#[test]
fn signals_reach_the_process_group() {
    let mut sandbox = Sandbox::started();
    for (signal, number) in [
        (Signal::Interrupt, 2),
        (Signal::Terminate, 15),
        (Signal::Kill, 9),
    ] {
        sandbox.start(1, &["sleep", "600"]);
        sandbox.order(&Order::Signal(1, signal));
        assert_eq!(sandbox.outcome(1).exit.unwrap().signal, Some(number));
    }
    sandbox.start(
        1,
        &[
            "sh",
            "-c",
            "trap 'echo polite; exit 5' TERM; echo up; sleep 600 & wait",
        ],
    );
    assert!(matches!(sandbox.notice(), Notice::Output(1, ..)));
    sandbox.order(&Order::Signal(1, Signal::Terminate));
    let outcome = sandbox.outcome(1);
    assert_eq!(
        (outcome.text().as_str(), outcome.code()),
        ("polite\n", Some(5))
    );
    sandbox.order(&Order::Signal(99, Signal::Kill));
}

#[test]
fn one_program_ends_without_the_other() {
    let mut sandbox = Sandbox::started();
    sandbox.start(1, &["sleep", "600"]);
    sandbox.start(2, &["sh", "-c", "sleep 600 & echo two"]);
    assert_eq!(sandbox.outcome(2).text(), "two\n");
    sandbox.order(&Order::Start(1, start(&["true"])));
    assert_eq!(sandbox.done(1).unwrap_err().reason, "The id 1 is in use.");
    sandbox.order(&Order::Signal(1, Signal::Terminate));
    assert_eq!(sandbox.outcome(1).exit.unwrap().signal, Some(15));
}

#[test]
fn orphans_are_reaped() {
    let mut sandbox = Sandbox::started();
    let outcome = sandbox.script(
        "i=0; while [ $i -lt 300 ]; do (true & ) ; i=$((i+1)); done; sleep 0.3
         cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '",
    );
    assert_eq!(outcome.text(), "0\n");
}

#[test]
fn pause_stops_all_and_resume_continues() {
    let mut sandbox = Sandbox::started();
    sandbox.start(
        1,
        &[
            "sh",
            "-c",
            "(while :; do :; done) & i=0; while :; do echo $i >/tmp/n; i=$((i+1)); done",
        ],
    );
    std::thread::sleep(Duration::from_millis(200));
    sandbox.order(&Order::Pause(8));
    sandbox.done(8).unwrap();
    let mut read = |id| {
        sandbox.order(&Order::Get(
            id,
            mayfly_init::protocol::Get {
                path: "/tmp/n".into(),
                cap: 99,
            },
        ));
        let mut bytes = Vec::new();
        loop {
            match sandbox.notice() {
                Notice::Data(_, more) => bytes.extend(more),
                Notice::Done(_, result) => break result.map(|()| bytes).unwrap(),
                other => panic!("{other:?}"),
            }
        }
    };
    let (first, _) = (read(20), std::thread::sleep(Duration::from_millis(200)));
    assert_eq!(first, read(21));
    sandbox.order(&Order::Resume(9));
    sandbox.done(9).unwrap();
    sandbox.order(&Order::Signal(1, Signal::Kill));
    assert_eq!(sandbox.outcome(1).exit.unwrap().signal, Some(9));
}
