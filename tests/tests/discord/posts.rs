//! Posts, edits and what else is shown: whatever goes wrong with a call, people see it once.

use std::time::{Duration, Instant};

use mayfly_adapters::clock::unix_ms;
use mayfly_domain::{
    Author, PostId, Pressed,
    chat::{Button, CallError, Platform, Sign},
};
use mayfly_tests::{
    fake::Fault,
    fake_discord::{ANN, FakeDiscord},
};

use super::{adapter, direct, guild, new_post, open, said, start, texts, thread, until};

const LONG_AGO: i64 = 10 * 60 * 1000;

/// What a lost answer, a cut connection and a server's error leave.
fn faults() -> [Fault; 3] {
    [
        Fault::Cut,
        Fault::Lost,
        Fault::Refused(502, "<html>bad gateway</html>".to_owned()),
    ]
}

#[tokio::test]
async fn fm_07_a_post_whose_outcome_is_unknown_is_seen_once() {
    let (fake, discord) = start();
    for (n, fault) in faults().into_iter().enumerate() {
        let channel = fake.direct();
        let mut post = new_post(
            &direct(channel),
            &format!("token {n}"),
            said(&discord, "the answer"),
        );
        fake.rest.fault("post", [fault.clone()]);
        let error = discord.post(&post).await.expect_err("a fault");
        assert!(open(&error), "{fault:?}: {error}");
        post.unknown_since = Some(unix_ms());
        let id = adapter(&fake).post(&post).await.expect("a post");
        let shown = fake.shown(channel);
        assert_eq!(texts(&fake, channel), ["the answer"], "{fault:?}");
        assert_eq!(shown[0].id.to_string(), id);
    }
}

#[tokio::test]
async fn fm_07_a_post_of_long_ago_is_found_by_what_it_says() {
    let (fake, discord) = start();
    let channel = fake.direct();
    let button = Button {
        id: "stop-1".to_owned(),
        label: "Stop".to_owned(),
        danger: true,
    };
    let content = discord.line("Working on it", std::slice::from_ref(&button));
    let mut post = new_post(&direct(channel), "token", content);
    for n in 0..150 {
        fake.write(channel, ANN, &format!("Working on it {n}"));
    }
    fake.write(channel, ANN, "Working on it");
    fake.rest.fault("post", [Fault::Lost]);
    assert!(open(&discord.post(&post).await.expect_err("a fault")));
    fake.forget_nonces();
    // A look that fails leaves the question open, and makes nothing.
    post.unknown_since = Some(unix_ms() - LONG_AGO);
    fake.rest.fault("messages", [Fault::Cut]);
    assert!(open(&discord.post(&post).await.expect_err("a fault")));
    let id = discord.post(&post).await.expect("it is found");
    assert_eq!(texts(&fake, channel), ["Working on it"]);
    assert_eq!(
        fake.shown(channel).last().expect("a post").id.to_string(),
        id
    );
    // The same words under other buttons are another post.
    let other = Button {
        id: "stop-2".to_owned(),
        ..button
    };
    let mut other = new_post(
        &direct(channel),
        "other",
        discord.line("Working on it", &[other]),
    );
    other.unknown_since = Some(unix_ms() - LONG_AGO);
    assert_ne!(discord.post(&other).await.expect("a post"), id);
    assert_eq!(texts(&fake, channel).len(), 2);
}

/// A reply's posts all begin with the same words.
#[tokio::test]
async fn fm_07_posts_of_the_same_words_are_told_apart() {
    let (fake, discord) = start();
    let channel = fake.direct();
    let mut ids = Vec::new();
    for (token, fault) in [
        ("first", None),
        ("second", Some(Fault::Cut)),
        ("third", Some(Fault::Lost)),
    ] {
        let mut post = new_post(&direct(channel), token, discord.line("…", &[]));
        if let Some(fault) = fault {
            fake.rest.fault("post", [fault]);
            assert!(open(&discord.post(&post).await.expect_err("a fault")));
            fake.forget_nonces();
            post.unknown_since = Some(unix_ms() - LONG_AGO);
        }
        let id = discord.post(&post).await.expect("a post");
        assert!(!ids.contains(&id), "it is not another's");
        ids.push(id);
    }
    assert_eq!(texts(&fake, channel), ["…", "…", "…"]);
}

#[tokio::test]
async fn fm_07_an_edit_that_is_repeated_or_late_ends_in_the_same_words() {
    let (fake, discord) = start();
    let channel = fake.direct();
    let conversation = direct(channel);
    let id = discord
        .post(&new_post(&conversation, "token", said(&discord, "…")))
        .await
        .expect("a post");
    for (n, fault) in faults().into_iter().enumerate() {
        let content = said(&discord, &format!("answer {n}"));
        fake.rest.fault("edit", [fault.clone()]);
        let error = discord
            .edit(&conversation, &id, &content)
            .await
            .expect_err("a fault");
        assert!(open(&error), "{fault:?}: {error}");
        discord
            .edit(&conversation, &id, &content)
            .await
            .expect("an edit");
        discord
            .edit(&conversation, &id, &content)
            .await
            .expect("the same again is no error");
        assert_eq!(texts(&fake, channel), [format!("answer {n}")]);
    }
    let shown = fake.shown(channel).remove(0);
    fake.delete(shown.id);
    let gone = discord
        .edit(&conversation, &id, &said(&discord, "late"))
        .await;
    assert!(matches!(gone, Err(CallError::Gone(_))), "{gone:?}");
    discord
        .remove(&conversation, &id)
        .await
        .expect("what is gone can be removed");
}

/// Both wait for the adapter's own time-out, side by side.
#[tokio::test]
async fn fm_07_a_slow_answer_is_an_unknown_one() {
    let (fake, discord) = start();
    let (slow, late) = (fake.direct(), fake.direct());
    let long = Duration::from_secs(15);
    let mut posts = [slow, late].map(|channel| {
        new_post(
            &direct(channel),
            &format!("token {channel}"),
            said(&discord, "once"),
        )
    });
    fake.rest
        .fault("post", [Fault::Slow(long), Fault::Late(long)]);
    let began = Instant::now();
    let (first, second) = tokio::join!(discord.post(&posts[0]), discord.post(&posts[1]));
    for result in [first, second] {
        assert!(open(&result.expect_err("too slow")));
    }
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "a call has an end"
    );
    for post in &mut posts {
        post.unknown_since = Some(unix_ms());
        discord.post(post).await.expect("a post");
    }
    // The call that is carried out after its client gave up must not show it again.
    let calls = fake.rest.calls("post").len();
    assert_eq!(calls, 4);
    until("the late call is over", || {
        began.elapsed() > long + Duration::from_millis(500)
    })
    .await;
    for channel in [slow, late] {
        assert_eq!(texts(&fake, channel), ["once"]);
    }
}

#[tokio::test]
async fn rc_01_a_limit_is_told_and_nobody_calls_until_then() {
    let (fake, discord) = start();
    let (channel, other) = (fake.direct(), fake.direct());
    let post = new_post(&direct(channel), "token", said(&discord, "now"));
    fake.rest.fault("post", [Fault::TooMany(30)]);
    for _ in 0..5 {
        match discord.post(&post).await {
            Err(CallError::Limited { after, .. }) => {
                assert!((1..=30).contains(&after.as_secs()), "{after:?}")
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(fake.rest.calls("post").len(), 1, "the bucket is left alone");
    discord
        .post(&new_post(&direct(other), "other", said(&discord, "else")))
        .await
        .expect("another bucket goes on");
}

/// The fake allows five posts in half a second and refuses the sixth.
#[tokio::test]
async fn rc_07_an_empty_bucket_is_waited_for_before_the_call() {
    let (fake, discord) = start();
    let channel = fake.direct();
    for n in 0..12 {
        let post = new_post(
            &direct(channel),
            &format!("token {n}"),
            said(&discord, &n.to_string()),
        );
        discord.post(&post).await.expect("no limit is run into");
    }
    assert_eq!(fake.rest.calls("post").len(), 12);
    let wanted: Vec<String> = (0..12).map(|n| n.to_string()).collect();
    assert_eq!(texts(&fake, channel), wanted);
}

#[tokio::test]
async fn th_06_the_thread_is_opened_once_woken_and_named() {
    let (fake, discord) = start();
    let channel = fake.channel("general");
    let asked = fake.mention(channel, ANN, &format!("{}\nmore", "x".repeat(101)));
    let conversation = thread(channel, asked);
    // Opened before a crash, and asked for again.
    fake.rest.fault("thread", [Fault::Lost]);
    let post = new_post(&conversation, "token", said(&discord, "first"));
    let error = discord.post(&post).await.expect_err("a fault");
    assert!(
        matches!(error, CallError::NotDone(_)),
        "nothing was posted: {error}"
    );
    let id = discord.post(&post).await.expect("a post");
    assert_eq!(fake.name(asked).map(|name| name.chars().count()), Some(64));
    assert_eq!(texts(&fake, asked), ["first"]);
    discord
        .post(&new_post(&conversation, "second", said(&discord, "second")))
        .await
        .expect("the same thread");
    // It went into the archive during a long run.
    fake.archive(asked);
    discord
        .edit(&conversation, &id, &said(&discord, "the answer"))
        .await
        .expect("it is woken");
    assert!(!fake.is_archived(asked));
    fake.archive(asked);
    discord
        .post(&new_post(&conversation, "third", said(&discord, "third")))
        .await
        .expect("a post");
    assert_eq!(texts(&fake, asked), ["the answer", "second", "third"]);
    fake.lock(asked);
    for refused in [
        discord
            .edit(&conversation, &id, &said(&discord, "late"))
            .await
            .expect_err("locked"),
        discord
            .post(&new_post(&conversation, "fourth", said(&discord, "fourth")))
            .await
            .expect_err("locked"),
    ] {
        assert!(
            matches!(&refused, CallError::Refused(said) if said.contains("locked")),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn th_06_without_a_message_to_start_from_the_answer_stands_in_the_channel() {
    let (fake, discord) = start();
    let channel = fake.channel("general");
    let asked = fake.mention(channel, ANN, "quick question");
    fake.delete(asked);
    let conversation = thread(channel, asked);
    let id = discord
        .post(&new_post(&conversation, "token", said(&discord, "…")))
        .await
        .expect("a post");
    discord.busy(&conversation).await.expect("typing");
    discord
        .edit(&conversation, &id, &said(&discord, "the answer"))
        .await
        .expect("an edit");
    assert_eq!(texts(&fake, channel), ["the answer"]);
    assert_eq!(fake.typed(), [channel]);
    discord.remove(&conversation, &id).await.expect("removed");
    assert!(texts(&fake, channel).is_empty());
}

#[tokio::test]
async fn th_03_each_answer_lands_where_its_message_came_from() {
    let (fake, discord) = start();
    let channels = [fake.channel("one"), fake.channel("two")];
    let asked = channels.map(|channel| fake.mention(channel, ANN, "hello"));
    for (channel, message) in channels.into_iter().zip(asked) {
        let conversation = thread(channel, message);
        let mut post = new_post(
            &conversation,
            &format!("token {message}"),
            said(&discord, &message.to_string()),
        );
        post.answers = Some(PostId {
            channel: guild(channel),
            id: message.to_string(),
        });
        discord.post(&post).await.expect("a post");
        discord.busy(&conversation).await.expect("typing");
    }
    for message in asked {
        assert_eq!(texts(&fake, message), [message.to_string()]);
    }
    assert_eq!(fake.typed(), asked);
    // In a direct conversation the message is quoted.
    let private = fake.direct();
    let question = fake.write(private, ANN, "and here?");
    let mut post = new_post(&direct(private), "token", said(&discord, "here"));
    post.answers = Some(PostId {
        channel: mayfly_domain::Channel {
            workspace: String::new(),
            ..guild(private)
        },
        id: question.to_string(),
    });
    discord.post(&post).await.expect("a post");
    assert_eq!(fake.shown(private)[1].answers, Some(question));
    assert!(!fake.shown(private)[1].pinged);
}

#[tokio::test]
async fn fm_06_nobody_is_notified_by_what_an_agent_wrote() {
    let (fake, discord) = start();
    let channel = fake.direct();
    let conversation = direct(channel);
    let text = format!("@everyone @here <@{ANN}> <@&777> hello");
    let id = discord
        .post(&new_post(&conversation, "a", said(&discord, &text)))
        .await
        .expect("a post");
    discord
        .edit(
            &conversation,
            &id,
            &said(&discord, &format!("{text} again")),
        )
        .await
        .expect("an edit");
    discord
        .post(&new_post(&conversation, "b", discord.line(&text, &[])))
        .await
        .expect("a line");
    let shown = fake.shown(channel);
    assert!(
        shown.len() == 2 && shown.iter().all(|shown| !shown.pinged),
        "{shown:?}"
    );
    assert!(shown[0].text.contains("everyone"), "it is shown as text");
}

#[tokio::test]
async fn fm_08_what_cannot_work_is_refused_with_the_way_out() {
    let (fake, discord) = start();
    for (code, way_out) in [
        (50_001, "View Channel"),
        (50_013, "Send Messages in Threads"),
        (50_007, "allow direct messages"),
    ] {
        let channel = fake.direct();
        fake.deny(channel, code);
        let refused = discord
            .post(&new_post(&direct(channel), "token", said(&discord, "x")))
            .await;
        assert!(
            matches!(&refused, Err(CallError::Refused(said)) if said.contains(way_out)),
            "{refused:?}"
        );
    }
    // A page of something in front of Discord is no word of Discord's.
    let channel = fake.direct();
    fake.rest.fault(
        "post",
        [Fault::Refused(403, "<html>blocked</html>".to_owned())],
    );
    let blocked = discord
        .post(&new_post(&direct(channel), "token", said(&discord, "x")))
        .await;
    assert!(matches!(blocked, Err(CallError::NotDone(_))), "{blocked:?}");
    let gone = fake.direct();
    fake.drop_channel(gone);
    let refused = discord
        .post(&new_post(&direct(gone), "token", said(&discord, "x")))
        .await;
    assert!(
        matches!(&refused, Err(CallError::Refused(said)) if said.contains("deleted")),
        "{refused:?}"
    );
    let channel = fake.channel("general");
    let asked = fake.mention(channel, ANN, "hello");
    fake.deny(channel, 50_013);
    let refused = discord
        .post(&new_post(
            &thread(channel, asked),
            "token",
            said(&discord, "x"),
        ))
        .await;
    assert!(
        matches!(&refused, Err(CallError::Refused(said)) if said.contains("Create Public Threads")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn rc_07_a_refused_token_is_not_asked_with_again() {
    let (fake, discord) = start();
    let channel = fake.direct();
    let post = new_post(&direct(channel), "token", said(&discord, "x"));
    fake.rest.fault(
        "post",
        [Fault::Refused(
            401,
            r#"{"message":"401: Unauthorized","code":0}"#.to_owned(),
        )],
    );
    for _ in 0..3 {
        let refused = discord.post(&post).await;
        assert!(
            matches!(&refused, Err(CallError::Refused(said)) if said.contains("DISCORD_BOT_TOKEN")),
            "{refused:?}"
        );
    }
    assert_eq!(fake.rest.calls("post").len(), 1);
}

#[tokio::test]
async fn se_05_no_error_holds_the_token() {
    let fake = FakeDiscord::start();
    let mut settings = super::config(&fake);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("an address");
    settings.api_url = format!("http://{free}");
    let nobody = mayfly_adapters::discord::Discord::new(settings).expect("good settings");
    let post = new_post(&direct(7), "token", said(&nobody, "x"));
    let error = nobody.post(&post).await.expect_err("nobody answers");
    assert!(
        matches!(error, CallError::NotDone(_)),
        "no connection, nothing done: {error:?}"
    );
    let mut said_all = vec![error.to_string()];
    let discord = adapter(&fake);
    let channel = fake.direct();
    let post = new_post(&direct(channel), "token", said(&discord, "x"));
    let echo = format!(
        r#"{{"message":"bad token {}","code":50035}}"#,
        mayfly_tests::fake_discord::token()
    );
    for fault in faults().into_iter().chain([Fault::Refused(400, echo)]) {
        fake.rest.fault("post", [fault]);
        said_all.push(discord.post(&post).await.expect_err("a fault").to_string());
    }
    let pressed = pressed(channel, "1 interaction-secret");
    fake.rest.fault("follow-up", [Fault::Cut]);
    said_all.push(
        discord
            .answer(&pressed, "x")
            .await
            .expect_err("a fault")
            .to_string(),
    );
    for said in said_all {
        assert!(
            !said.contains("fake-token") && !said.contains("interaction-secret"),
            "{said}"
        );
    }
}

fn pressed(channel: u64, answer_to: &str) -> Pressed {
    Pressed {
        button: "stop".to_owned(),
        on: PostId {
            channel: guild(channel),
            id: "1".to_owned(),
        },
        thread: direct(channel),
        by: Author {
            id: ANN.to_string(),
            name: "ann".to_owned(),
        },
        roles: Vec::new(),
        answer_to: answer_to.to_owned(),
    }
}

#[tokio::test]
async fn a_press_is_answered_for_the_one_who_pressed() {
    let (fake, discord) = start();
    let channel = fake.direct();
    let button = Button {
        id: "stop".to_owned(),
        label: "Stop".to_owned(),
        danger: true,
    };
    let post = new_post(
        &direct(channel),
        "token",
        discord.line("Working", &[button]),
    );
    let id: u64 = discord
        .post(&post)
        .await
        .expect("a post")
        .parse()
        .expect("a number");
    assert_eq!(fake.shown(channel)[0].buttons, ["stop"]);
    let press = fake.press(id, "stop", ANN);
    // Nobody acknowledged it: the answer does.
    let told = pressed(channel, &format!("{press} interaction-token-{press}"));
    discord.answer(&told, "Stopped.").await.expect("an answer");
    discord.answer(&told, "Really.").await.expect("another");
    assert_eq!(fake.acknowledged(press), Some(4));
    assert_eq!(fake.whispered(press), ["Stopped.", "Really."]);
    let over = discord.answer(&pressed(channel, "77 nobody"), "late").await;
    assert!(matches!(over, Err(CallError::Gone(_))), "{over:?}");
    discord
        .edit(
            &direct(channel),
            &id.to_string(),
            &said(&discord, "Stopped"),
        )
        .await
        .expect("an edit");
    assert!(
        fake.shown(channel)[0].buttons.is_empty(),
        "the buttons go with the words"
    );
}

#[tokio::test]
async fn a_message_shows_one_sign_at_a_time() {
    let (fake, discord) = start();
    let channel = fake.channel("general");
    let asked = fake.mention(channel, ANN, "hello");
    let post = PostId {
        channel: guild(channel),
        id: asked.to_string(),
    };
    for (sign, shown) in [
        (Sign::Seen, "👀"),
        (Sign::Seen, "👀"),
        (Sign::Answered, "✅"),
    ] {
        discord.sign(&post, sign).await.expect("a sign");
        assert_eq!(fake.shown(channel)[0].signs, [shown]);
    }
    let failed = fake.mention(channel, ANN, "and this");
    let post = PostId {
        id: failed.to_string(),
        ..post
    };
    discord.sign(&post, Sign::Failed).await.expect("a sign");
    assert_eq!(fake.shown(channel)[1].signs, ["❌"]);
    fake.delete(failed);
    assert!(matches!(
        discord.sign(&post, Sign::Seen).await,
        Err(CallError::Gone(_))
    ));
}

#[tokio::test]
async fn a_fork_opens_one_thread_beside_however_often_it_is_asked_for() {
    let (fake, discord) = start();
    let channel = fake.channel("general");
    let asked = fake.mention(channel, ANN, "hello");
    let beside = thread(channel, asked);
    fake.rest.fault("thread", [Fault::Lost]);
    let at = unix_ms();
    discord
        .open(&beside, "Fork of hello", "token", None)
        .await
        .expect_err("a fault");
    let (key, link) = adapter(&fake)
        .open(&beside, "Fork of hello", "token", Some(at))
        .await
        .expect("a thread");
    let opened: u64 = key.thread.parse().expect("a number");
    assert_eq!(key, thread(channel, opened));
    assert_eq!(
        link,
        format!("https://discord.com/channels/{}/{opened}", super::GUILD)
    );
    assert_eq!(fake.name(opened).as_deref(), Some("Fork of hello"));
    assert_eq!(texts(&fake, channel), ["Fork of hello"]);
    discord
        .post(&new_post(&key, "first", said(&discord, "here")))
        .await
        .expect("a post");
    assert_eq!(texts(&fake, opened), ["here"]);
    // A message without its thread does not stay where there will be none.
    let denied = r#"{"code":50013,"message":"Missing Permissions"}"#;
    fake.rest
        .fault("thread", [Fault::Refused(403, denied.to_owned())]);
    let refused = discord.open(&beside, "Fork of this", "other", None).await;
    assert!(matches!(refused, Err(CallError::Refused(_))), "{refused:?}");
    assert_eq!(texts(&fake, channel), ["Fork of hello"]);
    fake.rest.fault("thread", [Fault::TooMany(1)]);
    let limited = discord.open(&beside, "Fork of this", "third", None).await;
    assert!(matches!(limited, Err(CallError::Unknown(_))), "{limited:?}");
    let private = discord
        .open(&direct(fake.direct()), "x", "token", None)
        .await;
    assert!(
        matches!(&private, Err(CallError::Refused(said)) if said.contains("direct messages")),
        "{private:?}"
    );
}
