//! What a worker had is taken over when it dies, freezes or is told to end.

use std::time::{Duration, Instant};

use mayfly_orchestrator::clock::unix_ms;
use mayfly_tests::server::Server;
use rustix::process::Signal;
use serde_json::Value;

use super::fleet::{Fleet, signal, worker_of};

/// Accepted, not waited for.
fn post(by: &Server, agent: &str, text: &str) -> String {
    let sent = by.json(&["agent", "send", "--no-wait", agent, text]);
    sent["id"].as_str().expect("an id").to_owned()
}

/// Two that are both free; the message runs on one of them.
fn two_workers(fleet: &Fleet) -> [Server; 2] {
    ["all", "all"].map(|role| {
        let mut server = fleet.process(role);
        server.start();
        server
    })
}

fn runs_on<'a>(fleet: &Fleet, workers: &'a mut [Server; 2]) -> (&'a mut Server, &'a mut Server) {
    let of = "SELECT worker FROM ticks WHERE outcome IS NULL AND phase = 'running'";
    workers[0].until("its program runs", || match fleet.sql(of).as_str() {
        "" => Err("none".to_owned()),
        _ => Ok(()),
    });
    let runs = fleet.sql(of);
    let [one, other] = workers;
    match worker_of(one.data_dir()) == runs {
        true => (one, other),
        false => (other, one),
    }
}

/// Killed behind the claim: the tick is closed when the lease is over, as an attempt, and runs on the other. What
/// the dead one has made on an engine is left to its own next start.
#[test]
fn qu_08_what_a_killed_worker_ran_runs_on_another_after_its_lease() {
    let fleet = Fleet::new();
    let mut workers = two_workers(&fleet);
    let agent = workers[0].agent();
    let message = post(&workers[0], &agent, "sleep 6; echo done");
    let (dead, other) = runs_on(&fleet, &mut workers);
    let killed = Instant::now();
    dead.kill();
    let outcome = format!("SELECT outcome FROM messages WHERE id = '{message}'");
    fleet.until_sql(other, &outcome, "answered");
    let took = killed.elapsed();
    assert!(
        took > Duration::from_secs(25),
        "its lease was not over: {took:?}"
    );
    assert!(took < Duration::from_secs(70), "{took:?}");
    let ticks = "SELECT string_agg(outcome, ' ' ORDER BY id) FROM ticks";
    assert_eq!(fleet.sql(ticks), "interrupted done");
    assert_eq!(fleet.sql("SELECT attempts FROM messages"), "1");
    assert_eq!(fleet.sql("SELECT count(*) FROM deliveries"), "1");
    let left = "SELECT worker FROM ticks WHERE removed_at IS NULL";
    assert_eq!(fleet.sql(left), worker_of(dead.data_dir()));
    dead.start();
    fleet.until_sql(dead, left, "");
    assert!(dead.stop().success());
    assert!(other.stop().success());
}

/// Frozen past its lease: the other runs the message meanwhile. When it comes back its tick is over, it writes
/// nothing and ends itself.
#[test]
fn qu_06_a_worker_that_was_frozen_past_its_lease_commits_nothing() {
    let fleet = Fleet::new();
    let mut workers = two_workers(&fleet);
    let agent = workers[0].agent();
    let message = post(&workers[0], &agent, "sleep 8; echo done");
    let (frozen, other) = runs_on(&fleet, &mut workers);
    signal(frozen, Signal::STOP);
    let outcome = format!("SELECT outcome FROM messages WHERE id = '{message}'");
    fleet.until_sql(other, &outcome, "answered");
    signal(frozen, Signal::CONT);
    let status = frozen.wait_dead();
    assert!(!status.success(), "{status}");
    assert!(
        frozen.log().contains("declared this one dead"),
        "{}",
        frozen.log()
    );
    let ticks = "SELECT string_agg(outcome, ' ' ORDER BY id) FROM ticks";
    assert_eq!(fleet.sql(ticks), "interrupted done");
    assert_eq!(fleet.sql("SELECT count(*) FROM deliveries"), "1");
    // It is a worker again once somebody starts it.
    frozen.start();
    fleet.until_sql(
        frozen,
        "SELECT count(*) FROM ticks WHERE removed_at IS NULL",
        "0",
    );
    assert!(frozen.stop().success());
    assert!(other.stop().success());
}

/// Told to end: what runs past the grace period is handed back, which is no attempt, and runs on the other at once.
#[test]
fn a_worker_that_is_told_to_end_hands_its_lanes_over_at_once() {
    let fleet = Fleet::new();
    let mut workers = two_workers(&fleet);
    let (quick, slow) = (workers[0].agent(), workers[0].agent());
    let slow = post(&workers[0], &slow, "sleep 9; echo done");
    let (ends, other) = runs_on(&fleet, &mut workers);
    ends.terminate();
    let told = Instant::now();
    // It takes nothing new.
    let quick: Value = other.json(&["agent", "send", &quick, "echo here"]);
    assert_eq!(quick["reply"]["text"], "here");
    assert!(ends.wait_dead().success());
    let gone = told.elapsed();
    assert!(gone < Duration::from_secs(15), "{gone:?}");
    let outcome = format!("SELECT outcome FROM messages WHERE id = '{slow}'");
    fleet.until_sql(other, &outcome, "answered");
    let took = told.elapsed();
    assert!(
        took < gone + Duration::from_secs(15),
        "after {gone:?}: {took:?}"
    );
    let attempts = format!("SELECT attempts FROM messages WHERE id = '{slow}'");
    assert_eq!(fleet.sql(&attempts), "0");
    let on = format!(
        "SELECT count(*) FROM ticks WHERE worker = '{}'",
        worker_of(other.data_dir())
    );
    assert_eq!(fleet.sql(&on), "2");
    assert!(other.stop().success());
}

/// Whoever says it, and whichever process is asked.
#[test]
fn a_stop_reaches_a_tick_of_another_worker() {
    let fleet = Fleet::new();
    let mut workers = two_workers(&fleet);
    let agent = workers[0].agent();
    let message = post(&workers[0], &agent, "sleep 50; echo done");
    let (_, other) = runs_on(&fleet, &mut workers);
    let since = Instant::now();
    other.json(&["agent", "stop", &agent]);
    let outcome = format!("SELECT outcome FROM messages WHERE id = '{message}'");
    fleet.until_sql(other, &outcome, "noticed");
    assert!(
        since.elapsed() < Duration::from_secs(15),
        "{:?}",
        since.elapsed()
    );
    for worker in &mut workers {
        assert!(worker.stop().success());
    }
}

/// The machine is gone with its disk: another one, which has never seen the agent, goes on with its files,
/// and shows what it has not run.
#[test]
fn an_agent_goes_on_on_a_machine_that_has_never_seen_it() {
    let fleet = Fleet::new();
    let mut first = fleet.process("all");
    first.start();
    let agent = first.agent();
    let said = first.json(&["agent", "send", &agent, "echo one > f; echo first"]);
    let tick = said["tick"].as_str().expect("a tick").to_owned();
    for stored in [
        "SELECT count(*) FROM layers WHERE stored_at IS NOT NULL",
        "SELECT count(*) FROM bases WHERE stored_at IS NOT NULL",
        "SELECT count(*) FROM ticks WHERE transcript <> ''",
    ] {
        fleet.until_sql(&first, stored, "1");
    }
    assert!(first.stop().success());
    let mut second = fleet.process("all");
    second.start();
    let said = second.json(&["agent", "send", &agent, "cat f; ls"]);
    assert_eq!(said["reply"]["text"], "one\nf", "{said}");
    let shown = second.json(&["tick", "show", &tick]).to_string();
    assert!(shown.contains(r#""text":"first\n""#), "{shown}");
    assert!(second.stop().success());
}

/// What may run is not before a time by the database's clock, whatever the host says whose process took it in.
#[test]
fn a_host_whose_clock_is_ahead_delays_no_message() {
    let fleet = Fleet::new();
    let mut worker = fleet.process("worker");
    worker.start();
    let mut ahead = fleet
        .process("bot")
        .env("LD_PRELOAD", "/usr/$LIB/faketime/libfaketime.so.1")
        .env("FAKETIME", "+300s")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    ahead.start();
    let agent = ahead.agent();
    let message = post(&ahead, &agent, "echo here");
    assert!(ahead.clock() - unix_ms() > 200_000, "its clock is ahead");
    let outcome = format!("SELECT outcome FROM messages WHERE id = '{message}'");
    fleet.until_sql(&worker, &outcome, "answered");
    assert!(ahead.stop().success());
    assert!(worker.stop().success());
}
