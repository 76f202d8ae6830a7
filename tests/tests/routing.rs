//! What events of a platform add up to: which posts are one message, whose, and which agent answers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use mayfly_domain::{
    Author, Channel, Event, Happened, Place, PostId, Posted, RemoteFile, Twin, chat::Sign,
};
use mayfly_orchestrator::{
    inbox::access::{Access, ChannelRule, EVERYONE},
    sandbox::fake::Fake,
};
use mayfly_tests::{
    chat::{Chat, NAME},
    world::{Setup, World},
};

const LONG: Duration = Duration::from_secs(600);

/// A place on the platform, with people in it.
struct Scene {
    world: World,
    chat: Arc<Chat>,
    keys: AtomicI64,
}

fn open_to_all() -> Access {
    let mut access = Access::default();
    access.audience.allowed_users = vec![EVERYONE.to_owned()];
    access.allowed_channels = vec![EVERYONE.to_owned()];
    access
}

fn setup(chat: &Arc<Chat>, access: Access) -> Setup {
    Setup {
        platforms: vec![chat.clone()],
        accesses: [(NAME.to_owned(), access)].into(),
        ..Setup::default()
    }
}

fn channel(name: &str) -> Channel {
    Channel {
        platform: NAME.to_owned(),
        workspace: "w".to_owned(),
        channel: name.to_owned(),
    }
}

fn now() -> i64 {
    mayfly_orchestrator::clock::unix_ms()
}

/// Ada writes this in a channel, to us.
fn mention(id: &str, text: &str) -> Posted {
    let channel = channel("c1");
    Posted {
        thread: channel.thread(id),
        id: PostId {
            channel,
            id: id.to_owned(),
        },
        place: Place::Channel,
        author: Author {
            id: "ada".to_owned(),
            name: "Ada".to_owned(),
        },
        by_bot: false,
        roles: Vec::new(),
        text: text.to_owned(),
        to_us: true,
        files: Vec::new(),
        twin: None,
        group: None,
        answers: None,
        at: now(),
    }
}

/// Ada goes on in a thread.
fn follow_up(thread: &str, id: &str, text: &str) -> Posted {
    let mut posted = mention(id, text);
    posted.thread = posted.id.channel.thread(thread);
    posted.place = Place::Thread;
    posted.to_us = false;
    posted
}

fn file(id: &str, name: &str) -> RemoteFile {
    RemoteFile {
        id: id.to_owned(),
        name: name.to_owned(),
        size: None,
        media_type: None,
        url: None,
    }
}

impl Scene {
    async fn new() -> Scene {
        Scene::with(open_to_all()).await
    }

    async fn with(access: Access) -> Scene {
        let chat = Chat::new(LONG);
        let world = World::fake(setup(&chat, access), Fake::new).await;
        Scene {
            world,
            chat,
            keys: AtomicI64::default(),
        }
    }

    fn happens(&self, happened: Happened) {
        let key = format!("e{}", self.keys.fetch_add(1, Ordering::Relaxed));
        self.chat.happens(Event { key, happened });
    }

    fn posted(&self, posted: Posted) {
        self.happens(Happened::Posted(Box::new(posted)));
    }

    fn edited(&self, posted: Posted) {
        self.happens(Happened::Edited(Box::new(posted)));
    }

    /// Waits until everything that happened is applied and every message has its outcome.
    async fn quiet(&self) {
        let seen = self.keys.load(Ordering::Relaxed).to_string();
        self.world
            .until_sql(
                "SELECT count(*) FROM arrivals WHERE state != 'new' AND seq > 0",
                &seen,
            )
            .await;
        let open = "SELECT (SELECT count(*) FROM messages WHERE outcome IS NULL)
            + (SELECT count(*) FROM orders WHERE state != 'done')
            + (SELECT count(*) FROM deliveries WHERE state = 'owed')";
        self.world.until_sql(open, "0").await;
    }

    async fn texts(&self, thread: &str) -> Vec<String> {
        self.quiet().await;
        self.chat.texts(thread)
    }

    fn count(&self, table: &str) -> String {
        self.world.sql(&format!("SELECT count(*) FROM {table}"))
    }

    async fn end(self) {
        self.world.end().await;
    }
}

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
    let outcomes = "SELECT group_concat(outcome) FROM (SELECT outcome FROM messages ORDER BY seq)";
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
    let names = "SELECT group_concat(name) FROM (SELECT name FROM message_files ORDER BY position)";
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
    let outcomes = "SELECT group_concat(outcome) FROM (SELECT outcome FROM messages ORDER BY seq)";
    assert_eq!(scene.world.sql(outcomes), "answered,withdrawn");
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
    let left = "SELECT group_concat(COALESCE(message IS NOT NULL, 0)) FROM (SELECT message FROM posts ORDER BY told IS NULL)";
    assert_eq!(scene.world.sql(left), "1,0", "Ada's and ours");
    // What counts them begins anew, as they do.
    scene.keys.store(0, Ordering::Relaxed);
    scene.posted(follow_up("1", "3", "echo two"));
    assert_eq!(scene.texts("1").await, ["one", "two"]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn se_06_rights_are_those_of_the_channel_the_conversation_is_in() {
    let mut access = open_to_all();
    let mut rule = ChannelRule::default();
    rule.audience.allowed_users = vec!["ada".to_owned()];
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
async fn qu_03_what_cannot_be_applied_holds_up_its_channel_only_and_not_for_ever() {
    let scene = Scene::new().await;
    scene.world.change(
        "INSERT INTO arrivals (thread, key, raw, received_at, event, seq, state)
         VALUES ('chat', 'broken', x'00', 0, '{', -1, 'new')",
    );
    // As with a profile whose image is missing, the channel waits.
    scene.world.change(
        "CREATE TRIGGER poison BEFORE INSERT ON posts WHEN NEW.id = 'poison'
         BEGIN SELECT RAISE(ABORT, 'no'); END",
    );
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
    scene.world.change("DROP TRIGGER poison");
    scene.quiet().await;
    assert_eq!(scene.chat.texts("t2"), ["x"]);
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
    let prompts = "SELECT group_concat(text, '|') FROM (SELECT text FROM messages ORDER BY seq)";
    assert_eq!(scene.world.sql(prompts), "echo one|echo two");
    assert_eq!(scene.count("orders"), "0");
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
