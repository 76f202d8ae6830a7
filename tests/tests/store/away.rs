//! A store that is away, refuses, cuts or lies: lanes wait, no attempt is lost, one notice, and it goes
//! on by itself.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use mayfly_domain::MessageOutcome;
use mayfly_orchestrator::snapshot::merging;
use mayfly_tests::{
    cutter::Cutter,
    engine,
    http::{get, on_socket},
    s3_server::S3Server,
    server::Server,
    world::World,
};

use crate::{Shared, folder, forget_all, newest_object, until_base_stored, until_told, world};

const REFUSED: &str = "HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\n\
    Content-Length: 71\r\nConnection: close\r\n\r\n\
    <Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>";

/// Layers that were sealed, and packed or merged, since the process began.
static SEALED: AtomicU32 = AtomicU32::new(0);
static MADE: AtomicU32 = AtomicU32::new(0);

fn count_layers() {
    mayfly_orchestrator::faults::watch(|point| {
        let counted = match point {
            "report.sealed" => &SEALED,
            "depot.packed" | "merge.built" => &MADE,
            _ => return,
        };
        counted.fetch_add(1, Ordering::SeqCst);
    });
}

async fn until_ready(world: &World, wanted: Result<(), &str>) -> Vec<String> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let view = world.commands().ready().await;
        let found = match wanted {
            Ok(()) => view.ready,
            Err(part) => view.problems.iter().any(|told| told.contains(part)),
        };
        if found {
            return view.problems;
        }
        let told = view.problems;
        assert!(
            tokio::time::Instant::now() < deadline,
            "{wanted:?}: {told:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn until_more(counted: &AtomicU32, than: u32) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while counted.load(Ordering::SeqCst) <= than {
        assert!(tokio::time::Instant::now() < deadline, "nothing is sealed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn notices(world: &World) -> String {
    world.sql("SELECT count(*) FROM deliveries WHERE text LIKE '%layer store%'")
}

async fn behind_a_cutter() -> (S3Server, Cutter, World) {
    let server = S3Server::start();
    let cutter = Cutter::before(server.address());
    let world = world(server.config(cutter.address())).await;
    (server, cutter, world)
}

/// What runs waits with its commit, what comes waits with its tick, and both go on.
async fn waits_and_goes_on(break_it: impl Fn(&Cutter), mend_it: impl Fn(&Cutter), told: &str) {
    count_layers();
    let (_server, cutter, world) = behind_a_cutter().await;
    let agent = world.shell().await;
    world.say(agent, "echo one > a").await;
    let sealed = SEALED.load(Ordering::SeqCst);
    // The program runs, and meanwhile the store goes.
    let running = world.post(agent, "sleep 1; echo two > a; cat a").await;
    let phase = "SELECT count(*) FROM ticks WHERE outcome IS NULL AND phase = 'running'";
    world.until_sql(phase, "1").await;
    break_it(&cutter);
    cutter.cut_all();
    let problems = until_ready(&world, Err(told)).await;
    assert!(!problems.concat().contains("secret"), "{problems:?}");
    until_more(&SEALED, sealed).await;
    let other = world.shell().await;
    let waiting = world.post(other, "echo three").await;
    until_told(&world, &waiting).await;
    let open = "SELECT count(*) FROM ticks WHERE outcome IS NULL";
    assert_eq!(world.sql(open), "1", "the commit waits, and no tick begins");
    mend_it(&cutter);
    for message in [&running, &waiting] {
        let settled = world.outcome(message).await;
        assert_eq!(
            settled.outcome,
            Some(MessageOutcome::Answered),
            "{settled:?}"
        );
    }
    assert_eq!(notices(&world), "1", "told once");
    assert_eq!(world.sql("SELECT max(attempts) FROM messages"), "0");
    assert_eq!(
        world.sql("SELECT count(*) FROM ticks"),
        "3",
        "none of them ran twice"
    );
    assert_eq!(world.reply(agent, "cat a").await, "two");
    until_ready(&world, Ok(())).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_refuses_is_waited_for() {
    let refuse = |cutter: &Cutter| cutter.says(Some(REFUSED));
    waits_and_goes_on(refuse, |cutter| cutter.says(None), "refuses us").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_silent_is_waited_for() {
    let mend = |cutter: &Cutter| {
        cutter.silent(false);
        cutter.cut_all();
    };
    waits_and_goes_on(|cutter| cutter.silent(true), mend, "does not answer").await;
}

/// The state is not here, and what the store gives is not it.
async fn lies(lie: impl Fn(&Shared, &str, &[u8]), told: &str) {
    let shared = Shared::bucket();
    let world = world(shared.config()).await;
    let agent = world.shell().await;
    world.say(agent, "echo one > a").await;
    let object = newest_object(&world);
    let bytes = shared.get(&object).expect("it was put");
    forget_all(&world).await;
    lie(&shared, &object, &bytes);
    let waiting = world.post(agent, "cat a").await;
    let problems = until_ready(&world, Err(told)).await;
    assert!(problems.concat().contains(&object), "{problems:?}");
    assert_eq!(
        world.sql("SELECT count(*) FROM ticks"),
        "1",
        "no tick begins on it"
    );
    shared.put(&object, &bytes);
    let settled = world.outcome(&waiting).await;
    assert_eq!(settled.reply.expect("an answer").text, "one");
    assert_eq!(notices(&world), "1", "told once");
    until_ready(&world, Ok(())).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_was_cut_is_not_taken() {
    let cut =
        |shared: &Shared, name: &str, bytes: &[u8]| shared.put(name, &bytes[..bytes.len() / 2]);
    lies(cut, "it ends after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_another_layer_are_not_taken() {
    let other = |shared: &Shared, name: &str, bytes: &[u8]| {
        let mut other = bytes.to_vec();
        let last = other.len() - 1;
        other[last] ^= 1;
        shared.put(name, &other);
    };
    lies(other, "SHA-256 is another").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_bytes_than_were_put_are_not_taken() {
    let more = |shared: &Shared, name: &str, bytes: &[u8]| {
        shared.put(name, &[bytes, &[0; 100_000]].concat());
    };
    lies(more, "more than").await;
}

/// Cut in the middle of an answer, it is asked for again.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_in_the_middle_is_made_again() {
    let (_server, cutter, world) = behind_a_cutter().await;
    let agent = world.shell().await;
    world
        .say(agent, "head -c 200000 /dev/urandom > a; echo one > b")
        .await;
    forget_all(&world).await;
    cutter.cut_after([10, 300, 350, 1000, 40_000]);
    cutter.cut_all();
    assert_eq!(world.reply(agent, "cat b").await, "one");
    assert_eq!(cutter.cuts_left(), 0);
    world.end().await;
}

/// One bucket is one installation's: another one neither writes into it nor clears it away.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_another_installation_is_left_alone() {
    let shared = Shared::folder();
    let first = world(shared.config()).await;
    let agent = first.shell().await;
    first.say(agent, "echo one > a").await;
    let object = newest_object(&first);
    let second = world(shared.config()).await;
    until_ready(&second, Err("belongs to another installation")).await;
    let other = second.shell().await;
    let waiting = second.post(other, "echo x > x").await;
    until_told(&second, &waiting).await;
    assert_eq!(second.sql("SELECT count(*) FROM ticks"), "0");
    assert!(shared.get(&object).is_some());
    let stop = mayfly_orchestrator::command::StopScope::All;
    second.commands().stop(other, stop).await.expect("it waits");
    second.end().await;
    first.end().await;
}

/// A restored or copied data dir still names what is in the original's store: it is refused there, and clears
/// nothing away.
#[test]
fn an_adopted_copy_leaves_the_store_of_its_original_alone() {
    let shared = Shared::folder();
    let url = shared.config().url;
    let program = env!("CARGO_BIN_EXE_mayfly-under-test");
    let mut first = Server::simulated(program).env("MAYFLY__STORE__URL", &url);
    first.start();
    let agent = first.agent();
    first.json(&["agent", "send", &agent, "echo one > f"]);
    first.stop();
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("d");
    engine::copy(first.data_dir(), &copy);
    let mut second = Server::simulated(program)
        .at(&copy)
        .env("MAYFLY__STORE__URL", &url);
    assert!(second.mayfly(&["adopt"]).status.success());
    second.start();
    second.until("the mark is another's", || match told_of(&second) {
        told if told.contains("belongs to another installation") => Ok(()),
        told => Err(told),
    });
    second.stop();
    first.start();
    let said = first.json(&["agent", "send", &agent, "cat f"]);
    assert_eq!(said["reply"]["text"], "one", "{said}");
    assert!(!told_of(&first).contains("belongs"), "{}", told_of(&first));
    first.stop();
}

fn told_of(server: &Server) -> String {
    on_socket(server.data_dir(), &get("/readyz")).body
}

/// A folder that is not mounted is no empty store.
#[tokio::test(flavor = "multi_thread")]
async fn a_shared_folder_that_is_gone_is_not_made_anew() {
    let shared = Shared::folder();
    let folder = folder(&shared);
    let world = world(shared.config()).await;
    let agent = world.shell().await;
    world.say(agent, "echo one > a").await;
    let aside = tempfile::tempdir().expect("a folder");
    let aside = aside.path().join("aside");
    std::fs::rename(folder, &aside).expect("it is ours");
    until_ready(&world, Err("the layer store")).await;
    // A mount point is there without its mount.
    std::fs::create_dir(folder).expect("it is gone");
    until_ready(&world, Err("not mounted")).await;
    let waiting = world.post(agent, "echo two > a; cat a").await;
    until_told(&world, &waiting).await;
    assert_eq!(crate::count(folder), 0, "nothing is written below it");
    std::fs::remove_dir(folder).expect("it is empty");
    std::fs::rename(&aside, folder).expect("it is ours");
    let settled = world.outcome(&waiting).await;
    assert_eq!(settled.outcome, Some(MessageOutcome::Answered));
    world.end().await;
}

/// Nothing is packed for a store that is away, nor merged to be thrown away again.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_packed_while_the_store_is_away() {
    let shared = Shared::folder();
    let folder = folder(&shared);
    let world = world(shared.config()).await;
    let agent = world.shell().await;
    world.say(agent, "echo one > a").await;
    world.say(agent, "echo two > b").await;
    until_base_stored(&world).await;
    let layer = world.sql("SELECT id FROM layers ORDER BY id LIMIT 1");
    let aside = tempfile::tempdir().expect("a folder");
    let aside = aside.path().join("aside");
    std::fs::rename(folder, &aside).expect("it is ours");
    until_ready(&world, Err("the layer store")).await;
    count_layers();
    let made = MADE.load(Ordering::SeqCst);
    let tools = &world.service().worker().tools;
    let refused = tools.travel.put_layer(&layer.parse().expect("an id")).await;
    assert!(refused.expect_err("it is away").is_away());
    let refused = merging::merge(tools, agent).await;
    let refused = refused.expect_err("it is away").to_string();
    assert!(refused.contains("the layer store"), "{refused}");
    assert_eq!(MADE.load(Ordering::SeqCst), made);
    std::fs::rename(&aside, folder).expect("it is ours");
    until_ready(&world, Ok(())).await;
    merging::merge(tools, agent).await.expect("it is back");
    assert_eq!(MADE.load(Ordering::SeqCst), made + 2);
    world.end().await;
}
