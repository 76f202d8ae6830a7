//! What people say to Mayfly itself in a thread, and buttons.

use std::{sync::Arc, time::Duration};

use mayfly_domain::{
    Author, Channel, Event, Happened, Place, PostId, Posted, Pressed,
    chat::{Button, CallError},
};
use mayfly_orchestrator::inbox::access::{Access, EVERYONE};
use mayfly_tests::{
    chat::{Chat, Fault, NAME, Shown},
    world::{Setup, World},
};

struct Scene {
    world: World,
    chat: Arc<Chat>,
    posts: u32,
}

fn channel() -> Channel {
    Channel {
        platform: NAME.to_owned(),
        workspace: "w".to_owned(),
        channel: "c".to_owned(),
    }
}

fn person(name: &str) -> Author {
    Author {
        id: name.to_lowercase(),
        name: name.to_owned(),
    }
}

impl Scene {
    async fn new() -> Scene {
        Scene::with(&[]).await
    }

    async fn with(admins: &[&str]) -> Scene {
        Scene::on(Chat::new(Duration::from_secs(600)), admins).await
    }

    async fn on(chat: Arc<Chat>, admins: &[&str]) -> Scene {
        let mut access = Access::default();
        access.audience.allowed_users = vec![EVERYONE.to_owned()];
        access.audience.admins = admins.iter().map(|name| (*name).to_owned()).collect();
        access.allowed_channels = vec![EVERYONE.to_owned()];
        let world = World::docker_with(Setup {
            platforms: vec![chat.clone()],
            accesses: [(NAME.to_owned(), access)].into(),
            ..Setup::default()
        })
        .await;
        Scene {
            world,
            chat,
            posts: 0,
        }
    }

    fn says(&mut self, who: &str, thread: &str, text: &str) {
        self.posts += 1;
        let id = self.posts.to_string();
        let channel = channel();
        let posted = Posted {
            thread: channel.thread(thread),
            id: PostId {
                channel,
                id: id.clone(),
            },
            place: Place::Thread,
            author: person(who),
            by_bot: false,
            roles: Vec::new(),
            text: text.to_owned(),
            to_us: self.posts == 1,
            files: Vec::new(),
            twin: None,
            words_of: None,
            group: None,
            answers: None,
            at: mayfly_orchestrator::clock::unix_ms(),
        };
        self.chat.happens(Event {
            key: id,
            happened: Happened::Posted(Box::new(posted)),
        });
    }

    fn presses(&mut self, who: &str, thread: &str, on: &str, button: &Button) {
        self.posts += 1;
        let channel = channel();
        let pressed = Pressed {
            button: button.id.clone(),
            thread: channel.thread(thread),
            on: PostId {
                channel,
                id: on.to_owned(),
            },
            by: person(who),
            roles: Vec::new(),
            answer_to: "x".to_owned(),
        };
        self.chat.happens(Event {
            key: format!("press {}", self.posts),
            happened: Happened::Pressed(pressed),
        });
    }

    /// Waits until everything that happened has come to its end.
    async fn quiet(&self) {
        let seen = self.posts.to_string();
        let applied = "SELECT count(*) FROM arrivals WHERE state != 'new' AND seq > 0";
        self.world.until_sql(applied, &seen).await;
        let open = "SELECT (SELECT count(*) FROM messages WHERE outcome IS NULL)
            + (SELECT count(*) FROM orders WHERE state != 'done')
            + (SELECT count(*) FROM deliveries WHERE state = 'owed')";
        self.world.until_sql(open, "0").await;
    }

    /// What is said in answer to this, and nothing else.
    async fn answer(&mut self, text: &str) -> String {
        let before = self.chat.texts("t").len();
        self.says("Ada", "t", text);
        self.quiet().await;
        let texts = self.chat.texts("t");
        assert_eq!(texts.len(), before + 1, "{text}: {texts:?}");
        texts[before].clone()
    }

    async fn end(self) {
        self.world.end().await;
    }
}

/// The first words in backticks.
fn quoted(text: &str) -> &str {
    text.split('`').nth(1).expect("something in backticks")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_is_looked_at_rolled_back_forked_and_taken_along() {
    let mut scene = Scene::new().await;
    assert_eq!(scene.answer("echo one > f; echo one").await, "one");
    assert_eq!(scene.answer("echo two > f; echo two").await, "two");
    assert!(scene.answer("!help").await.contains("`!rollback`"));
    let status = scene.answer("/status").await;
    assert!(
        status.contains("nothing runs") && status.contains("2 ticks"),
        "{status}"
    );
    let history = scene.answer("!history").await;
    assert_eq!(history.matches("done").count(), 2, "{history}");
    let second = quoted(&history).to_owned();
    let diff = scene.answer("!diff").await;
    assert!(diff.contains("~ /work/f"), "{diff}");
    assert!(scene.answer("!usage").await.contains("2 ticks"));
    // A question with buttons; the answer moves files and conversation.
    assert!(
        scene
            .answer("!rollback")
            .await
            .contains("before the last tick?")
    );
    let question = scene.chat.shown("t").pop().unwrap();
    let (yes, no) = (question.buttons[0].clone(), question.buttons[1].clone());
    assert!(yes.danger);
    scene.presses("Ada", "t", &question.id, &yes);
    scene.presses("Eve", "t", &question.id, &no);
    scene.quiet().await;
    assert_eq!(
        scene.chat.answers(),
        ["Roll back", "Somebody else has decided already."]
    );
    let shown = scene.chat.shown("t");
    let question = shown.iter().find(|post| post.id == question.id).unwrap();
    assert_eq!(
        (&*question.text, question.buttons.len()),
        ("Roll back: Ada", 0)
    );
    assert!(shown.last().unwrap().text.contains("goes forward again"));
    assert_eq!(scene.answer("cat f").await, "one");
    // A fork has its own conversation.
    let forked = scene.answer(&format!("!fork {second}")).await;
    let link = forked.split("chat://").nth(1).unwrap().to_owned();
    scene.says("Ada", &link, "cat f");
    scene.quiet().await;
    assert_eq!(scene.chat.texts(&link).last().unwrap(), "two");
    assert_eq!(scene.answer("cat f").await, "one");
    // The archive.
    scene.says("Ada", "t", "!export");
    scene.quiet().await;
    let name = scene.chat.texts("t").pop().unwrap();
    let tar = scene.chat.sent_file(name.trim_matches(['[', ']'])).unwrap();
    assert_eq!(&tar[257..262], b"ustar");
    // A fresh start.
    assert!(scene.answer("!new").await.contains("fresh agent"));
    assert_eq!(scene.answer("ls | wc -l").await, "0");
    assert_eq!(scene.world.sql("SELECT count(*) FROM agents"), "3");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_acts_at_once_and_is_for_the_opener_and_admins() {
    let mut scene = Scene::with(&["root"]).await;
    scene.says("Ada", "t", "echo begun; sleep 60; echo over");
    let running = "SELECT count(*) FROM ticks WHERE outcome IS NULL AND phase = 'running'";
    scene.world.until_sql(running, "1").await;
    scene.says("Eve", "t", "!stop");
    scene
        .world
        .until_sql("SELECT count(*) FROM orders WHERE state = 'done'", "1")
        .await;
    assert_eq!(scene.world.sql(running), "1");
    scene.says("Root", "t", "!stop");
    scene.quiet().await;
    let texts = scene.chat.texts("t");
    assert!(texts[0].contains("whoever opened"), "{texts:?}");
    assert!(
        texts.iter().any(|text| text.contains("is being stopped")),
        "{texts:?}"
    );
    assert!(
        texts
            .iter()
            .any(|text| text.contains("stopped, changes kept")),
        "{texts:?}"
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_is_told_and_starts_nothing() {
    let mut scene = Scene::new().await;
    assert_eq!(scene.answer("echo hi").await, "hi");
    for (said, told) in [
        ("!history x", "!help"),
        ("!rollback ffffffff", "no tick"),
        ("!retry", "is parked"),
        ("!diff ffffffff", "no tick"),
    ] {
        let answer = scene.answer(said).await;
        assert!(answer.contains(told), "{said}: {answer}");
    }
    assert_eq!(scene.answer("/bin/echo !status").await, "!status");
    assert_eq!(scene.world.sql("SELECT count(*) FROM ticks"), "2");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_press_by_whoever_may_not_uses_nothing_up_and_an_old_button_stops_nothing_new() {
    let mut scene = Scene::with(&["root"]).await;
    scene.says("Ada", "t", "echo begun; sleep 600");
    let running = "SELECT count(*) FROM ticks WHERE outcome IS NULL AND phase = 'running'";
    scene.world.until_sql(running, "1").await;
    scene
        .world
        .until_sql("SELECT count(*) FROM progress WHERE post IS NOT NULL", "1")
        .await;
    let post = scene.chat.shown("t").pop().unwrap();
    let stop = post.buttons[0].clone();
    scene.presses("Eve", "t", &post.id, &stop);
    scene
        .world
        .until_sql("SELECT count(*) FROM orders WHERE state = 'done'", "1")
        .await;
    assert_eq!(scene.world.sql(running), "1");
    scene.presses("Ada", "t", &post.id, &stop);
    scene.quiet().await;
    assert!(
        scene
            .chat
            .texts("t")
            .iter()
            .any(|text| text.contains("stopped, changes kept"))
    );
    // The post of progress has one writer, and this is not it.
    let said = |post: &Shown| {
        post.before
            .iter()
            .chain([&post.text])
            .any(|text| text.contains("Ada"))
    };
    assert!(!scene.chat.shown("t").iter().any(said));
    // The same button, of a message that is over.
    scene.world.change("UPDATE buttons SET pressed_at = NULL");
    scene.says("Ada", "t", "sleep 3; echo whole");
    scene.world.until_sql(running, "1").await;
    scene.presses("Ada", "t", &post.id, &stop);
    scene.quiet().await;
    let texts = scene.chat.texts("t");
    assert!(texts.contains(&"whole".to_owned()), "{texts:?}");
    assert!(
        texts.contains(&"That is over already.".to_owned()),
        "{texts:?}"
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_another_conversation_is_not_run_again() {
    let mut scene = Scene::new().await;
    assert_eq!(scene.answer("echo hi").await, "hi");
    let other = scene.world.shell().await;
    let parked = scene.world.say(other, "echo secret").await.id;
    scene.world.change(&format!(
        "UPDATE messages SET outcome = 'parked' WHERE id = '{parked}'"
    ));
    let told = scene.answer(&format!("!retry {parked}")).await;
    assert!(told.contains("of another conversation"), "{told}");
    let outcome = format!("SELECT outcome FROM messages WHERE id = '{parked}'");
    assert_eq!(scene.world.sql(&outcome), "parked");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_delivered_is_told_and_comes_again() {
    let mut scene = Scene::new().await;
    let refused = CallError::Refused("the bot may not write here".into());
    scene.chat.fault("post", "t", [Fault::Fails(refused)]);
    scene.says("Ada", "t", "echo hi");
    let parked = "SELECT count(*) FROM deliveries WHERE state = 'parked'";
    scene.world.until_sql(parked, "1").await;
    let status = scene.answer("!status").await;
    assert!(
        status.contains("1 text not delivered") && status.contains("may not write"),
        "{status}"
    );
    scene.says("Ada", "t", "!retry");
    scene.quiet().await;
    let texts = scene.chat.texts("t");
    assert!(texts.contains(&"hi".to_owned()), "{texts:?}");
    assert_eq!(scene.world.sql(parked), "0");
    assert!(scene.answer("!retry").await.contains("No message"));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rb_04_a_file_of_which_nobody_can_tell_comes_again_for_whoever_is_first() {
    let mut scene = Scene::on(Chat::new(Duration::from_millis(500)), &[]).await;
    let lost = || Fault::DoneFails(CallError::Unknown("the connection broke".into()));
    let file = "mkdir -p send; echo a > send/a.txt; echo here";
    for (press, files) in [("Send again", 2), ("It is there", 3)] {
        scene.chat.fault("file", "t", [lost()]);
        scene.says("Ada", "t", file);
        scene.quiet().await;
        let question = scene.chat.shown("t").pop().unwrap();
        assert!(question.text.contains("\"a.txt\" may not have arrived"));
        let labels: Vec<&str> = question.buttons.iter().map(|b| &*b.label).collect();
        assert_eq!(labels, ["Send again", "It is there"]);
        let first = question.buttons.iter().find(|b| b.label == press).unwrap();
        scene.presses("Eve", "t", &question.id, first);
        for button in &question.buttons {
            scene.presses("Ada", "t", &question.id, button);
        }
        scene.quiet().await;
        let texts = scene.chat.texts("t");
        let shown = texts.iter().filter(|text| *text == "[a.txt]").count();
        assert_eq!(shown, files, "{texts:?}");
        assert!(texts.contains(&format!("{press}: Eve")), "{texts:?}");
        let late = ["Somebody else has decided already."; 2];
        assert_eq!(
            scene
                .chat
                .answers()
                .split_off(scene.chat.answers().len() - 2),
            late
        );
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_button_whose_file_or_meaning_is_gone_says_so() {
    let mut scene = Scene::on(Chat::new(Duration::from_millis(500)), &[]).await;
    let lost = CallError::Unknown("the connection broke".into());
    scene.chat.fault("file", "t", [Fault::DoneFails(lost)]);
    scene.says("Ada", "t", "mkdir -p send; echo a > send/a.txt; echo here");
    scene.quiet().await;
    let question = scene.chat.shown("t").pop().unwrap();
    let again = question.buttons[0].clone();
    let hash = scene
        .world
        .sql("SELECT blob FROM buttons WHERE blob IS NOT NULL");
    let blob = scene
        .world
        .data_dir()
        .join("blobs")
        .join(&hash[..2])
        .join(&hash);
    std::fs::remove_file(blob).unwrap();
    scene.presses("Ada", "t", &question.id, &again);
    scene.quiet().await;
    let texts = scene.chat.texts("t");
    assert!(
        texts.last().unwrap().contains("not kept here any more"),
        "{texts:?}"
    );
    scene.world.change("DELETE FROM buttons");
    scene.presses("Ada", "t", &question.id, &again);
    scene.quiet().await;
    let texts = scene.chat.texts("t");
    assert!(
        texts.last().unwrap().contains("from too long ago"),
        "{texts:?}"
    );
    assert!(
        scene
            .chat
            .answers()
            .last()
            .unwrap()
            .contains("from too long ago")
    );
    scene.end().await;
}

/// Where forks are, by command line or in a thread.
const FORKS: &str = "SELECT count(*) FROM agents WHERE forked_from IS NOT NULL";

#[tokio::test(flavor = "multi_thread")]
async fn fm_07_a_fork_whose_conversation_may_be_open_is_a_question_where_nobody_can_tell() {
    let mut scene = Scene::on(Chat::forgetful(Duration::from_secs(5)), &[]).await;
    assert_eq!(scene.answer("echo one > f; echo one").await, "one");
    let not_done = CallError::NotDone("the platform is down".into());
    let limited = CallError::Limited {
        reason: "slowly".into(),
        after: Duration::from_millis(100),
    };
    let faults = [Fault::Fails(not_done), Fault::Fails(limited), Fault::Done];
    scene.chat.fault("open", "t", faults);
    let asked = scene.answer("!fork").await;
    assert!(asked.contains("cannot tell whether"), "{asked}");
    assert_eq!(scene.chat.calls("open").len(), 3);
    let question = scene.chat.shown("t").pop().unwrap();
    scene.presses("Ada", "t", &question.id, &question.buttons[0]);
    scene.quiet().await;
    let told = scene.chat.texts("t").pop().unwrap();
    let link = told.split("chat://").nth(1).expect("a link").to_owned();
    scene.says("Ada", &link, "cat f");
    scene.quiet().await;
    assert_eq!(scene.chat.texts(&link).last().unwrap(), "one");
    assert_eq!(scene.world.sql(FORKS), "1");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fm_07_a_fork_whose_answer_was_lost_is_found_and_somebody_elses_thread_stays_theirs() {
    let mut scene = Scene::new().await;
    assert_eq!(scene.answer("echo one > f; echo one").await, "one");
    let lost = || Fault::DoneFails(CallError::Unknown("the connection broke".into()));
    scene.chat.fault("open", "t", [lost(), lost()]);
    let told = scene.answer("!fork").await;
    let link = told.split("chat://").nth(1).expect("a link").to_owned();
    assert_eq!(scene.chat.calls("open").len(), 3);
    scene.says("Ada", &link, "cat f");
    scene.quiet().await;
    assert_eq!(scene.chat.texts(&link).last().unwrap(), "one");
    let refused = CallError::Refused("threads are not allowed here".into());
    scene.chat.fault("open", "t", [Fault::Fails(refused)]);
    let told = scene.answer("!fork").await;
    assert!(told.contains("not allowed here") && told.contains("command line"));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_begins_a_conversation_where_a_fork_was_to_be_keeps_it() {
    let mut scene = Scene::new().await;
    assert_eq!(scene.answer("echo one").await, "one");
    let begun = scene.world.shell().await;
    let key = channel().thread(scene.chat.next_opened());
    scene.world.change(&format!(
        "UPDATE threads SET key = '{key}' WHERE agent = '{begun}'"
    ));
    let told = scene.answer("!fork").await;
    assert!(
        told.contains("another conversation in its thread"),
        "{told}"
    );
    let theirs = format!("SELECT agent FROM threads WHERE key = '{key}'");
    assert_eq!(scene.world.sql(&theirs), begun.to_string());
    scene.end().await;
}
