//! Disk taken where nobody looks, and more of it than the limit.

use std::time::{Duration, Instant};

use mayfly_domain::{Limits, MessageOutcome};
use mayfly_tests::world::World;
use rustix::fs::statvfs;

use crate::table::{message, world};

const DISK: &str = include_str!("../../hostile/disk.py");
const CAP: u64 = 64;
/// What a program that goes on writing may take until it is killed.
const OVER: u64 = 1024;

fn taking(way: &str, mebibytes: u64, slowly: f64) -> String {
    let settings = format!("export WAY={way:?} ENOUGH={mebibytes} SLOWLY={slowly}");
    format!("{settings}; trap '' INT TERM HUP; {}", message(DISK))
}

async fn ends_at_the_cap(world: &World, way: &str) {
    let agent = world.shell().await;
    let began = Instant::now();
    let said = world.say(agent, &taking(way, 160, 0.01)).await;
    let text = said.reply.map(|reply| reply.text).unwrap_or_default();
    let notice = format!("disk limit of {CAP} MiB reached, changes discarded");
    assert!(text.contains(&notice), "{way}: {text}");
    assert_eq!(said.outcome, Some(MessageOutcome::Noticed), "{way}");
    assert!(
        began.elapsed() < Duration::from_secs(18),
        "{way}: {:?}",
        began.elapsed()
    );
}

fn limits() -> Limits {
    Limits {
        wall_clock_s: 20,
        state_mib: CAP,
        ..Limits::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_files_count_wherever_they_are_held() {
    let world = world(limits()).await;
    let ways = [
        "open",
        "unnamed",
        "mapped",
        "mapped by a thread whose leader is gone",
        "in a socket's queue",
    ];
    let all = ways.map(|way| ends_at_the_cap(&world, way));
    futures_util::future::join_all(all).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_below_the_cap_is_nobodys_business() {
    let world = world(Limits {
        wall_clock_s: 2,
        ..limits()
    })
    .await;
    let agent = world.shell().await;
    let said = world.reply(agent, &taking("open", 32, 0.0)).await;
    assert!(
        said.contains("took 32 MiB") && said.contains("time limit"),
        "{said}"
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deaf_writer_takes_little_more_than_its_cap() {
    let world = world(limits()).await;
    let agent = world.shell().await;
    world.say(agent, "echo warm").await;
    let free = || {
        let found = statvfs(world.data_dir()).expect("it exists");
        (found.f_bavail * found.f_frsize) >> 20
    };
    let before = free();
    let message = world
        .post(agent, &taking("in many files", 1 << 20, 0.0))
        .await;
    let mut least = before;
    while world
        .commands()
        .message(message.id)
        .await
        .unwrap()
        .outcome
        .is_none()
    {
        least = least.min(free());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let said = world
        .outcome(&message)
        .await
        .reply
        .map(|reply| reply.text)
        .unwrap_or_default();
    assert!(
        said.contains("disk limit of 64 MiB reached, changes discarded"),
        "{said}"
    );
    let taken = before - least;
    println!("took {taken} MiB for a cap of {CAP}");
    assert!(taken < CAP + OVER, "took {taken} MiB");
    world.end().await;
}
