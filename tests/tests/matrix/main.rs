//! Each kind of stores under everything that can be done to it while messages come: every message has one
//! outcome, in its agent's order, and nothing is left over.
//!
//! Real processes on the simulated engine, and two rows on Docker. In `tests/run` a choice of blows falls on one
//! stream of messages, one after the other; with `--full` each falls on 1,000 messages of 100 agents of its own.

mod blows;
mod fleet;
mod judge;
mod kind;
mod load;
mod misdeeds;
mod stores;
mod table;
mod truth;
mod witness;

use std::{
    panic::catch_unwind,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use blows::Blow;
use fleet::Fleet;
use kind::Kind;
use load::Load;
use mayfly_tests::full;

/// Messages between two blows.
const BETWEEN: usize = 4;
/// Longest from a blow to the next message that is settled: a lease, what is added to it, and a slow machine.
const RECOVERY: Duration = Duration::from_secs(120);
/// Of the long version.
const MESSAGES: usize = 1000;
const AGENTS: usize = 100;
/// Of the short one.
const FEW_AGENTS: usize = 8;

#[test]
fn one_process_with_files_of_its_own() {
    hit(Kind::Own);
}

#[test]
fn one_process_with_real_sandboxes() {
    really(Kind::Engine { workers: 1 });
}

/// A paused worker's sandbox has ended before its successor starts.
#[test]
fn two_workers_with_real_sandboxes() {
    really(Kind::Engine { workers: 2 });
}

#[test]
fn one_worker_on_shared_stores() {
    hit(Kind::Shared { workers: 1 });
}

#[test]
fn three_workers_on_shared_stores() {
    hit(Kind::Shared { workers: 3 });
}

fn hit(kind: Kind) {
    if !full() {
        campaign(kind, &blows(kind), FEW_AGENTS, 0);
        return;
    }
    // One that fails keeps no other from being tried.
    let failed: Vec<String> = blows(kind)
        .into_iter()
        .filter(|blow| catch_unwind(|| campaign(kind, &[*blow], AGENTS, MESSAGES)).is_err())
        .map(|blow| {
            table::row(&format!("{kind:<40} {blow:<44} FAILED"));
            blow.to_string()
        })
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
}

fn really(kind: Kind) {
    campaign(kind, &blows(kind), 6, 60);
}

fn blows(kind: Kind) -> Vec<Blow> {
    let mut blows = match full() {
        true => Blow::all(kind),
        false => Blow::some(kind),
    };
    blows.retain(table::wanted);
    assert!(!blows.is_empty(), "MATRIX_BLOWS has no blow for {kind}");
    blows
}

/// At least so many messages.
fn campaign(kind: Kind, blows: &[Blow], agents: usize, messages: usize) {
    let mut fleet = Fleet::start(kind);
    let mut load = Load::new(&fleet, agents);
    let (over, truth) = (AtomicBool::new(false), fleet.truth());
    let hit = thread::scope(|scope| {
        let posting = scope.spawn(|| load.post_until(&over, messages));
        // The load ends also where a blow fails the test.
        let end = End(&over);
        let before = messages / 3;
        truth.until_settled(before, RECOVERY + RECOVERY);
        let hit: Vec<(Blow, Duration)> =
            blows.iter().map(|blow| strike(&mut fleet, *blow)).collect();
        drop(end);
        posting.join().expect("the load has its own message");
        hit
    });
    judge::one_outcome_each(&fleet, &load, judge::PATIENCE);
    for (blow, recovery) in hit {
        let (posted, recovery) = (load.posted(), recovery.as_secs_f64());
        table::row(&format!(
            "{kind:<40} {blow:<44} {posted:>5} messages of {agents:>3} agents, the next settled after {recovery:>5.1} s"
        ));
    }
    fleet.end();
}

/// How long until the next message is settled, from the moment when all is there again.
fn strike(fleet: &mut Fleet, blow: Blow) -> (Blow, Duration) {
    let truth = fleet.truth();
    truth.until_settled(truth.settled() + BETWEEN, RECOVERY);
    truth.until_none_is_struck(RECOVERY);
    eprintln!("{blow}");
    blow.strike(fleet);
    let since = Instant::now();
    truth.until_settled(truth.settled() + 1, RECOVERY);
    (blow, since.elapsed())
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
