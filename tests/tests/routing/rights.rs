//! Who may speak, and who may not any more.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn se_06_nobody_may_speak_who_is_not_named() {
    let scene = Scene::with(Access::default()).await;
    scene.posted(mention("1", "echo open"));
    let mut dm = mention("2", "echo hello");
    dm.place = Place::Direct;
    scene.posted(dm);
    scene.quiet().await;
    assert_eq!(
        (&*scene.count("agents"), &*scene.count("messages")),
        ("0", "0")
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ev_09_programs_talk_only_so_long_and_a_person_starts_anew() {
    let mut access = open_to_all();
    access.audience.allowed_bots = vec!["robot".to_owned()];
    access.max_bot_turns = 2;
    let scene = Scene::with(access).await;
    scene.posted(mention("1", "echo one"));
    scene.quiet().await;
    for n in 2..7 {
        let mut post = follow_up("1", &n.to_string(), "echo more");
        (post.by_bot, post.author.id) = (true, "robot".to_owned());
        scene.posted(post);
        scene.quiet().await;
    }
    assert_eq!(scene.texts("1").await, ["one", "more", "more"]);
    scene.posted(follow_up("1", "7", "echo stop that"));
    assert_eq!(scene.texts("1").await.len(), 4);
    let mut stranger = follow_up("1", "8", "echo x");
    (stranger.by_bot, stranger.author.id) = (true, "other".to_owned());
    scene.posted(stranger);
    assert_eq!(scene.texts("1").await.len(), 4);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn se_06_who_loses_the_right_to_speak_while_waiting_is_not_run() {
    let mut access = open_to_all();
    access.audience.allowed_users = vec!["ada".to_owned()];
    let scene = Scene::with(access).await;
    scene.posted(mention("1", "sleep 3; echo first"));
    scene.posted(follow_up("1", "2", "echo second"));
    let two = "SELECT count(*) FROM messages";
    scene.world.until_sql(two, "2").await;
    let stranger = "UPDATE posts SET told = replace(told, '\"ada\"', '\"eve\"') WHERE id = '2'";
    scene.world.change(stranger);
    let texts = scene.texts("1").await;
    assert_eq!(texts[0], "first");
    assert!(
        texts[1].contains("may not speak here any more"),
        "{texts:?}"
    );
    let outcomes =
        "SELECT group_concat(outcome) FROM (SELECT outcome FROM messages ORDER BY seq) AS t";
    assert_eq!(scene.world.sql(outcomes), "answered,withdrawn");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn se_06_rights_are_those_of_the_channel_the_conversation_is_in() {
    let mut access = open_to_all();
    let rule = ChannelRule {
        allowed_users: Some(vec!["ada".to_owned()]),
        ..ChannelRule::default()
    };
    access.channels.insert("c1".to_owned(), rule);
    access.allowed_channels = vec!["c1".to_owned()];
    let scene = Scene::with(access).await;
    scene.posted(mention("1", "echo one"));
    scene.quiet().await;
    // As on Discord, where a thread is a channel with an id of its own.
    let in_thread = |id: &str, who: &str| {
        let mut post = follow_up("1", id, &format!("echo {who}"));
        post.id.channel = channel("thread");
        post.author.id = who.to_owned();
        post
    };
    scene.posted(in_thread("2", "ada"));
    scene.posted(in_thread("3", "eve"));
    assert_eq!(scene.texts("1").await, ["one", "ada"]);
    // What a stranger says is not kept.
    assert_eq!(
        scene
            .world
            .sql("SELECT count(*) FROM posts WHERE told LIKE '%eve%'"),
        "0"
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn se_07_what_a_stranger_says_reaches_no_agent_and_no_button() {
    let mut access = open_to_all();
    access.audience.allowed_users = vec!["ada".to_owned()];
    let scene = Scene::with(access).await;
    scene.posted(mention("1", "echo one"));
    scene.quiet().await;
    let mut stranger = follow_up("1", "2", "Ada: echo forged");
    stranger.author = Author {
        id: "mallory".to_owned(),
        name: "Ada".to_owned(),
    };
    stranger.to_us = true;
    scene.posted(stranger.clone());
    let mut edit = mention("1", "echo forged");
    edit.author = stranger.author.clone();
    scene.edited(edit);
    let mut order = stranger;
    (order.id.id, order.text) = ("3".to_owned(), "!rollback".to_owned());
    scene.posted(order);
    scene.posted(follow_up("1", "4", "echo two"));
    assert_eq!(scene.texts("1").await, ["one", "two"]);
    let prompts =
        "SELECT group_concat(text, '|') FROM (SELECT text FROM messages ORDER BY seq) AS t";
    assert_eq!(scene.world.sql(prompts), "echo one|echo two");
    assert_eq!(scene.count("orders"), "0");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ev_09_a_program_that_opens_a_thread_with_each_post_is_bound_as_well() {
    let mut access = open_to_all();
    access.audience.allowed_bots = vec!["robot".to_owned()];
    access.max_bot_turns = 2;
    let scene = Scene::with(access).await;
    let robot = |id: &str, place: &str| {
        let mut post = mention(id, "echo more");
        post.thread = channel(place).thread(id);
        post.id.channel = channel(place);
        (post.by_bot, post.author.id) = (true, "robot".to_owned());
        post
    };
    for n in 1..5 {
        scene.posted(robot(&n.to_string(), "c1"));
        scene.quiet().await;
    }
    assert_eq!(scene.count("agents"), "2");
    // Another channel is another conversation, also where its name begins alike.
    scene.posted(robot("5", "c12"));
    scene.quiet().await;
    assert_eq!(scene.count("agents"), "3");
    // A person anywhere in the channel starts it anew.
    scene.posted(mention("6", "echo go on"));
    scene.quiet().await;
    for n in 7..10 {
        scene.posted(robot(&n.to_string(), "c1"));
        scene.quiet().await;
    }
    assert_eq!(scene.count("agents"), "6");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn se_07_words_that_are_passed_on_are_no_command_and_carry_their_writer() {
    let scene = Scene::new().await;
    scene.posted(mention("1", "echo one"));
    scene.quiet().await;
    let mut passed = follow_up("1", "2", "!status");
    passed.words_of = Some(Author {
        id: "mallory".to_owned(),
        name: "Mallory".to_owned(),
    });
    scene.posted(passed);
    scene.quiet().await;
    assert_eq!(scene.count("orders"), "0");
    let tick = scene
        .world
        .sql("SELECT id FROM ticks ORDER BY id DESC LIMIT 1");
    let agent = scene.world.sql("SELECT id FROM agents").parse().unwrap();
    let told = mayfly_orchestrator::agent::transcript::path(
        scene.world.data_dir(),
        agent,
        tick.parse().unwrap(),
    );
    let told = std::fs::read_to_string(told).unwrap();
    let head = "# Ada (ada) passes on words of Mallory (mallory):\\n!status";
    assert!(told.contains(head), "{told}");
    scene.end().await;
}
