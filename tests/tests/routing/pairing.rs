//! A code lets one person in, once, and what was said with one in it is kept nowhere.

use mayfly_orchestrator::inbox::pairing;

use super::*;

fn direct(id: &str, who: &str, text: &str) -> Posted {
    let mut post = mention(id, text);
    post.id.channel = channel(&format!("dm-{who}"));
    post.thread = post.id.channel.thread("");
    post.place = Place::Direct;
    post.author = Author {
        id: who.to_owned(),
        name: who.to_uppercase(),
    };
    post
}

fn only_in_person() -> Access {
    Access::default()
}

impl Scene {
    async fn code(&self) -> String {
        let opened = self.world.commands().pair(NAME).await;
        opened.expect("it is switched on").code
    }

    fn paired(&self) -> String {
        self.world.sql("SELECT group_concat(person) FROM paired")
    }

    async fn applied(&self) {
        let seen = self.keys.load(Ordering::Relaxed).to_string();
        let applied = "SELECT count(*) FROM arrivals WHERE state != 'new' AND seq > 0";
        self.world.until_sql(applied, &seen).await;
    }
}

/// What a wrong code is answered with.
const NOBODY: &str = "lets nobody in";

#[tokio::test(flavor = "multi_thread")]
async fn whoever_says_the_code_may_speak_and_nobody_else() {
    let scene = Scene::with(only_in_person()).await;
    let code = scene.code().await;
    scene.posted(direct("1", "ada", "echo before"));
    scene.posted(direct(
        "2",
        "ada",
        &format!("/pair {}", code.to_lowercase()),
    ));
    scene.quiet().await;
    let texts = scene.chat.texts("");
    assert!(
        texts.len() == 1 && texts[0].contains("`!help`"),
        "{texts:?}"
    );
    scene.posted(direct("3", "ada", "echo after"));
    // It was good once.
    scene.posted(direct("4", "eve", &format!("/pair {code}")));
    scene.posted(direct("5", "eve", "echo forged"));
    let mut texts = scene.texts("").await.split_off(1);
    texts.retain(|text| !text.contains(NOBODY));
    assert_eq!(texts, ["after"]);
    assert_eq!(scene.paired(), "ada");
    let listed = scene.world.commands().paired().await.unwrap();
    assert_eq!(
        (listed[0].person.as_str(), listed[0].name.as_str()),
        ("ada", "ADA")
    );
    // What is taken back is taken back at once, also from what waits.
    let waits = "SELECT count(*) FROM messages WHERE outcome IS NULL";
    scene.posted(direct("6", "ada", "sleep 2; echo last"));
    scene.posted(direct("7", "ada", "echo never"));
    scene.world.until_sql(waits, "2").await;
    scene.world.commands().unpair(NAME, "ada").await.unwrap();
    scene.posted(direct("8", "ada", "echo never"));
    let mut texts = scene.texts("").await;
    texts.retain(|text| !text.contains(NOBODY));
    assert!(
        texts[3].contains("may not speak here any more"),
        "{texts:?}"
    );
    assert!(!texts.contains(&"never".to_owned()), "{texts:?}");
    assert!(scene.world.commands().unpair(NAME, "ada").await.is_err());
    // The code is neither in a row nor in a transcript.
    scene.world.rest().await;
    for kept in [code.clone(), code.replace('-', ""), code.to_lowercase()] {
        for (table, column) in [
            ("arrivals", "CAST(raw AS TEXT) || COALESCE(event, '')"),
            ("posts", "COALESCE(told, '')"),
            ("messages", "text"),
            ("orders", "command"),
            ("pairing_codes", "hash"),
        ] {
            let sql = format!("SELECT count(*) FROM {table} WHERE {column} LIKE '%{kept}%'");
            assert_eq!(scene.world.sql(&sql), "0", "{table}");
        }
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_is_void_after_a_thousand_wrong_ones_and_after_ten_minutes_and_by_the_next() {
    let scene = Scene::with(only_in_person()).await;
    let code = scene.code().await;
    for n in 0..pairing::TRIES {
        let id = format!("w{n}");
        scene.posted(direct(&id, "eve", &format!("/pair WRONG{n}")));
    }
    scene.posted(direct("5", "ada", &format!("/pair {code}")));
    scene.applied().await;
    assert_eq!(scene.count("pairing_codes"), "0");
    assert_eq!(scene.paired(), "");
    // A few are a slip of the hand, or a stranger's.
    let code = scene.code().await;
    for n in 10..30 {
        scene.posted(direct(&n.to_string(), "ada", &format!("/pair WRONG{n}")));
    }
    scene.posted(direct(
        "30",
        "ada",
        &format!("/start {}", code.replace('-', "")),
    ));
    scene.applied().await;
    assert_eq!(scene.paired(), "ada");
    let old = scene.code().await;
    scene
        .world
        .change("UPDATE pairing_codes SET expires_at = expires_at - 600001");
    scene.posted(direct("31", "eve", &format!("/pair {old}")));
    let replaced = scene.code().await;
    scene.applied().await;
    let _newer = scene.code().await;
    scene.posted(direct("32", "eve", &format!("/pair {replaced}")));
    scene.applied().await;
    assert_eq!(scene.paired(), "ada");
    scene.quiet().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_that_others_can_read_is_void_and_reaches_no_agent() {
    let scene = Scene::new().await;
    scene.posted(mention("1", "echo one"));
    scene.quiet().await;
    let says = |id: &str, code: &str| follow_up("1", id, &format!("/pair {code}"));
    let code = scene.code().await;
    scene.posted(says("2", &code));
    scene.applied().await;
    let edited = scene.code().await;
    scene.applied().await;
    // An edit, a forward and a program are no word of the person either.
    scene.edited(mention("1", &format!("/pair {edited}")));
    scene.applied().await;
    let forwarded = scene.code().await;
    let mut forward = direct("4", "eve", &format!("/pair {forwarded}"));
    forward.words_of = Some(forward.author.clone());
    scene.posted(forward);
    scene.applied().await;
    let said = scene.code().await;
    let mut robot = direct("5", "eve", &format!("/pair {said}"));
    robot.by_bot = true;
    scene.posted(robot);
    scene.quiet().await;
    assert_eq!(scene.count("pairing_codes"), "0");
    assert_eq!(scene.count("paired"), "0");
    assert_eq!(
        (&*scene.count("messages"), &*scene.count("orders")),
        ("1", "0")
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_where_nobody_is_paired_its_word_is_said_to_the_agent() {
    let scene = Scene::new().await;
    scene.posted(mention("1", "echo one"));
    scene.posted(follow_up("1", "2", "!pair of shoes; echo two"));
    scene.applied().await;
    assert_eq!(scene.count("messages"), "2");
    let kept = "SELECT count(*) FROM arrivals WHERE event LIKE '%!pair of shoes%'";
    assert_eq!(scene.world.sql(kept), "1");
    scene.quiet().await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_code_is_answered_once_and_the_same_whatever_is_known() {
    let scene = Scene::with(only_in_person()).await;
    let told = || {
        let texts = scene.chat.texts("");
        texts.into_iter().filter(|text| text.contains(NOBODY))
    };
    // Nobody has made a code, one is open, one is void.
    scene.posted(direct("1", "eve", "/pair GUESS"));
    scene.code().await;
    scene.posted(direct("2", "mallory", "/pair GUESS"));
    scene.posted(direct("3", "mallory", "/start ABCD-EFGH-JKMN"));
    scene.applied().await;
    scene.world.change("DELETE FROM pairing_codes");
    scene.posted(direct("4", "trent", "!pair GUESS"));
    scene.posted(direct("5", "trent", "echo hello"));
    scene.posted(direct("6", "eve", "/pair GUESS"));
    scene.applied().await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while told().count() < 3 {
        assert!(
            tokio::time::Instant::now() < deadline,
            "{:?}",
            scene.chat.texts("")
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut texts: Vec<String> = told().collect();
    texts.dedup();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert_eq!(scene.chat.calls("post").len(), 3);
    let none = "SELECT (SELECT count(*) FROM agents) + (SELECT count(*) FROM messages)";
    assert_eq!(scene.world.sql(none), "0");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn for_whoever_may_speak_its_word_is_said_to_the_agent_and_its_link_is_answered() {
    let scene = Scene::with(only_in_person()).await;
    let code = scene.code().await;
    scene.posted(direct("1", "ada", &format!("/start {code}")));
    scene.quiet().await;
    scene.posted(direct("2", "ada", "!pair of shoes; echo two"));
    // Telegram sends it again whenever its button is pressed.
    scene.posted(direct("3", "ada", &format!("/start {code}")));
    scene.quiet().await;
    let said = scene.world.sql("SELECT group_concat(text) FROM messages");
    assert_eq!(said, "!pair of shoes; echo two");
    let texts = scene.chat.texts("");
    let helped = texts.iter().filter(|text| text.contains("`!help`")).count();
    assert_eq!(helped, 2, "{texts:?}");
    assert!(!texts.iter().any(|text| text.contains(NOBODY)), "{texts:?}");
    scene.end().await;
}
