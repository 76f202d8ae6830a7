//! What comes late, what has to wait, what is forgotten.

use std::time::Instant;

use super::*;

fn in_channel(mut posted: Posted, name: &str) -> Posted {
    posted.id.channel = channel(name);
    posted.thread = posted.id.channel.thread(&posted.thread.thread);
    posted
}

#[tokio::test(flavor = "multi_thread")]
async fn ev_07_what_comes_long_after_it_was_written_is_not_run_and_told_once() {
    let scene = Scene::new().await;
    for n in 0..20 {
        let mut post = mention("1", "echo late");
        if n > 0 {
            post = follow_up("1", &(n + 1).to_string(), "echo late");
        }
        post.at = now() - 20 * 60 * 60 * 1000 + n;
        scene.posted(post);
    }
    let texts = scene.texts("1").await;
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].contains("20 h"), "{texts:?}");
    let parked = "SELECT count(*) FROM messages WHERE outcome = 'parked'";
    assert_eq!(
        (&*scene.world.sql(parked), &*scene.count("ticks")),
        ("20", "0")
    );
    scene.posted(follow_up("1", "99", "echo now"));
    assert_eq!(scene.texts("1").await[1], "now");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn qu_01_all_that_comes_while_a_tick_runs_is_answered_in_its_order() {
    let scene = Scene::new().await;
    scene.posted(mention("1", "sleep 2; echo 1"));
    for n in 2..=6 {
        scene.posted(follow_up("1", &n.to_string(), &format!("echo {n}")));
    }
    assert_eq!(scene.texts("1").await, ["1", "2", "3", "4", "5", "6"]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_platform_told_is_forgotten_after_a_week_and_its_messages_are_not() {
    let scene = Scene::new().await;
    scene.posted(mention("1", "echo one"));
    scene.posted(follow_up("elsewhere", "2", "echo between us"));
    scene.happens(Happened::Deleted(mention("9", "").id));
    scene.quiet().await;
    assert_eq!(scene.count("arrivals"), "3");
    assert_eq!(scene.count("parts"), "0");
    let week = 7 * 24 * 60 * 60 * 1000;
    scene.world.change(&format!(
        "UPDATE arrivals SET received_at = received_at - {week}"
    ));
    scene.world.change(&format!(
        "UPDATE posts SET created_at = created_at - {week}"
    ));
    scene
        .world
        .until_sql("SELECT count(*) FROM arrivals", "0")
        .await;
    let left = "SELECT group_concat(CASE WHEN message IS NULL THEN '0' ELSE '1' END) FROM (SELECT message FROM posts ORDER BY CASE WHEN told IS NULL THEN 1 ELSE 0 END) AS t";
    assert_eq!(scene.world.sql(left), "1,0", "Ada's and ours");
    // What counts them begins anew, as they do.
    scene.keys.store(0, Ordering::Relaxed);
    scene.posted(follow_up("1", "3", "echo two"));
    assert_eq!(scene.texts("1").await, ["one", "two"]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn qu_03_what_cannot_be_applied_holds_up_its_channel_only_and_not_for_ever() {
    let scene = Scene::new().await;
    scene.world.change(
        "INSERT INTO arrivals (thread, key, raw, received_at, event, seq, state)
         VALUES ('chat', 'broken', '', 0, '{', -1, 'new')",
    );
    // As with a profile whose image is missing, the channel waits.
    scene.world.refuse("posts", "NEW.id = 'poison'");
    let mut poison = mention("poison", "echo x");
    poison.id.channel = channel("c2");
    poison.thread = poison.id.channel.thread("t2");
    scene.posted(poison.clone());
    for n in 0..150 {
        let mut chatter = follow_up("t2", &format!("x{n}"), "echo between us");
        chatter.id.channel = channel("c2");
        chatter.thread = chatter.id.channel.thread("t3");
        scene.posted(chatter);
    }
    scene.posted(mention("1", "echo one"));
    let one = "SELECT count(*) FROM deliveries WHERE state = 'sent'";
    scene.world.until_sql(one, "1").await;
    assert_eq!(scene.chat.texts("1"), ["one"]);
    assert!(!scene.world.commands().ready().await.ready);
    scene.world.refuse_no_more("posts");
    scene.quiet().await;
    assert_eq!(scene.chat.texts("t2"), ["x"]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_comes_long_after_it_was_given_is_not_done() {
    let scene = Scene::new().await;
    scene.posted(mention("1", "echo one"));
    scene.quiet().await;
    let mut late = follow_up("1", "2", "!new");
    late.at = now() - 20 * 60 * 60 * 1000;
    scene.posted(late);
    let texts = scene.texts("1").await;
    assert!(texts[1].contains("was not done"), "{texts:?}");
    assert_eq!(scene.count("agents"), "1");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ev_07_what_is_parked_keeps_its_files() {
    let scene = Scene::new().await;
    scene.chat.keep_file("f1", b"content");
    let mut late = mention("1", "cat received/a.txt");
    late.at = now() - 20 * 60 * 60 * 1000;
    late.files = vec![file("f1", "a.txt")];
    scene.posted(late);
    scene.quiet().await;
    let kept = "SELECT count(*) FROM message_files";
    scene.world.until_sql(kept, "1").await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_without_a_key_are_each_kept() {
    let scene = Scene::new().await;
    for why in ["unreadable", "unknown"] {
        scene.chat.happens(Event {
            key: String::new(),
            happened: Happened::Ignored(why.to_owned()),
        });
    }
    scene
        .world
        .until_sql("SELECT count(*) FROM arrivals WHERE state != 'new'", "2")
        .await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn qu_03_an_image_that_is_fetched_slowly_holds_up_its_channel_only_and_in_order() {
    let chat = Chat::new(LONG);
    let mut access = open_to_all();
    let rule = ChannelRule {
        profile: Some("large".to_owned()),
        ..ChannelRule::default()
    };
    access.channels.insert("c2".to_owned(), rule);
    let large = Profile {
        sandbox: "docker:large".parse().unwrap(),
        ..Profile::default()
    };
    let mut setup = setup(&chat, access);
    setup.profiles.push(("large".to_owned(), large));
    let mut engine = None;
    let world = World::fake(setup, |supervisor, lease| {
        let fake = Fake::new(supervisor, lease);
        engine.insert(fake).clone()
    });
    let scene = Scene {
        world: world.await,
        chat,
        keys: AtomicI64::default(),
    };
    let engine = engine.unwrap();
    engine.script(|script| {
        script.fetched.insert("large".to_owned());
    });
    let in_large = |posted: Posted| in_channel(posted, "c2");
    scene.posted(in_large(mention("m1", "echo one")));
    for n in 2..6 {
        scene.posted(in_large(follow_up(
            "m1",
            &format!("m{n}"),
            &format!("echo {n}"),
        )));
    }
    // Others open conversations meanwhile, and more than once.
    for n in 0..3 {
        scene.posted(mention(&format!("o{n}"), &format!("echo other {n}")));
        let sent = "SELECT count(*) FROM deliveries WHERE state = 'sent'";
        scene.world.until_sql(sent, &(n + 1).to_string()).await;
    }
    assert_eq!(
        scene
            .world
            .sql("SELECT count(*) FROM arrivals WHERE state = 'new'"),
        "5"
    );
    assert!(scene.chat.texts("m1").is_empty());
    assert!(scene.world.commands().ready().await.ready);
    engine.script(|script| script.fetched.clear());
    assert_eq!(scene.texts("m1").await, ["one", "2", "3", "4", "5"]);
    scene.end().await;
}

/// Fetching an image takes minutes; whoever opened the conversation sees at once that they were heard.
#[tokio::test(flavor = "multi_thread")]
async fn sp_03_whoever_waits_for_an_image_sees_within_two_seconds_that_they_were_heard() {
    let shell = Profile {
        sandbox: "docker:large".parse().unwrap(),
        ..Profile::default()
    };
    let (scene, engine) = Scene::on(open_to_all(), shell).await;
    engine.script(|script| {
        script.fetched.insert("large".to_owned());
    });
    // What else runs here may take one of them some time.
    let mut quickest = LONG;
    for n in 1..=3 {
        let (post, began) = (mention(&n.to_string(), "echo one"), Instant::now());
        scene.posted(in_channel(post, &format!("c{n}")));
        let sign = (n.to_string(), Sign::Seen);
        while !scene.chat.signs().contains(&sign) {
            assert!(began.elapsed() < Duration::from_secs(30), "no sign of life");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        quickest = quickest.min(began.elapsed());
    }
    assert!(quickest < Duration::from_secs(2), "{quickest:?}");
    assert_eq!(scene.count("messages"), "0", "its image is still fetched");
    engine.script(|script| script.fetched.clear());
    assert_eq!(scene.texts("1").await, ["one"]);
    assert_eq!(scene.chat.signs().len(), 3, "each once");
    scene.end().await;
}

/// A picture that is fetched slowly keeps its place before the words that came after it.
#[tokio::test(flavor = "multi_thread")]
async fn qu_05_words_never_overtake_the_picture_before_them() {
    let scene = Scene::new().await;
    scene.chat.keep_file("slow", b"content");
    scene.chat.never_give("slow");
    let mut picture = mention("1", "cat received/a.txt > kept; echo first");
    picture.files = vec![file("slow", "a.txt")];
    scene.posted(picture);
    scene.posted(follow_up("1", "2", "cat kept"));
    let open = "SELECT count(*) FROM messages WHERE outcome IS NULL";
    scene.world.until_sql(open, "2").await;
    scene.posted(mention("o", "echo other"));
    let sent = "SELECT count(*) FROM deliveries WHERE state = 'sent'";
    scene.world.until_sql(sent, "1").await;
    assert!(scene.chat.texts("1").is_empty());
    scene.chat.give_all();
    assert_eq!(scene.texts("1").await, ["first", "content"]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn why_an_event_waits_is_told_also_while_it_is_tried_again() {
    let shell = Profile {
        sandbox: "docker:is-missing".parse().unwrap(),
        ..Profile::default()
    };
    let (scene, engine) = Scene::on(open_to_all(), shell).await;
    scene.posted(mention("1", "echo one"));
    let told = async || {
        let problems = scene.world.commands().ready().await.problems;
        problems.iter().any(|why| why.contains("is-missing"))
    };
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !told().await {
        assert!(tokio::time::Instant::now() < deadline, "it is never told");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The next try is still under way when this has passed.
    engine.script(|script| {
        script.fetched.insert("is-missing".to_owned());
    });
    let until = tokio::time::Instant::now() + Duration::from_secs(6);
    while tokio::time::Instant::now() < until {
        assert!(told().await, "it is not told any more");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fi_files_that_come_slowly_hold_up_no_other_message() {
    let scene = Scene::new().await;
    // One message's files never come, and it has more of them than are fetched at once of one.
    let mut slow = mention("s", "echo slow");
    slow.files = (0..9)
        .map(|n| file(&format!("never{n}"), "a.txt"))
        .collect();
    scene.chat.never_give("never");
    scene.posted(slow);
    let wanted = "SELECT count(*) FROM remote_files WHERE state = 'wanted'";
    scene.world.until_sql(wanted, "9").await;
    for n in 0..20 {
        let id = format!("q{n}");
        scene.chat.keep_file(&id, b"content");
        let mut quick = mention(&id, "cat received/a.txt");
        quick.files = vec![file(&id, "a.txt")];
        scene.posted(quick);
    }
    let sent = "SELECT count(*) FROM deliveries WHERE state = 'sent'";
    scene.world.until_sql(sent, "20").await;
    assert_eq!(scene.world.sql(wanted), "9");
    scene.chat.give_all();
    assert_eq!(
        scene.texts("s").await.len(),
        10,
        "nine remarks and the answer"
    );
    scene.end().await;
}
