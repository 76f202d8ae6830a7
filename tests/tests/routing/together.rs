//! What goes into one tick: messages that wait, and what comes while a tick begins.

use mayfly_domain::Limits;
use mayfly_orchestrator::agent::{
    profile::{PromptForm, Waiting},
    transcript,
};

use super::*;

fn merging(form: PromptForm, command: &[&str]) -> Profile {
    let shell = Profile::default();
    Profile {
        waiting: Waiting::Merge,
        prompt: form,
        command: match command {
            [] => shell.command.clone(),
            own => own.iter().map(|part| (*part).to_owned()).collect(),
        },
        ..shell
    }
}

fn bo(mut post: Posted) -> Posted {
    post.author = Author {
        id: "bo".to_owned(),
        name: "Bo\u{202e}\nB".to_owned(),
    };
    post
}

const OUTCOMES: &str =
    "SELECT group_concat(outcome) FROM (SELECT outcome FROM messages ORDER BY seq) AS t";
const WAITING: &str = "SELECT count(*) FROM messages WHERE outcome IS NULL";

impl Scene {
    /// A tick is being made, of the first message.
    async fn spawning(&self) {
        let open = "SELECT count(*) FROM ticks WHERE outcome IS NULL";
        self.world.until_sql(open, "1").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn qu_01_all_that_waits_is_answered_together_and_once() {
    let (scene, engine) = Scene::on(open_to_all(), merging(PromptForm::Text, &[])).await;
    engine.script(|script| script.slow = true);
    scene.posted(mention("1", "echo one"));
    scene.spawning().await;
    scene.posted(follow_up("1", "2", "echo two"));
    scene.posted(bo(follow_up("1", "3", "echo three")));
    scene.world.until_sql(WAITING, "3").await;
    engine.script(|script| script.slow = false);
    assert_eq!(scene.texts("1").await, ["one", "two\nthree"]);
    assert_eq!(scene.world.sql(OUTCOMES), "answered,answered,merged");
    assert_eq!(scene.count("ticks"), "2");
    let owed = "SELECT count(*) FROM deliveries WHERE kind = 'answer'";
    assert_eq!(scene.world.sql(owed), "2");
    // Each is named with its author, and no name leaves its line.
    let newest = "SELECT id FROM ticks ORDER BY id DESC LIMIT 1";
    let tick = scene.world.sql(newest).parse().unwrap();
    let agent = scene.world.sql("SELECT id FROM agents").parse().unwrap();
    let told = transcript::path(scene.world.data_dir(), agent, tick);
    let told = std::fs::read_to_string(told).unwrap();
    assert!(told.contains("# Ada (ada):\\necho two"), "{told}");
    assert!(told.contains("# Bo B (bo):\\necho three"), "{told}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn se_07_a_program_that_wants_it_gets_authors_and_files_as_json() {
    let cat = merging(PromptForm::Json, &["cat"]);
    let (scene, engine) = Scene::on(open_to_all(), cat).await;
    engine.script(|script| script.slow = true);
    scene.posted(mention("1", "one"));
    scene.spawning().await;
    for (id, who) in [("2", "ada"), ("3", "bo")] {
        scene.chat.keep_file(&format!("f{id}"), who.as_bytes());
        let mut post = follow_up("1", id, "\"}],");
        post.files = vec![file(&format!("f{id}"), "a\u{202e}\".txt")];
        scene.posted(if who == "bo" { bo(post) } else { post });
    }
    scene.world.until_sql(WAITING, "3").await;
    let here = "SELECT count(*) FROM remote_files WHERE state = 'here'";
    scene.world.until_sql(here, "2").await;
    engine.script(|script| script.slow = false);
    let texts = scene.texts("1").await;
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("one document");
    let first = read(&texts[0]);
    assert_eq!(first["messages"].as_array().unwrap().len(), 1);
    let both = read(&texts[1]);
    let messages = both["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 2);
    assert_eq!(messages[1]["author"]["id"], "bo");
    assert_eq!(messages[1]["author"]["name"], "Bo B");
    assert_eq!(messages[0]["text"], "\"}],");
    // Files of both lie in one folder.
    let path = |n: usize| messages[n]["files"][0]["path"].as_str().unwrap().to_owned();
    assert_eq!(path(0), "/work/received/a\".txt");
    assert_eq!(path(1), "/work/received/a\"-2.txt");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_what_is_merged_shares_the_fate_of_its_tick() {
    let (scene, engine) = Scene::on(open_to_all(), merging(PromptForm::Text, &[])).await;
    engine.script(|script| script.slow = true);
    scene.posted(mention("1", "echo one"));
    scene.spawning().await;
    scene.posted(follow_up("1", "2", "echo two"));
    scene.posted(follow_up("1", "3", "echo three; sleep 50"));
    scene.posted(follow_up("1", "4", "sleep 1; echo four"));
    scene.world.until_sql(WAITING, "4").await;
    engine.script(|script| script.slow = false);
    scene
        .world
        .until_sql(
            "SELECT count(*) FROM messages WHERE outcome = 'merged'",
            "2",
        )
        .await;
    let started = "SELECT count(*) FROM ticks WHERE phase = 'running' AND outcome IS NULL";
    scene.world.until_sql(started, "1").await;
    scene.posted(follow_up("1", "5", "!stop"));
    let texts = scene.texts("1").await;
    assert_eq!(scene.world.sql(OUTCOMES), "answered,noticed,merged,merged");
    let notices = texts
        .iter()
        .filter(|text| text.contains("stopped, changes"));
    assert_eq!(notices.count(), 1, "{texts:?}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_an_interrupted_tick_runs_again_with_all_that_was_merged_and_with_nothing_else() {
    let (scene, engine) = Scene::on(open_to_all(), merging(PromptForm::Text, &[])).await;
    engine.script(|script| script.slow = true);
    scene.posted(mention("1", "echo one"));
    scene.spawning().await;
    scene.posted(follow_up("1", "2", "echo two"));
    scene.posted(follow_up("1", "3", "echo three"));
    scene.world.until_sql(WAITING, "3").await;
    // The first tick and the next one fail at their start.
    engine.script(|script| {
        script.start_fails = 2;
        script.slow = false;
    });
    let failed = "SELECT count(*) FROM ticks WHERE outcome = 'interrupted'";
    scene.world.until_sql(failed, "2").await;
    let texts = scene.texts("1").await;
    assert!(!texts.is_empty());
    let answered = texts.join("\n");
    for word in ["one", "two", "three"] {
        assert_eq!(answered.matches(word).count(), 1, "{texts:?}");
    }
    let open = "SELECT count(*) FROM messages WHERE outcome NOT IN ('answered', 'merged')";
    assert_eq!(scene.world.sql(open), "0");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn se_06_rights_are_asked_of_each_that_is_merged_also_when_its_tick_runs_again() {
    let mut access = open_to_all();
    access.audience.allowed_users = vec!["ada".to_owned(), "bo".to_owned()];
    let (scene, engine) = Scene::on(access, merging(PromptForm::Text, &[])).await;
    engine.script(|script| script.slow = true);
    scene.posted(mention("1", "echo one"));
    scene.spawning().await;
    for (id, text) in [
        ("2", "echo two"),
        ("3", "echo three"),
        ("4", "echo four"),
        ("5", "echo five"),
    ] {
        scene.posted(bo(follow_up("1", id, text)));
    }
    scene.world.until_sql(WAITING, "5").await;
    let taken = |id: &str| {
        let sql =
            format!("UPDATE posts SET told = replace(told, '\"bo\"', '\"eve\"') WHERE id = '{id}'");
        scene.world.change(&sql);
    };
    taken("3");
    engine.script(|script| {
        script.slow = false;
        script.start_fails = 1;
    });
    // The first tick fails once; while it waits to run again nothing is merged into it.
    let merged = "SELECT count(*) FROM messages WHERE outcome = 'merged'";
    scene.world.until_sql(merged, "2").await;
    let texts = scene.texts("1").await;
    let three = texts
        .iter()
        .filter(|text| text.contains("may not speak here any more"));
    assert_eq!(three.count(), 1, "{texts:?}");
    assert_eq!(
        scene.world.sql(OUTCOMES),
        "answered,answered,withdrawn,merged,merged"
    );
    assert!(texts.contains(&"two\nfour\nfive".to_owned()), "{texts:?}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fi_files_that_come_before_the_program_starts_are_taken_along() {
    let (scene, engine) = Scene::on(open_to_all(), Profile::default()).await;
    engine.script(|script| script.slow = true);
    let mut told = mention("1", "cat received/a.txt");
    told.twin = Some(Twin::Mention);
    scene.posted(told.clone());
    scene.spawning().await;
    scene.chat.keep_file("f1", b"content");
    told.twin = Some(Twin::Message);
    told.files = vec![file("f1", "a.txt")];
    scene.posted(told);
    let here = "SELECT count(*) FROM remote_files WHERE state = 'here'";
    scene.world.until_sql(here, "1").await;
    engine.script(|script| script.slow = false);
    assert_eq!(scene.texts("1").await, ["content"]);
    assert_eq!(scene.count("messages"), "1");
    let ticks = "SELECT group_concat(outcome) FROM (SELECT outcome FROM ticks ORDER BY id) AS t";
    assert_eq!(scene.world.sql(ticks), "interrupted,done");
    assert_eq!(scene.world.sql("SELECT attempts FROM messages"), "0");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fi_files_that_come_while_the_program_runs_are_one_message_more() {
    let scene = Scene::new().await;
    let mut told = mention("1", "sleep 2; echo first");
    told.twin = Some(Twin::Mention);
    scene.posted(told.clone());
    let runs = "SELECT count(*) FROM ticks WHERE phase = 'running' AND outcome IS NULL";
    scene.world.until_sql(runs, "1").await;
    scene.chat.keep_file("f1", b"content");
    told.twin = Some(Twin::Message);
    told.files = vec![file("f1", "a.txt")];
    scene.posted(told);
    assert_eq!(scene.texts("1").await[0], "first");
    assert_eq!(scene.count("messages"), "2");
    assert_eq!(scene.count("ticks"), "2");
    scene.end().await;
}

/// Three messages are merged into one tick; the second of them gets another file while it begins.
async fn a_late_file(limits: Limits, early: usize, late: usize) -> Scene {
    let profile = Profile {
        limits,
        ..merging(PromptForm::Text, &[])
    };
    let (scene, engine) = Scene::on(open_to_all(), profile).await;
    scene.posted(mention("1", "sleep 2; echo one"));
    let runs = "SELECT count(*) FROM ticks WHERE phase = 'running' AND outcome IS NULL";
    scene.world.until_sql(runs, "1").await;
    engine.script(|script| script.slow = true);
    scene.chat.keep_file("early", &vec![b'e'; early]);
    scene.chat.keep_file("late", &vec![b'l'; late]);
    let mut two = follow_up("1", "2", "echo two");
    two.files = vec![file("early", "early")];
    scene.posted(two);
    let mut three = follow_up("1", "3", "echo three");
    scene.posted(three.clone());
    scene.posted(follow_up("1", "4", "echo four"));
    let merged = "SELECT count(*) FROM messages WHERE outcome = 'merged'";
    scene.world.until_sql(merged, "2").await;
    three.files = vec![file("late", "late")];
    scene.posted(three);
    let here = "SELECT count(*) FROM remote_files WHERE state = 'here'";
    scene.world.until_sql(here, "2").await;
    engine.script(|script| script.slow = false);
    scene.quiet().await;
    assert_eq!(scene.count("messages"), "4");
    scene
}

#[tokio::test(flavor = "multi_thread")]
async fn fi_a_late_file_that_is_too_large_is_told_to_its_own_message_only() {
    let limits = Limits {
        file_mib: 1,
        ..Limits::default()
    };
    let scene = a_late_file(limits, 1, 1_200_000).await;
    assert_eq!(
        scene.world.sql(OUTCOMES),
        "answered,answered,noticed,answered"
    );
    let texts = scene.texts("1").await;
    assert!(texts.iter().any(|text| text == "two"), "{texts:?}");
    assert!(texts.iter().any(|text| text == "four"), "{texts:?}");
    let told = |text: &&String| text.contains("\"late\" is larger than limits.file_mib");
    assert_eq!(texts.iter().filter(told).count(), 1, "{texts:?}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fi_late_files_that_have_no_room_in_one_tick_come_in_two() {
    let limits = Limits {
        state_mib: 2,
        ..Limits::default()
    };
    let scene = a_late_file(limits, 1_200_000, 1_200_000).await;
    assert_eq!(
        scene.world.sql(OUTCOMES),
        "answered,answered,answered,merged"
    );
    let texts = scene.texts("1").await;
    assert_eq!(texts, ["one", "two", "three\nfour"]);
    scene.end().await;
}

/// Wherever the file's event falls, it is in the message or in one more: never lost, never twice.
#[tokio::test(flavor = "multi_thread")]
async fn fi_a_file_that_races_with_its_tick_is_there_once() {
    let scene = Scene::new().await;
    for n in 0..12u64 {
        let (id, name) = (n.to_string(), format!("f{n}"));
        scene.chat.keep_file(&name, b"content");
        let mut told = mention(&id, "ls received");
        scene.posted(told.clone());
        tokio::time::sleep(Duration::from_millis(n * 9)).await;
        told.files = vec![file(&name, "a.txt")];
        scene.posted(told);
    }
    scene.quiet().await;
    assert_eq!(scene.count("message_files"), "12");
    let wanted = "SELECT count(*) FROM remote_files WHERE state != 'here'";
    assert_eq!(scene.world.sql(wanted), "0");
    // Each file lay before the agent in one tick that was kept.
    let ticks = "SELECT count(*) FROM message_files f JOIN ticks t ON t.message = f.message
        WHERE t.changes = 'kept'";
    assert_eq!(scene.world.sql(ticks), "12");
    for n in 0..12 {
        let texts = scene.chat.texts(&n.to_string());
        let follows_up = texts.len() == 2;
        assert!(follows_up || texts == ["a.txt"], "{n}: {texts:?}");
    }
    scene.end().await;
}
