//! What a platform tells is acknowledged within a second, with fifty posts a second and ticks beside.

use std::time::Duration;

use mayfly_tests::{
    server::Server,
    traffic::{Way, applied, steady},
};

const A_SECOND: u32 = 50;
const POSTS: usize = 500;
const P99: Duration = Duration::from_secs(1);

fn within_a_second(way: Way) {
    let crowd = way.crowd();
    let mut server = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"));
    for (name, value) in crowd.environment() {
        server.set_env(name, &value);
    }
    server.start();
    crowd.reach(&server);
    let mut took = steady(crowd.as_ref(), A_SECOND, POSTS);
    took.sort();
    let p99 = took[(took.len() * 99).div_ceil(100) - 1];
    let p50 = took[took.len() / 2];
    println!(
        "{}: {} acknowledgements, p50 {p50:?}, p99 {p99:?}",
        way.name(),
        took.len()
    );
    assert!(p99 < P99, "p50 {p50:?}, p99 {p99:?}");
    // On Discord the rest may still be on its way.
    applied(&server, POSTS as u64);
    server.kill();
}

#[test]
fn envelopes_of_slack() {
    within_a_second(Way::SlackSocket);
}

#[test]
fn requests_of_slack() {
    within_a_second(Way::SlackRequests);
}

#[test]
fn interactions_of_discord() {
    within_a_second(Way::Discord);
}

/// From the moment an update is handed out until its number is confirmed.
#[test]
fn polls_of_telegram() {
    within_a_second(Way::TelegramPolling);
}

#[test]
fn requests_of_telegram() {
    within_a_second(Way::TelegramRequests);
}
