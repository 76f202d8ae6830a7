//! Which events are one message, and what edits and deletions do to it.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn ev_02_two_events_of_one_post_are_one_message_whichever_comes_first() {
    for first in [Twin::Mention, Twin::Message] {
        let scene = Scene::new().await;
        scene.chat.keep_file("f1", b"content");
        let mut told = mention("1", "echo once");
        told.twin = Some(Twin::Mention);
        let mut whole = mention("1", "echo once");
        (whole.twin, whole.to_us) = (Some(Twin::Message), false);
        whole.files = vec![file("f1", "a.txt")];
        let (a, b) = match first {
            Twin::Mention => (told, whole),
            Twin::Message => (whole, told),
        };
        scene.posted(a);
        scene.posted(b);
        assert_eq!(scene.texts("1").await, ["once"], "{first:?}");
        assert_eq!(scene.count("messages"), "1", "{first:?}");
        assert_eq!(scene.count("message_files"), "1", "{first:?}");
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ev_02_the_second_event_may_be_missing() {
    let scene = Scene::new().await;
    let mut told = mention("1", "echo once");
    told.twin = Some(Twin::Mention);
    scene.posted(told.clone());
    assert_eq!(scene.texts("1").await, ["once"]);
    // It comes after all, with a file that the answered message did not have.
    scene.chat.keep_file("f1", b"content");
    told.twin = Some(Twin::Message);
    told.files = vec![file("f1", "a.txt")];
    scene.posted(told);
    scene.quiet().await;
    assert_eq!(scene.count("messages"), "2");
    assert_eq!(scene.count("message_files"), "1");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ev_01_a_redelivered_event_is_the_first_one_again() {
    let scene = Scene::new().await;
    let event = Event {
        key: "Ev1".to_owned(),
        happened: Happened::Posted(Box::new(mention("1", "echo once"))),
    };
    scene.keys.fetch_add(1, Ordering::Relaxed);
    for _ in 0..3 {
        scene.chat.happens(event.clone());
    }
    assert_eq!(scene.texts("1").await, ["once"]);
    // Another event about the same post changes nothing either.
    scene.posted(mention("1", "echo once"));
    assert_eq!(scene.texts("1").await, ["once"]);
    assert_eq!(scene.count("messages"), "1");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ev_04_an_edit_after_the_answer_counts_only_with_a_mention() {
    let scene = Scene::new().await;
    scene.posted(mention("1", "echo one"));
    assert_eq!(scene.texts("1").await, ["one"]);
    // A preview adds nothing to the text; a typo is mended without a mention.
    scene.edited(mention("1", "echo one"));
    let mut quietly = mention("1", "echo mended");
    quietly.to_us = false;
    scene.edited(quietly);
    assert_eq!(scene.texts("1").await, ["one"]);
    // Somebody else's hand does not count at all.
    let mut other = mention("1", "echo forged");
    other.author.id = "eve".to_owned();
    scene.edited(other);
    assert_eq!(scene.texts("1").await, ["one"]);
    scene.edited(mention("1", "echo again"));
    assert_eq!(scene.texts("1").await, ["one", "again"]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_before_the_tick_replaces_and_a_deletion_withdraws() {
    let scene = Scene::new().await;
    scene.posted(mention("1", "sleep 3; echo first"));
    scene.posted(follow_up("1", "2", "echo wrong"));
    scene.posted(follow_up("1", "3", "echo regretted"));
    let three = "SELECT count(*) FROM messages";
    scene.world.until_sql(three, "3").await;
    scene.edited(follow_up("1", "2", "echo right"));
    let regretted = follow_up("1", "3", "").id;
    scene.happens(Happened::Deleted(regretted));
    assert_eq!(scene.texts("1").await, ["first", "right"]);
    let outcomes =
        "SELECT group_concat(outcome) FROM (SELECT outcome FROM messages ORDER BY seq) AS t";
    assert_eq!(scene.world.sql(outcomes), "answered,answered,withdrawn");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_album_is_one_message_with_all_its_files() {
    let scene = Scene::new().await;
    for n in 1..=3 {
        scene.chat.keep_file(&format!("f{n}"), b"picture");
        let mut item = mention(&n.to_string(), if n == 2 { "echo seen" } else { "" });
        item.thread = item.id.channel.thread("");
        (item.place, item.group) = (Place::Direct, Some("g1".to_owned()));
        item.files = vec![file(&format!("f{n}"), "photo.jpg")];
        scene.posted(item);
    }
    assert_eq!(scene.texts("").await, ["seen"]);
    assert_eq!(scene.count("messages"), "1");
    let names =
        "SELECT group_concat(name) FROM (SELECT name FROM message_files ORDER BY position) AS t";
    let mut names: Vec<String> = scene
        .world
        .sql(names)
        .split(',')
        .map(str::to_owned)
        .collect();
    names.sort();
    assert_eq!(names, ["photo-2.jpg", "photo-3.jpg", "photo.jpg"]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fi_a_file_that_cannot_be_had_is_told_and_the_message_runs() {
    let scene = Scene::new().await;
    let mut post = mention("1", "echo ran");
    post.files = vec![file("gone", "a.txt")];
    scene.posted(post);
    let texts = scene.texts("1").await;
    assert!(texts.contains(&"ran".to_owned()), "{texts:?}");
    assert!(
        texts
            .iter()
            .any(|text| text.contains("\"a.txt\" could not be fetched")),
        "{texts:?}"
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_its_author_took_back_never_runs_whatever_comes_first() {
    let scene = Scene::new().await;
    let post = mention("1", "echo regretted");
    scene.happens(Happened::Deleted(post.id.clone()));
    scene.posted(post);
    let mut told = mention("2", "echo regretted too");
    told.twin = Some(Twin::Mention);
    scene.posted(told.clone());
    scene.happens(Happened::Deleted(told.id.clone()));
    told.twin = Some(Twin::Message);
    scene.posted(told);
    scene.quiet().await;
    assert_eq!(scene.count("ticks"), "0");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caption_that_is_mended_leaves_the_album_whole() {
    let scene = Scene::new().await;
    scene.posted(mention("0", "sleep 3; echo first"));
    for (n, text) in [("1", "echo a"), ("2", ""), ("3", "echo c")] {
        let mut item = follow_up("0", n, text);
        item.group = Some("g1".to_owned());
        scene.posted(item);
    }
    scene
        .world
        .until_sql("SELECT count(*) FROM posts WHERE album = 'g1'", "3")
        .await;
    scene.edited(follow_up("0", "1", "echo A"));
    scene.happens(Happened::Deleted(follow_up("0", "2", "").id));
    assert_eq!(scene.texts("0").await, ["first", "A\nc"]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caption_that_comes_after_its_album_began_is_said_too() {
    let scene = Scene::new().await;
    let item = |id: &str, text: &str| {
        let mut item = mention(id, text);
        item.thread = item.id.channel.thread("");
        (item.place, item.group) = (Place::Direct, Some("g1".to_owned()));
        item
    };
    scene.posted(item("1", "echo first"));
    assert_eq!(scene.texts("").await, ["first"]);
    scene.posted(item("2", "echo caption"));
    assert_eq!(scene.texts("").await, ["first", "caption"]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_mended_into_a_command_is_one() {
    let scene = Scene::new().await;
    scene.posted(mention("1", "echo one"));
    scene.quiet().await;
    scene.edited(mention("1", "!status"));
    let texts = scene.texts("1").await;
    assert!(texts[1].contains("nothing runs"), "{texts:?}");
    assert_eq!(scene.count("ticks"), "1");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_words_is_answered_with_what_can_be_said() {
    let scene = Scene::new().await;
    let silent = |id: &str, twin| {
        let mut post = mention(id, " ");
        post.twin = twin;
        post
    };
    scene.posted(silent("1", None));
    let texts = scene.texts("1").await;
    assert!(texts.len() == 1 && texts[0].contains("!help"), "{texts:?}");
    // Slack tells of one post twice: the files come with the second, and are a message.
    scene.chat.keep_file("f1", b"content");
    scene.posted(silent("2", Some(Twin::Mention)));
    let mut whole = silent("2", Some(Twin::Message));
    whole.files = vec![file("f1", "a.txt")];
    scene.posted(whole);
    scene.quiet().await;
    assert_eq!(
        (&*scene.count("orders"), &*scene.count("messages")),
        ("1", "1")
    );
    scene.posted(silent("3", Some(Twin::Message)));
    scene.posted(silent("3", Some(Twin::Mention)));
    assert!(scene.texts("3").await[0].contains("!help"));
    // Nobody is told who did not call: a sticker in a thread, a program.
    scene.posted(follow_up("1", "4", ""));
    let mut robot = silent("5", None);
    robot.by_bot = true;
    scene.posted(robot);
    scene.quiet().await;
    assert_eq!(scene.count("orders"), "2");
    // What is added by an edit is run.
    scene.edited(mention("1", "echo now"));
    assert_eq!(scene.texts("1").await.last().unwrap(), "now");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_name_of_the_bot_a_command_is_done_and_all_else_is_said_to_the_agent() {
    let scene = Scene::new().await;
    let by_name = |id: &str, text: &str| mention(id, &format!("/mayfly {text}"));
    scene.posted(by_name("1", "echo the words"));
    scene.quiet().await;
    let mut status = by_name("2", "status");
    status.thread = mention("1", "").thread;
    scene.posted(status);
    scene.quiet().await;
    assert_eq!(
        scene.world.sql("SELECT group_concat(text) FROM messages"),
        "echo the words"
    );
    let texts = scene.texts("1").await;
    assert!(
        texts[0] == "the words" && texts[1].contains("nothing runs"),
        "{texts:?}"
    );
    scene.end().await;
}
