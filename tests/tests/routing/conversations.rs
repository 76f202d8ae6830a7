//! Which conversation a post belongs to, and whose agent answers there.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_mention_opens_a_thread_with_an_agent_and_what_follows_needs_none() {
    let scene = Scene::new().await;
    scene.posted(mention("1", "echo one"));
    assert_eq!(scene.texts("1").await, ["one"]);
    scene.posted(follow_up("1", "2", "echo two"));
    assert_eq!(scene.texts("1").await, ["one", "two"]);
    assert_eq!(
        (&*scene.count("agents"), &*scene.count("threads")),
        ("1", "1")
    );
    let seen = ["1", "2"].map(|id| (id.to_owned(), Sign::Seen));
    let signs = scene.chat.signs();
    assert!(seen.iter().all(|sign| signs.contains(sign)), "{signs:?}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn th_01_threads_with_one_name_in_two_channels_are_two_agents() {
    let scene = Scene::new().await;
    for name in ["C1", "C2"] {
        let mut post = mention("1700000000.000100", "echo x");
        post.id.channel = channel(name);
        post.thread = post.id.channel.thread("1700000000.000100");
        scene.posted(post);
    }
    scene.quiet().await;
    assert_eq!(scene.count("agents"), "2");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn th_07_a_thread_we_are_no_part_of_is_left_alone_and_a_dm_is_answered() {
    let scene = Scene::new().await;
    scene.posted(follow_up("t1", "1", "echo between us"));
    let mut dm = mention("2", "echo hello");
    dm.id.channel = channel("dm");
    dm.thread = dm.id.channel.thread("");
    (dm.place, dm.to_us) = (Place::Direct, false);
    scene.posted(dm);
    assert_eq!(scene.texts("").await, ["hello"]);
    assert_eq!(scene.texts("t1").await, [""; 0]);
    assert_eq!(scene.count("agents"), "1");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn th_08_a_chat_with_a_new_id_keeps_its_agents() {
    let scene = Scene::new().await;
    scene.posted(mention("1", "echo one"));
    scene.quiet().await;
    let moved = || Happened::Moved {
        from: channel("c1"),
        to: channel("c2"),
    };
    scene.happens(moved());
    scene.happens(moved());
    let mut post = follow_up("1", "2", "echo two");
    post.id.channel = channel("c2");
    post.thread = post.id.channel.thread("1");
    scene.posted(post);
    assert_eq!(scene.texts("1").await, ["one", "two"]);
    assert_eq!(scene.count("agents"), "1");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_what_we_said_goes_on_in_its_conversation() {
    let scene = Scene::new().await;
    scene.posted(mention("1", "echo one"));
    scene.quiet().await;
    let ours = scene.chat.shown("1")[0].id.clone();
    let mut reply = mention("2", "echo two");
    reply.answers = Some(ours);
    scene.posted(reply);
    assert_eq!(scene.texts("1").await, ["one", "two"]);
    assert_eq!(scene.count("agents"), "1");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn th_08_rights_by_the_old_id_hold_in_the_chat_with_a_new_one() {
    let mut access = open_to_all();
    access.allowed_channels = vec!["c1".to_owned()];
    let scene = Scene::with(access).await;
    scene.posted(mention("1", "echo one"));
    scene.quiet().await;
    // Somebody speaks there before the word of the move comes.
    let mut early = mention("1", "echo early");
    (early.id.id, early.id.channel) = ("7".to_owned(), channel("c2"));
    early.thread = early.id.channel.thread("1");
    scene.posted(early);
    scene.happens(Happened::Moved {
        from: channel("c1"),
        to: channel("c2"),
    });
    let mut post = follow_up("1", "8", "echo two");
    post.id.channel = channel("c2");
    post.thread = post.id.channel.thread("1");
    scene.posted(post);
    assert_eq!(scene.texts("1").await, ["one", "two"]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_whose_agent_was_removed_gets_a_new_one() {
    let scene = Scene::new().await;
    scene.posted(mention("1", "echo one"));
    scene.quiet().await;
    let agent = scene.world.sql("SELECT id FROM agents").parse().unwrap();
    scene
        .world
        .commands()
        .remove_agent(agent, false)
        .await
        .unwrap();
    scene.posted(mention("2", "echo beside"));
    let mut again = follow_up("1", "3", "echo again");
    again.to_us = true;
    scene.posted(again);
    assert_eq!(scene.texts("1").await.last().unwrap(), "again");
    assert_eq!(scene.texts("2").await, ["beside"]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn th_03_answers_to_a_bystander_are_no_conversation_of_ours() {
    let scene = Scene::new().await;
    scene.posted(follow_up("elsewhere", "1", "hello"));
    for (id, who) in [("2", "ada"), ("3", "carl")] {
        let mut reply = mention(id, "echo mine");
        reply.author.id = who.to_owned();
        reply.answers = Some("1".to_owned());
        scene.posted(reply);
    }
    scene.quiet().await;
    assert_eq!(scene.count("agents"), "2");
    scene.end().await;
}
