//! What people see of each call.

use std::time::Duration;

use mayfly_domain::{
    Author, Pressed,
    chat::{Button, CallError, Content, Platform as _, Sign},
};
use mayfly_tests::{
    fake::Fault,
    fake_telegram::{BOT_NAME, FakeTelegram, Person},
};

use crate::{bot, channel, chat, new_post, post_id, say, texts, topic};

const ANN: Person = Person(7);
const GROUP: i64 = -1_001_234_567_890;

#[tokio::test]
async fn a_reply_is_posted_edited_and_removed() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    let here = chat(fake.platform.private(ANN));
    let question = fake.platform.write(ANN.0, ANN, "hello");
    let mut post = new_post(&here, bot.line("…", &[]));
    post.answers = Some(post_id(ANN.0, question));
    let id = bot.post(&post).await.expect("posted");
    let reply = bot.render("**bold** & `code` <tag>").parts.remove(0);
    bot.edit(&here, &id, &reply).await.expect("edited");
    let shown = fake.platform.shown(ANN.0).pop().expect("a post");
    assert_eq!(shown.text, "bold & code <tag>");
    assert_eq!(
        shown.source,
        "<b>bold</b> &amp; <code>code</code> &lt;tag&gt;"
    );
    assert_eq!(
        (shown.answers, shown.id.to_string()),
        (Some(question), id.clone())
    );
    assert_eq!(shown.history, ["…"]);
    bot.remove(&here, &id).await.expect("removed");
    bot.remove(&here, &id).await.expect("gone already");
    assert_eq!(texts(&fake, ANN.0), ["hello"]);
    let gone = bot.edit(&here, &id, &reply).await;
    assert!(matches!(gone, Err(CallError::Gone(_))), "{gone:?}");
}

#[tokio::test]
async fn fm_07_saying_the_same_again_is_no_error_and_no_second_post() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    let here = chat(fake.platform.private(ANN));
    let id = say(&bot, &here, "ok").await.expect("posted");
    let same = bot.line("ok", &[]);
    for _ in 0..3 {
        bot.edit(&here, &id, &same).await.expect("as it is");
    }
    assert_eq!(texts(&fake, ANN.0), ["ok"]);
    assert_eq!(fake.calls("editmessagetext").len(), 3);
}

#[tokio::test]
async fn fm_04_what_is_refused_as_html_comes_without_marks() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    let here = chat(fake.platform.private(ANN));
    let broken = Content(r#"{"html": "<b>never closed", "plain": "never closed"}"#.to_owned());
    let id = bot.post(&new_post(&here, broken.clone())).await;
    let id = id.expect("posted as plain text");
    assert_eq!(texts(&fake, ANN.0), ["never closed"]);
    let other = bot.line("x", &[]);
    bot.edit(&here, &id, &other).await.expect("edited");
    bot.edit(&here, &id, &broken)
        .await
        .expect("edited as plain text");
    assert_eq!(texts(&fake, ANN.0), ["never closed"]);
}

#[tokio::test]
async fn fm_04_what_is_rendered_is_taken_as_it_is() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    let here = chat(fake.platform.private(ANN));
    let long = format!("```py\n{}\n```", "x = 'a < b & c > d'\n".repeat(300));
    let bold = format!("**{}**", "word ".repeat(1200));
    let mut parts = 0;
    for markdown in [
        "use `--model`, not `--runtime`, for FOO_BAR_BAZ*",
        "a < b && c > d \"quoted\" 'too'",
        "> quote\n\n- a\n  - b\n1. c\n\n|a|b|\n|-|-|\n|1|2|",
        "[docs](https://x.io/a_(b)?q=1&r=2) ~~a **b** c~~ ***both***",
        "\u{200b}\u{202e}שלום 👨‍👩‍👧‍👦",
        &"\u{1f600}".repeat(4097),
        &long,
        &bold,
    ] {
        for part in bot.render(markdown).parts {
            parts += 1;
            bot.post(&new_post(&here, part)).await.expect("posted");
        }
    }
    let calls = fake.calls("sendmessage").len();
    assert_eq!(calls, parts, "none was refused and sent again");
    assert_eq!(texts(&fake, ANN.0).len(), parts);
}

#[tokio::test]
async fn th_03_th_04_every_call_stays_in_its_topic_and_general_has_no_number() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    fake.platform.forum(GROUP, &[77]);
    for (thread, expected) in [
        (topic(GROUP, 77), Some(77)),
        (chat(GROUP), None),
        (topic(GROUP, 1), None),
    ] {
        let id = say(&bot, &thread, "here").await.expect("posted");
        let text = bot.line("there", &[]);
        bot.edit(&thread, &id, &text).await.expect("edited");
        let renew = bot.busy(&thread).await.expect("a sign of life");
        assert!(renew <= Duration::from_secs(4));
        let shown = fake.platform.shown(GROUP).pop().expect("a post");
        assert_eq!((shown.topic, shown.text.as_str()), (expected, "there"));
        let action = fake.platform.actions().pop().expect("a sign of life");
        assert_eq!(action, (GROUP, expected, "typing".to_owned()));
    }
    assert_eq!(fake.calls("sendmessage").len(), 3);
}

#[tokio::test]
async fn th_04_where_a_topic_is_gone_its_chat_gets_the_answer() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    fake.platform.forum(GROUP, &[77]);
    fake.platform.delete_topic(GROUP, 77);
    let lost = topic(GROUP, 77);
    say(&bot, &lost, "first").await.expect("posted");
    assert_eq!(fake.calls("sendmessage").len(), 2);
    say(&bot, &lost, "second").await.expect("posted");
    assert_eq!(fake.calls("sendmessage").len(), 3, "not asked for again");
    bot.busy(&lost).await.expect("a sign of life in the chat");
    assert_eq!(texts(&fake, GROUP), ["first", "second"]);
}

#[tokio::test]
async fn th_08_a_group_that_moved_says_where_to() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    fake.platform.group(-55);
    let id = say(&bot, &chat(-55), "before").await.expect("posted");
    fake.platform.migrate(-55, GROUP);
    let moved = Err(CallError::Moved(channel(GROUP)));
    assert_eq!(say(&bot, &chat(-55), "after").await, moved);
    let text = bot.line("x", &[]);
    let edited = bot.edit(&chat(-55), &id, &text).await;
    assert_eq!(edited, Err(CallError::Moved(channel(GROUP))));
    say(&bot, &chat(GROUP), "after").await.expect("posted");
}

#[tokio::test]
async fn fm_08_where_nobody_listens_the_way_out_is_told() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    for (chat_id, told, way_out) in [
        (
            fake.platform.private(ANN),
            "bot was blocked by the user",
            "unblock",
        ),
        (
            fake.platform.group(-55),
            "bot was kicked from the group chat",
            "add it again",
        ),
    ] {
        fake.platform.close(chat_id, told);
        for refused in [
            say(&bot, &chat(chat_id), "hello").await.map(drop),
            bot.busy(&chat(chat_id)).await.map(drop),
        ] {
            let Err(CallError::Refused(why)) = refused else {
                panic!("{refused:?}");
            };
            assert!(why.contains(way_out) && why.contains(told), "{why}");
        }
    }
    let unmet = say(&bot, &chat(12345), "hello").await;
    assert!(matches!(unmet, Err(CallError::Refused(why)) if why.contains("never met")));
}

#[tokio::test]
async fn a_button_is_shown_pressed_and_answered_once() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    let here = chat(fake.platform.private(ANN));
    let button = |id: &str, label: &str| Button {
        id: id.to_owned(),
        label: label.to_owned(),
        danger: false,
    };
    let buttons: Vec<Button> = (0..4)
        .map(|n| button(&format!("{n}{}", "x".repeat(63)), &format!("Button {n}")))
        .collect();
    let line = bot.line("sure?", &buttons);
    let id = bot.post(&new_post(&here, line)).await.expect("posted");
    let on = id.parse().expect("a number");
    let press = fake.platform.press(ANN.0, on, "Button 3", ANN);
    let pressed = |answer_to: &str| Pressed {
        button: buttons[3].id.clone(),
        on: post_id(ANN.0, on),
        thread: here.clone(),
        by: Author::local("7"),
        roles: Vec::new(),
        answer_to: answer_to.to_owned(),
    };
    bot.answer(&pressed(&press), &"y".repeat(300))
        .await
        .expect("answered");
    assert_eq!(fake.platform.answered(&press), Some("y".repeat(200)));
    bot.answer(&pressed(&press), "again")
        .await
        .expect("too late, and no error");
    let late = fake.platform.press(ANN.0, on, "Button 0", ANN);
    fake.platform.time_out_presses();
    bot.answer(&pressed(&late), "late")
        .await
        .expect("too late, and no error");
    assert_eq!(fake.platform.answered(&late), None);
    let without = bot.line("done", &[]);
    bot.edit(&here, &id, &without).await.expect("edited");
    assert!(fake.platform.shown(ANN.0)[0].buttons.is_empty());
    let long = bot.line("sure?", &[button(&"x".repeat(65), "No")]);
    let refused = bot.post(&new_post(&here, long)).await;
    assert!(matches!(refused, Err(CallError::Refused(why)) if why.contains("65 bytes")));
}

#[tokio::test]
async fn a_sign_takes_the_place_of_the_one_before() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    fake.platform.private(ANN);
    let post = fake.platform.write(ANN.0, ANN, "hello");
    let mut seen = Vec::new();
    for sign in [Sign::Seen, Sign::Answered, Sign::Failed] {
        bot.sign(&post_id(ANN.0, post), sign).await.expect("signed");
        seen.push(fake.platform.reaction(ANN.0, post).expect("a reaction"));
    }
    seen.dedup();
    assert_eq!(seen.len(), 3);
    fake.platform.delete(ANN.0, post);
    let gone = bot.sign(&post_id(ANN.0, post), Sign::Seen).await;
    assert!(matches!(gone, Err(CallError::Gone(_))), "{gone:?}");
}

#[tokio::test]
async fn a_conversation_opens_as_a_topic_or_as_answers_to_a_message() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    fake.platform.forum(GROUP, &[77]);
    let (thread, link) = bot
        .open(&topic(GROUP, 77), " a fork ", "t", None)
        .await
        .expect("opened");
    assert_eq!(link, format!("https://t.me/c/1234567890/{}", thread.thread));
    say(&bot, &thread, "in it").await.expect("posted");
    let shown = fake.platform.shown(GROUP).pop().expect("a post");
    assert_eq!(
        shown.topic.map(|topic| topic.to_string()),
        Some(thread.thread)
    );

    fake.platform.supergroup(-1_005);
    let (thread, link) = bot
        .open(&chat(-1_005), "a fork", "t", None)
        .await
        .expect("opened");
    let root = fake.platform.shown(-1_005).pop().expect("the root");
    assert_eq!((root.text.as_str(), root.topic), ("a fork", None));
    assert_eq!(link, format!("https://t.me/c/5/{}", root.id));
    assert_ne!(thread, chat(-1_005));
    say(&bot, &thread, "in it").await.expect("posted");
    let said = fake.platform.shown(-1_005).pop().expect("a post");
    assert_eq!((said.answers, said.topic), (Some(root.id), None));

    fake.platform.private(ANN);
    let (_, link) = bot
        .open(&chat(ANN.0), &"t".repeat(500), "t", None)
        .await
        .expect("opened");
    assert_eq!(link, format!("https://t.me/{BOT_NAME}"));
}

#[tokio::test]
async fn rc_01_a_chat_that_asked_for_silence_is_left_alone_and_others_go_on() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    let (held, free) = (
        chat(fake.platform.group(-55)),
        chat(fake.platform.group(-56)),
    );
    let id = say(&bot, &held, "…").await.expect("posted");
    let mut step = 0;
    let limited = loop {
        step += 1;
        if step == 20 {
            fake.fault("editmessagetext", [Fault::TooMany(33)]);
        }
        let text = bot.line(&format!("step {step}"), &[]);
        if let Err(error) = bot.edit(&held, &id, &text).await {
            break error;
        }
    };
    assert_eq!(step, 20);
    let CallError::Limited { after, .. } = limited else {
        panic!("{limited:?}");
    };
    assert_eq!(after, Duration::from_secs(33));
    let calls = || fake.calls("editmessagetext").len() + fake.calls("sendmessage").len();
    let before = calls();
    let text = bot.line("the answer", &[]);
    for refused in [
        bot.edit(&held, &id, &text).await,
        say(&bot, &held, "more").await.map(drop),
        bot.busy(&held).await.map(drop),
    ] {
        assert!(
            matches!(refused, Err(CallError::Limited { .. })),
            "{refused:?}"
        );
    }
    assert_eq!((calls(), fake.calls("sendchataction").len()), (before, 0));
    say(&bot, &free, "elsewhere").await.expect("posted");
    let pauses = [bot.edit_pause(&held), bot.edit_pause(&chat(7))];
    assert_eq!(
        pauses,
        [Duration::from_secs(3), Duration::from_millis(1500)]
    );
}

#[tokio::test]
async fn rc_01_a_group_that_was_written_to_too_often_says_when_again() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    let here = chat(fake.platform.group(-55));
    fake.platform.limit(-55, 3);
    let id = say(&bot, &here, "…").await.expect("posted");
    for step in ["one", "two"] {
        let text = bot.line(step, &[]);
        bot.edit(&here, &id, &text).await.expect("edited");
    }
    let answer = bot.line("the answer", &[]);
    let limited = bot.edit(&here, &id, &answer).await;
    let Err(CallError::Limited { after, .. }) = limited else {
        panic!("{limited:?}");
    };
    assert!(after > Duration::ZERO && after <= Duration::from_secs(60));
    assert_eq!(texts(&fake, -55), ["two"]);
}

#[tokio::test]
async fn rc_01_after_the_wait_the_text_arrives() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    let here = chat(fake.platform.group(-55));
    fake.fault("sendmessage", [Fault::TooMany(1)]);
    let Err(CallError::Limited { after, .. }) = say(&bot, &here, "at last").await else {
        panic!("limited");
    };
    tokio::time::sleep(after).await;
    say(&bot, &here, "at last").await.expect("posted");
    assert_eq!(texts(&fake, -55), ["at last"]);
}

#[tokio::test]
async fn th_01_another_bots_conversation_is_refused_without_a_call() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    fake.platform.private(ANN);
    let mut other = chat(ANN.0);
    other.workspace = "12345".to_owned();
    let refused = say(&bot, &other, "hello").await;
    assert!(matches!(refused, Err(CallError::Refused(why)) if why.contains("12345")));
    assert_eq!(fake.calls("sendmessage").len(), 0);
}
