//! Replies reach their threads: in order within one, side by side among many, and a platform that
//! is slow, silent or broken holds up nobody else.

use std::{sync::Arc, time::Duration};

use mayfly_domain::{AgentId, Channel, chat::CallError};
use mayfly_orchestrator::sandbox::fake::Fake;
use mayfly_tests::{
    chat::{Chat, Fault},
    engine::run,
    postgres,
    world::{Setup, World},
};

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

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_hangs_holds_up_no_other_thread_and_no_other_platform() {
    let chat = Chat::new(LONG);
    chat.fault("post", "slow", [Fault::Hangs]);
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

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_is_written_in_order_by_one_writer_also_over_a_failure() {
    let chat = Chat::new(LONG);
    let down = CallError::NotDone("connection refused".into());
    chat.fault("edit", "t", [Fault::Fails(down)]);
    let world = world(&chat).await;
    let agent = agent_on(&world, "chat", "t").await;
    let mut last = world.post(agent, "echo 0").await;
    for n in 1..6 {
        last = world.post(agent, &format!("echo {n}")).await;
    }
    world.outcome(&last).await;
    world.until_sql(&count("sent"), "6").await;
    assert_eq!(chat.texts("t"), ["0", "1", "2", "3", "4", "5"]);
    assert!(!chat.writers().1);
    assert_eq!(world.sql("SELECT sum(attempts) FROM deliveries"), "1");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_an_answer_is_dropped_and_made_again() {
    let chat = Chat::new(Duration::from_millis(300));
    chat.fault("post", "t", [Fault::Hangs]);
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

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_an_adapter_costs_one_try_of_one_delivery() {
    let chat = Chat::new(LONG);
    chat.fault("post", "t", [Fault::Panics]);
    let world = world(&chat).await;
    let agent = agent_on(&world, "chat", "t").await;
    world.say(agent, "echo here").await;
    world.until_sql(&count("sent"), "1").await;
    assert_eq!(chat.texts("t"), ["here"]);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_platform_refuses_is_parked_and_the_next_goes_on() {
    let chat = Chat::new(LONG);
    let refused = CallError::Refused("no such channel".into());
    chat.fault("post", "t", [Fault::Fails(refused)]);
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

#[tokio::test(flavor = "multi_thread")]
async fn a_platform_is_written_to_in_few_threads_at_once() {
    const THREADS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let chat = Chat::new(Duration::from_secs(3));
    for name in THREADS {
        chat.fault("post", name, vec![Fault::Hangs; 100]);
    }
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
    assert_eq!(chat.writers().0, 8);
    world.end_owing(THREADS.len() as u32).await;
}

fn lost() -> Fault {
    Fault::DoneFails(CallError::Unknown("the connection broke".into()))
}

/// What is said by a delivery that is not one of the agent's, kind by kind.
const REMARKS: &str = "SELECT group_concat(text, '|') FROM deliveries WHERE kind = 'remark'";

#[tokio::test(flavor = "multi_thread")]
async fn rb_04_a_reply_is_seen_once_whichever_answer_was_lost() {
    for call in ["post", "edit"] {
        for fault in [lost(), Fault::Done] {
            let chat = Chat::new(Duration::from_millis(300));
            chat.fault(call, "t", [fault.clone()]);
            let world = world(&chat).await;
            let agent = agent_on(&world, "chat", "t").await;
            world.say(agent, "echo here").await;
            world.until_sql(&count("sent"), "1").await;
            assert_eq!(chat.texts("t"), ["here"], "{call} {fault:?}");
            assert_eq!(chat.shown("t").len(), 1, "{call} {fault:?}");
            world.end().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_token_is_kept_only_an_empty_post_comes_twice() {
    let chat = Chat::forgetful(LONG);
    chat.fault("post", "t", [lost()]);
    let world = world(&chat).await;
    let agent = agent_on(&world, "chat", "t").await;
    world.say(agent, "echo here").await;
    world.until_sql(&count("sent"), "1").await;
    let texts: Vec<String> = chat.shown("t").into_iter().map(|post| post.text).collect();
    assert_eq!(texts, ["…", "here"]);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_that_may_still_come_is_waited_for() {
    let chat = Chat::new(Duration::from_millis(1500));
    // It is done one second after its caller has given up.
    chat.fault("edit", "t", [Fault::Late(Duration::from_millis(2500))]);
    let world = world(&chat).await;
    let agent = agent_on(&world, "chat", "t").await;
    world.say(agent, "echo here").await;
    world.until_sql(&count("sent"), "1").await;
    // Given up after 1.5 s, it could have come in the 1.5 s after that: the last one came later.
    let edits = chat.calls("edit");
    let last = *edits.last().unwrap() - edits[0];
    assert!(last >= Duration::from_millis(3000), "{last:?}");
    assert_eq!(chat.texts("t"), ["here"]);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_reply_is_three_posts_in_order_and_a_longer_one_a_file() {
    let chat = Chat::narrow(200);
    // Posts are made one after the other, whatever happens between them.
    chat.fault("post", "t", [lost(), lost(), lost()]);
    let world = world(&chat).await;
    let agent = agent_on(&world, "chat", "t").await;
    let text = |n: usize| "0123456789".repeat(n);
    world.say(agent, &format!("echo {}", text(45))).await;
    world.until_sql(&count("sent"), "1").await;
    assert_eq!(chat.texts("t").concat(), text(45));
    assert_eq!(chat.texts("t").len(), 3);
    world.say(agent, &format!("echo {}", text(70))).await;
    world.until_sql(&count("sent"), "2").await;
    let later = &chat.texts("t")[3..];
    assert_eq!(later, [text(20), "[reply.md]".to_owned()]);
    assert_eq!(chat.sent_file("reply.md").unwrap(), text(70).as_bytes());
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_that_somebody_removes_is_made_again() {
    let chat = Chat::new(LONG);
    let gone = CallError::Gone("removed by an admin".into());
    chat.fault("edit", "t", [Fault::Fails(gone)]);
    let world = world(&chat).await;
    let agent = agent_on(&world, "chat", "t").await;
    world.say(agent, "echo here").await;
    world.until_sql(&count("sent"), "1").await;
    assert_eq!(chat.texts("t"), ["here"]);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn th_07_a_chat_that_moves_takes_its_threads_along() {
    let chat = Chat::new(LONG);
    let to = Channel {
        platform: "chat".into(),
        workspace: "w".into(),
        channel: "new".into(),
    };
    chat.fault("post", "t", [Fault::Fails(CallError::Moved(to))]);
    let world = world(&chat).await;
    let agent = agent_on(&world, "chat", "t").await;
    world.say(agent, "echo here").await;
    world.until_sql(&count("sent"), "1").await;
    assert_eq!(world.sql("SELECT key FROM threads"), "chat/w/new/t");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fi_a_text_never_waits_for_a_file_and_what_is_missing_is_told() {
    let chat = Chat::new(Duration::from_millis(500));
    let refused = CallError::Refused("files are switched off here".into());
    chat.fault("file", "t", [Fault::Fails(refused), lost()]);
    let setup = Setup {
        platforms: vec![chat.clone()],
        ..Setup::default()
    };
    let world = World::docker_with(setup).await;
    let agent = agent_on(&world, "chat", "t").await;
    let files =
        "mkdir -p /work/send; cd /work/send; echo a > a.txt; echo b > b.txt; echo c > c.txt;
        head -c 1100000 /dev/zero > big; echo here";
    world.say(agent, files).await;
    world.until_sql(&count("sent"), "3").await;
    let remarks = world.sql(REMARKS);
    for told in [
        "\"a.txt\" could not be sent: files are switched off",
        "\"b.txt\" may not have arrived",
        "\"big\" has 2 MiB",
    ] {
        assert!(remarks.contains(told), "{remarks}");
    }
    let texts = chat.texts("t");
    assert_eq!(texts[..3], ["here", "[b.txt]", "[c.txt]"]);
    assert!(texts[3].contains("a.txt"), "{texts:?}");
    assert_eq!(chat.sent_file("c.txt").unwrap(), b"c\n");
    world.end().await;
}

/// Asking again would not bring it, and its thread would wait for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_content_is_lost_holds_up_nothing() {
    let chat = Chat::new(LONG);
    let down = CallError::NotDone("connection refused".into());
    chat.fault("file", "t", [Fault::Fails(down)]);
    let world = world(&chat).await;
    let agent = agent_on(&world, "chat", "t").await;
    let file = "mkdir -p /work/send; echo a > /work/send/a.txt; echo here";
    world.say(agent, file).await;
    let failed = "SELECT count(*) FROM deliveries WHERE state = 'owed' AND attempts = 1";
    world.until_sql(failed, "1").await;
    run(
        "rm",
        &["-r", &world.data_dir().join("blobs").display().to_string()],
    );
    world.say(agent, "rm /work/send/a.txt; echo next").await;
    world.until_sql(&count("owed"), "0").await;
    let remarks = world.sql(REMARKS);
    let told = "\"a.txt\" could not be sent: its content is lost";
    assert!(remarks.contains(told), "{remarks}");
    let texts = chat.texts("t");
    assert_eq!(texts.first().map(String::as_str), Some("here"));
    assert!(texts.iter().any(|text| text == "next"), "{texts:?}");
    world.end().await;
}

/// A lane's own look at the database must not wait for a connection that one of its writers holds
/// and, not being polled meanwhile, never gives back.
#[tokio::test(flavor = "multi_thread")]
async fn qu_04_many_replies_in_many_threads_never_wait_for_each_others_connections() {
    const THREADS: usize = 16;
    const REPLIES: usize = 25;
    let chat = Chat::new(LONG);
    let world = world(&chat).await;
    for n in 0..THREADS {
        agent_on(&world, "chat", &format!("t{n}")).await;
    }
    let uuid = match postgres::wanted() {
        true => "overlay(CAST(gen_random_uuid() AS TEXT) placing '7' from 15 for 1)",
        false => {
            "lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-7' || substr(hex(randomblob(2)), 2)
             || '-a' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))"
        }
    };
    world.change(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {REPLIES})
         INSERT INTO deliveries (id, thread, message, kind, text, created_at)
         SELECT {uuid}, t.id, {uuid}, 'remark', 'reply ' || i, i FROM threads t, n"
    ));
    let since = std::time::Instant::now();
    world
        .until_sql(&count("sent"), &(THREADS * REPLIES).to_string())
        .await;
    println!("{} replies in {:?}", THREADS * REPLIES, since.elapsed());
    for n in 0..THREADS {
        // What is so old says so, before what it says.
        let texts = chat.texts(&format!("t{n}")).into_iter();
        let ends: Vec<String> = texts
            .map(|text| text.lines().last().unwrap().to_owned())
            .collect();
        let expected: Vec<String> = (1..=REPLIES).map(|i| format!("reply {i}")).collect();
        assert_eq!(ends, expected, "t{n}");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_owed_is_kept_however_long_that_takes() {
    let chat = Chat::narrow(20);
    chat.fault("post", "t", [Fault::Hangs]);
    let world = world(&chat).await;
    let agent = agent_on(&world, "chat", "t").await;
    world
        .say(agent, &format!("echo {}", "0123456789".repeat(20)))
        .await;
    let named = "SELECT count(*) FROM parts WHERE blob IS NOT NULL";
    world.until_sql(named, "1").await;
    let hash = world.sql("SELECT blob FROM parts WHERE blob IS NOT NULL");
    let path = world.data_dir().join("blobs").join(&hash[..2]).join(&hash);
    run("touch", &["-d", "3 days ago", path.to_str().unwrap()]);
    world.gc().await;
    assert!(path.exists());
    world.end_owing(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_parked_with_a_reason_and_holds_up_nothing() {
    for (broken, told) in [
        ("UPDATE parts SET state = 'nothing'", "parts.state"),
        ("UPDATE parts SET kind = 'nothing'", "parts.kind"),
        ("UPDATE parts SET lost = 'x'", "parts.lost"),
        (
            "UPDATE deliveries SET message = 'x' WHERE state = 'owed'",
            "deliveries.message",
        ),
    ] {
        // Only SQLite takes a word for a number.
        if postgres::wanted() && told == "parts.lost" {
            continue;
        }
        let chat = Chat::new(LONG);
        let down = CallError::NotDone("connection refused".into());
        chat.fault("edit", "t", [Fault::Fails(down)]);
        let world = world(&chat).await;
        let agent = agent_on(&world, "chat", "t").await;
        world.say(agent, "echo first").await;
        let failed = "SELECT count(*) FROM deliveries WHERE state = 'owed' AND attempts = 1";
        world.until_sql(failed, "1").await;
        world.change(broken);
        world.until_sql(&count("parked"), "1").await;
        let reason = world.sql("SELECT reason FROM deliveries WHERE state = 'parked'");
        let (table, column) = told.split_once('.').unwrap();
        assert!(
            reason.contains(table) && reason.ends_with(column),
            "{broken}: {reason}"
        );
        world.say(agent, "echo second").await;
        world.until_sql(&count("sent"), "1").await;
        assert_eq!(chat.texts("t"), ["second"], "{broken}");
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_given_up_for_its_removed_posts_gets_as_many_tries_again() {
    let chat = Chat::new(LONG);
    let gone = || Fault::Fails(CallError::Gone("removed by an admin".into()));
    chat.fault("edit", "t", vec![gone(); 5]);
    let world = world(&chat).await;
    let agent = agent_on(&world, "chat", "t").await;
    let message = world.say(agent, "echo here").await.id;
    world.until_sql(&count("parked"), "1").await;
    assert_eq!(chat.calls("edit").len(), 4);
    world.commands().retry(&message.to_string()).await.unwrap();
    world.until_sql(&count("sent"), "1").await;
    assert_eq!(chat.texts("t"), ["here"]);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_counts_removed_posts_from_zero() {
    let chat = Chat::new(LONG);
    let gone = Fault::Fails(CallError::Gone("removed by an admin".into()));
    let refused = Fault::Fails(CallError::Refused("the channel is archived".into()));
    // Removed as often as it may be, then refused; asked for again, and removed once more.
    let faults = [&gone, &gone, &gone, &refused, &gone].map(Fault::clone);
    chat.fault("edit", "t", faults);
    let world = world(&chat).await;
    let agent = agent_on(&world, "chat", "t").await;
    let message = world.say(agent, "echo here").await.id;
    world.until_sql(&count("parked"), "1").await;
    assert_eq!(chat.calls("edit").len(), 4);
    world.commands().retry(&message.to_string()).await.unwrap();
    world.until_sql(&count("sent"), "1").await;
    assert_eq!(chat.texts("t"), ["here"]);
    assert_eq!(chat.calls("edit").len(), 6);
    world.end().await;
}
