//! What people see while they wait, and that nothing of it stands over a reply.

use std::{
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use mayfly_domain::{AgentId, chat::CallError};
use mayfly_orchestrator::{faults, sandbox::fake::Fake};
use mayfly_tests::{
    chat::{Chat, Fault},
    engine,
    world::{Setup, World},
};

const LONG: Duration = Duration::from_secs(600);

async fn world(chat: &Arc<Chat>) -> (World, AgentId) {
    let setup = Setup {
        platforms: vec![chat.clone()],
        ..Setup::default()
    };
    let world = World::fake(setup, Fake::new).await;
    let agent = world.shell().await;
    world.change(&format!(
        "UPDATE threads SET key = 'chat/w/c/t' WHERE agent = '{agent}'"
    ));
    (world, agent)
}

/// Until this stands in the thread.
async fn until_shown(chat: &Chat, text: &str) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !chat.shown("t").iter().any(|post| post.text == text) {
        let shown = chat.shown("t");
        assert!(tokio::time::Instant::now() < deadline, "{text}: {shown:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const SENT: &str = "SELECT count(*) FROM deliveries WHERE state = 'sent'";

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_answer_takes_over_the_post_that_showed_its_progress() {
    let chat = Chat::new(LONG);
    let (world, agent) = world(&chat).await;
    world.post(agent, "sleep 5; echo done").await;
    until_shown(&chat, "Working …").await;
    let stop = chat.shown("t")[0].buttons.clone();
    assert_eq!((stop.len(), &*stop[0].label), (1, "Stop"));
    assert!(!chat.calls("busy").is_empty());
    world.until_sql(SENT, "1").await;
    let shown = chat.shown("t");
    assert_eq!(
        (shown.len(), &*shown[0].text, shown[0].buttons.len()),
        (1, "done", 0)
    );
    assert!(shown[0].before.contains(&"Working …".to_owned()));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waited_long_is_told_by_a_new_post_and_the_old_one_goes() {
    let chat = Chat::new(LONG);
    let (world, agent) = world(&chat).await;
    world.post(agent, "sleep 20; echo done").await;
    until_shown(&chat, "Working …").await;
    let old = chat.shown("t")[0].id.clone();
    world.until_sql(SENT, "1").await;
    world.until_sql("SELECT count(*) FROM progress", "0").await;
    let shown = chat.shown("t");
    assert_eq!((shown.len(), &*shown[0].text), (1, "done"));
    assert_ne!(shown[0].id, old);
    world.end().await;
}

/// A tick has come to its commit, and may go on.
static HELD: AtomicBool = AtomicBool::new(false);
static FREE: AtomicBool = AtomicBool::new(false);

fn held_before_the_commit(passed: &'static str) {
    if passed == "commit.before" {
        HELD.store(true, Ordering::SeqCst);
        until("nobody lets it go", || FREE.load(Ordering::SeqCst));
    }
}

fn until(lacking: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{lacking}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn qu_05_a_late_word_about_progress_never_stands_over_the_answer() {
    let chat = Chat::new(Duration::from_millis(1500));
    let (world, agent) = world(&chat).await;
    faults::watch(held_before_the_commit);
    world.post(agent, "sleep 4; echo done").await;
    until_shown(&chat, "Working …").await;
    until("no commit", || HELD.load(Ordering::SeqCst));
    // Done one second after its caller has given up: the answer's own edit comes in between.
    let late = Fault::Late(Duration::from_millis(2500));
    chat.fault("edit", "t", [late]);
    world.change("UPDATE progress SET shown = 'another', shown_at = 0");
    until("no edit", || chat.late() > 0);
    FREE.store(true, Ordering::SeqCst);
    world.until_sql(SENT, "1").await;
    until("it is never done", || chat.late() == 0);
    let shown = chat.shown("t");
    assert_eq!((shown.len(), &*shown[0].text), (1, "done"));
    assert!(shown[0].before.contains(&"done".to_owned()), "{shown:?}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_that_cannot_be_shown_costs_nothing_else() {
    let chat = Chat::new(LONG);
    chat.fault("post", "t", [Fault::Panics]);
    let (world, agent) = world(&chat).await;
    world.post(agent, "sleep 4; echo done").await;
    world.until_sql(SENT, "1").await;
    assert_eq!(chat.texts("t"), ["done"]);
    world.end().await;
}

/// It stands so long that the answer does not take it over.
async fn grown_old(world: &World) {
    world.change("UPDATE progress SET asked_at = asked_at - 20000");
}

async fn until_nothing_is_due(world: &World) {
    world.until_sql(SENT, "1").await;
    world.until_sql("SELECT count(*) FROM progress", "0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn qu_05_a_removal_that_nobody_knows_the_end_of_is_done_again() {
    let chat = Chat::new(LONG);
    let unknown = || Fault::Fails(CallError::Unknown("no answer".to_owned()));
    chat.fault("remove", "t", [unknown(), unknown()]);
    let (world, agent) = world(&chat).await;
    world.post(agent, "sleep 4; echo done").await;
    until_shown(&chat, "Working …").await;
    grown_old(&world).await;
    until_nothing_is_due(&world).await;
    assert_eq!(chat.texts("t"), ["done"]);
    world.end().await;
}

/// Of the world that [`breaks_and_comes_back`] breaks, and its platform.
static BREAKS: OnceLock<(PathBuf, Arc<Chat>)> = OnceLock::new();
static BROKE: AtomicU32 = AtomicU32::new(0);

/// The database cannot take up that the first post was made, until somebody has tried to tell it.
fn breaks_and_comes_back(passed: &'static str) {
    let Some((database, chat)) = BREAKS.get() else {
        return;
    };
    let rename = |from, to| {
        let statement = format!("ALTER TABLE progress RENAME COLUMN {from} TO {to}");
        engine::change(database, &statement);
    };
    let step = match passed {
        "deliver.after" if !chat.shown("t").is_empty() => 0,
        "deliver.unrecorded" => 1,
        _ => return,
    };
    if BROKE
        .compare_exchange(step, step + 1, Ordering::SeqCst, Ordering::SeqCst)
        .is_ok()
    {
        match step {
            0 => rename("post", "broken"),
            _ => rename("broken", "post"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn qu_05_a_post_is_not_forgotten_while_the_database_is_away() {
    let chat = Chat::forgetful(LONG);
    let (world, agent) = world(&chat).await;
    let database = world.data_dir().join("mayfly.db");
    BREAKS.set((database, chat.clone())).unwrap();
    faults::watch(breaks_and_comes_back);
    world.post(agent, "sleep 6; echo done").await;
    until_nothing_is_due(&world).await;
    assert_eq!(BROKE.load(Ordering::SeqCst), 2);
    assert_eq!(chat.texts("t"), ["done"]);
    world.end().await;
}
