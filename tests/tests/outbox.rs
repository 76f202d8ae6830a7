//! Replies reach their threads: in order within one, side by side among many, and a platform that
//! is slow, silent or broken holds up nobody else.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use mayfly_domain::{AgentId, DeliverError, DeliveryId, Platform, Reply, ThreadKey};
use mayfly_orchestrator::sandbox::fake::Fake;
use mayfly_tests::world::{Setup, World};

/// How a call for a thread goes; by the thread's name.
enum Call {
    /// Never returns.
    Hangs,
    /// The first call fails like this, the others do not.
    FailsOnce(fn() -> DeliverError),
    /// The first call never returns, the others do.
    HangsOnce,
    /// The first call panics.
    PanicsOnce,
}

/// A platform of a test's own.
struct Chat {
    patience: Duration,
    calls: HashMap<&'static str, Call>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Texts that people see, by thread.
    texts: HashMap<String, Vec<String>>,
    shown: HashSet<DeliveryId>,
    tried: HashMap<String, u32>,
    writing: HashMap<String, u32>,
    most_at_once: usize,
    two_writers: bool,
}

impl Chat {
    fn new(patience: Duration, calls: impl Into<HashMap<&'static str, Call>>) -> Arc<Chat> {
        Arc::new(Chat {
            patience,
            calls: calls.into(),
            seen: Mutex::default(),
        })
    }

    fn texts(&self, thread: &str) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.texts.get(thread).cloned().unwrap_or_default()
    }
}

/// Takes the mark of a writer away, also where the call is dropped.
struct Writing<'a>(&'a Chat, &'a str);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut seen = self.0.seen.lock().unwrap();
        *seen.writing.get_mut(self.1).unwrap() -= 1;
    }
}

#[async_trait]
impl Platform for Chat {
    fn name(&self) -> &'static str {
        "chat"
    }

    fn patience(&self) -> Duration {
        self.patience
    }

    async fn deliver(
        &self,
        thread: &ThreadKey,
        id: DeliveryId,
        reply: &Reply,
    ) -> Result<String, DeliverError> {
        let name = thread.thread.as_str();
        let tried = {
            let mut seen = self.seen.lock().unwrap();
            let writers = seen.writing.entry(name.to_owned()).or_default();
            *writers += 1;
            let second = *writers > 1;
            seen.two_writers |= second;
            let now = seen.writing.values().filter(|count| **count > 0).count();
            seen.most_at_once = seen.most_at_once.max(now);
            let tried = seen.tried.entry(name.to_owned()).or_default();
            *tried += 1;
            *tried
        };
        let _writing = Writing(self, name);
        match self.calls.get(name) {
            Some(Call::Hangs) => std::future::pending().await,
            Some(Call::HangsOnce) if tried == 1 => std::future::pending().await,
            Some(Call::FailsOnce(error)) if tried == 1 => return Err(error()),
            Some(Call::PanicsOnce) if tried == 1 => panic!("an adapter's fault"),
            // Others get the chance to come between.
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
        let mut seen = self.seen.lock().unwrap();
        if seen.shown.insert(id) {
            let texts = seen.texts.entry(name.to_owned()).or_default();
            texts.push(reply.text.trim().to_owned());
        }
        Ok(format!("chat-{id}"))
    }
}

const LONG: Duration = Duration::from_secs(600);

async fn world(chat: &Arc<Chat>) -> World {
    let setup = Setup {
        platforms: vec![chat.clone()],
        ..Setup::default()
    };
    World::fake(setup, Fake::new).await
}

/// An agent whose thread is on a platform.
async fn agent_on(world: &World, platform: &str, thread: &str) -> AgentId {
    let agent = world.shell().await;
    world.change(&format!(
        "UPDATE threads SET key = '{platform}/w/c/{thread}' WHERE agent = '{agent}'"
    ));
    agent
}

fn count(state: &str) -> String {
    format!("SELECT count(*) FROM deliveries WHERE state = '{state}'")
}

#[tokio::test]
async fn a_call_that_hangs_holds_up_no_other_thread_and_no_other_platform() {
    let chat = Chat::new(LONG, [("slow", Call::Hangs)]);
    let world = world(&chat).await;
    let slow = agent_on(&world, "chat", "slow").await;
    world.say(slow, "echo first").await;
    world.until_sql(&count("owed"), "1").await;
    let quick = agent_on(&world, "chat", "quick").await;
    let local = world.shell().await;
    world.say(quick, "echo second").await;
    world.say(local, "echo third").await;
    world.until_sql(&count("sent"), "2").await;
    assert_eq!(chat.texts("quick"), ["second"]);
    // The call that hangs does not hold up the end either, and is no try.
    world.end_owing(1).await;
    assert_eq!(chat.texts("slow"), [""; 0]);
}

#[tokio::test]
async fn a_thread_is_written_in_order_by_one_writer_also_over_a_failure() {
    let down = || DeliverError::Transient("connection refused".into());
    let chat = Chat::new(LONG, [("t", Call::FailsOnce(down))]);
    let world = world(&chat).await;
    let agent = agent_on(&world, "chat", "t").await;
    let mut last = world.post(agent, "echo 0").await;
    for n in 1..6 {
        last = world.post(agent, &format!("echo {n}")).await;
    }
    world.outcome(&last).await;
    world.until_sql(&count("sent"), "6").await;
    assert_eq!(chat.texts("t"), ["0", "1", "2", "3", "4", "5"]);
    assert!(!chat.seen.lock().unwrap().two_writers);
    assert_eq!(world.sql("SELECT sum(attempts) FROM deliveries"), "1");
    world.end().await;
}

#[tokio::test]
async fn a_call_without_an_answer_is_dropped_and_made_again() {
    let chat = Chat::new(Duration::from_millis(300), [("t", Call::HangsOnce)]);
    let world = world(&chat).await;
    let agent = agent_on(&world, "chat", "t").await;
    world.say(agent, "echo here").await;
    world.until_sql(&count("sent"), "1").await;
    assert_eq!(chat.texts("t"), ["here"]);
    let reason = world.sql("SELECT attempts || ' ' || reason FROM deliveries");
    assert!(
        reason.starts_with("1 ") && reason.contains("300 ms"),
        "{reason}"
    );
    world.end().await;
}

#[tokio::test]
async fn a_panic_in_an_adapter_costs_one_try_of_one_delivery() {
    let chat = Chat::new(LONG, [("t", Call::PanicsOnce)]);
    let world = world(&chat).await;
    let agent = agent_on(&world, "chat", "t").await;
    world.say(agent, "echo here").await;
    world.until_sql(&count("sent"), "1").await;
    assert_eq!(chat.texts("t"), ["here"]);
    world.end().await;
}

#[tokio::test]
async fn what_a_platform_refuses_is_parked_and_the_next_goes_on() {
    let refused = || DeliverError::Permanent("no such channel".into());
    let chat = Chat::new(LONG, [("t", Call::FailsOnce(refused))]);
    let world = world(&chat).await;
    let agent = agent_on(&world, "chat", "t").await;
    world.say(agent, "echo first").await;
    world.until_sql(&count("parked"), "1").await;
    world.say(agent, "echo second").await;
    world.until_sql(&count("sent"), "1").await;
    assert_eq!(chat.texts("t"), ["second"]);
    let elsewhere = agent_on(&world, "gone", "t").await;
    world.say(elsewhere, "echo third").await;
    let told = "SELECT count(*) FROM deliveries WHERE state = 'parked' AND reason LIKE '%no platform \"gone\"%'";
    world.until_sql(told, "1").await;
    world.end().await;
}

#[tokio::test]
async fn a_platform_is_written_to_in_few_threads_at_once() {
    const THREADS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let hangs = THREADS.map(|name| (name, Call::Hangs));
    let chat = Chat::new(Duration::from_secs(3), hangs);
    let world = world(&chat).await;
    let mut agents = Vec::new();
    for name in THREADS {
        agents.push(agent_on(&world, "chat", name).await);
    }
    for agent in agents {
        world.post(agent, "echo x").await;
    }
    // All ten have been tried: the last two only when others had used up their time.
    let tried = "SELECT count(*) FROM deliveries WHERE attempts > 0";
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while world.sql(tried).parse::<usize>().unwrap() < THREADS.len() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "{}",
            world.sql(tried)
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let most = chat.seen.lock().unwrap().most_at_once;
    assert_eq!(most, 8);
    world.end_owing(THREADS.len() as u32).await;
}
