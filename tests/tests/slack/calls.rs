//! Each call, where nothing goes wrong on the way.

use std::time::Duration;

use mayfly_adapters::slack::Slack;
use mayfly_domain::{
    Author, Pressed,
    chat::{Button, CallError, Content, Platform as _, Sign},
};
use mayfly_tests::fake_slack::Running;

use crate::{bot, fake, new_post, post_id, said, thread};

fn button(label: &str) -> Button {
    Button {
        id: format!("id-{label}"),
        label: label.to_owned(),
        danger: label == "Stop",
    }
}

async fn post(slack: &Slack, channel: &str, root: &str, token: &str, content: Content) -> String {
    let post = new_post(&thread(channel, root), token, content);
    slack.post(&post).await.expect("it is posted")
}

#[tokio::test]
async fn a_post_says_what_was_rendered_until_it_is_changed_or_removed() {
    let fake = fake();
    let slack = bot(&fake);
    let root = fake.write("C1", "U1", "<@U0BOT> hello");
    let key = thread("C1", &root);
    let line = slack.line("working <on> it", &[button("Stop"), button("Later")]);
    let ts = post(&slack, "C1", &root, "t-1", line).await;
    let shown = fake.by_bot("C1", Some(&root));
    assert_eq!(shown[0].text, "working <on> it");
    assert_eq!(shown[0].fallback, "working &lt;on&gt; it");
    let pairs = [("Stop", "id-Stop"), ("Later", "id-Later")];
    let pairs = pairs.map(|(label, id)| (label.to_owned(), id.to_owned()));
    assert_eq!(shown[0].buttons, pairs);

    let answer = said(&slack, "**done**: a & b");
    slack.edit(&key, &ts, &answer).await.unwrap();
    slack.edit(&key, &ts, &answer).await.unwrap();
    let shown = fake.by_bot("C1", Some(&root));
    assert_eq!(shown.len(), 1);
    assert!(shown[0].text.contains("**done**"), "{shown:?}");
    assert_eq!(shown[0].fallback, "*done*: a &amp; b");
    assert!(shown[0].buttons.is_empty());

    slack.remove(&key, &ts).await.unwrap();
    slack.remove(&key, &ts).await.unwrap();
    assert!(fake.by_bot("C1", Some(&root)).is_empty());
    let gone = slack.edit(&key, &ts, &answer).await;
    assert!(matches!(gone, Err(CallError::Gone(_))), "{gone:?}");
}

#[tokio::test]
async fn th_01_th_03_everything_of_a_thread_stays_in_it() {
    let fake = fake();
    fake.channel("C2");
    let slack = bot(&fake);
    for channel in ["C1", "C2"] {
        let root = fake.write(channel, "U1", "<@U0BOT> hello");
        let other = fake.write(channel, "U1", "<@U0BOT> something else");
        let key = thread(channel, &root);
        post(&slack, channel, &root, "t", said(&slack, "here")).await;
        slack.busy(&key).await.unwrap();
        assert_eq!(fake.by_bot(channel, Some(&root)).len(), 1);
        assert!(fake.by_bot(channel, Some(&other)).is_empty());
        assert!(fake.by_bot(channel, None).is_empty());
        let (in_channel, at, _) = fake.statuses().pop().unwrap();
        assert_eq!((in_channel.as_str(), at), (channel, root));
    }
}

#[tokio::test]
async fn a_direct_conversation_has_no_thread_and_no_status() {
    let fake = fake();
    fake.channel("D1");
    let slack = bot(&fake);
    fake.write("D1", "U1", "hello");
    post(&slack, "D1", "", "t", said(&slack, "hi")).await;
    assert_eq!(fake.by_bot("D1", None).len(), 1);
    let renew = slack.busy(&thread("D1", "")).await.unwrap();
    assert!(renew > Duration::from_secs(120));
    assert!(fake.statuses().is_empty());
}

#[tokio::test]
async fn fm_08_a_place_that_is_closed_is_refused_with_the_way_out() {
    let fake = fake();
    let slack = bot(&fake);
    for id in ["C2", "C3"] {
        fake.channel(id);
    }
    fake.archive("C2");
    fake.kick("C3");
    for (channel, says) in [
        ("C404", "invite it"),
        ("C2", "unarchive it"),
        ("C3", "invite it"),
    ] {
        let post = new_post(&thread(channel, ""), "t", said(&slack, "x"));
        let refused = slack.post(&post).await;
        let Err(CallError::Refused(sentence)) = refused else {
            panic!("{refused:?}");
        };
        assert!(sentence.contains(says), "{sentence}");
    }
    fake.without_scope("chat:write");
    let post = new_post(&thread("C1", ""), "t", said(&slack, "x"));
    let refused = slack.post(&post).await.unwrap_err().to_string();
    assert!(
        refused.contains("chat:write") && refused.contains("install the app again"),
        "{refused}"
    );
    // What only decorates does not fail for it.
    assert!(slack.busy(&thread("C1", "1.000001")).await.is_ok());
}

#[tokio::test]
async fn a_mark_takes_the_place_of_the_one_before() {
    let fake = fake();
    let ts = fake.write("C1", "U1", "<@U0BOT> hello");
    let slack = bot(&fake);
    let marks = |fake: &Running| fake.seen("C1", None)[0].reactions.clone();
    let id = post_id("C1", &ts);
    for (sign, emoji) in [
        (Sign::Seen, "eyes"),
        (Sign::Seen, "eyes"),
        (Sign::Answered, "white_check_mark"),
        (Sign::Seen, "eyes"),
    ] {
        slack.sign(&id, sign).await.unwrap();
        assert_eq!(marks(&fake), [emoji]);
    }
    // After a restart what stood there is not known.
    let again = bot(&fake);
    again.sign(&id, Sign::Failed).await.unwrap();
    assert_eq!(marks(&fake), ["warning"]);
    fake.delete("C1", &ts);
    let gone = again.sign(&id, Sign::Answered).await;
    assert!(matches!(gone, Err(CallError::Gone(_))), "{gone:?}");
}

#[tokio::test]
async fn who_pressed_is_told_alone() {
    let fake = fake();
    let slack = bot(&fake);
    let root = fake.write("C1", "U1", "<@U0BOT> hello");
    let pressed = Pressed {
        button: "b".to_owned(),
        on: post_id("C1", &root),
        thread: thread("C1", &root),
        by: Author {
            id: "U2".to_owned(),
            name: "ben".to_owned(),
        },
        roles: Vec::new(),
        answer_to: String::new(),
    };
    slack.answer(&pressed, "").await.unwrap();
    slack.answer(&pressed, "not <you>").await.unwrap();
    let told = ["C1", "U2", "not &lt;you&gt;"].map(str::to_owned);
    assert_eq!(fake.whispers(), [told.into()]);
}

#[tokio::test]
async fn a_new_conversation_is_opened_once_however_often_it_is_asked_for() {
    let fake = fake();
    let slack = bot(&fake);
    let root = fake.write("C1", "U1", "<@U0BOT> fork");
    let beside = thread("C1", &root);
    let (key, link) = slack.open(&beside, "a fork", "o-1", None).await.unwrap();
    assert_eq!(
        slack
            .open(&beside, "a fork", "o-1", Some(crate::now()))
            .await
            .unwrap(),
        (key.clone(), link.clone())
    );
    let roots = fake.by_bot("C1", None);
    assert_eq!(roots.len(), 1);
    assert_eq!(
        (roots[0].text.as_str(), &roots[0].ts),
        ("a fork", &key.thread)
    );
    assert!(
        link.ends_with(&format!("/C1/p{}", key.thread.replace('.', ""))),
        "{link}"
    );
    let (other, _) = slack.open(&beside, "another", "o-2", None).await.unwrap();
    assert_ne!(other, key);
}

#[tokio::test]
async fn fm_01_fm_03_fm_06_what_is_rendered_is_taken_and_pings_nobody() {
    let fake = fake();
    let slack = bot(&fake);
    let code = "let a = 1; // <!channel>\n".repeat(300);
    for (n, reply) in [
        "<!channel> <@U1> @everyone".to_owned(),
        "a".repeat(3001),
        "a".repeat(11_000),
        format!("```rust\n{code}```"),
        "word ".repeat(20_000),
        "\u{1f600}".repeat(4097),
    ]
    .iter()
    .enumerate()
    {
        let rendered = slack.render(reply);
        assert!((1..=3).contains(&rendered.parts.len()));
        assert_eq!(rendered.whole.is_some(), reply.len() > 90_000, "{n}");
        for (part, content) in rendered.parts.into_iter().enumerate() {
            post(&slack, "C1", "", &format!("t-{n}-{part}"), content).await;
        }
    }
    for shown in fake.by_bot("C1", None) {
        assert!(!shown.fallback.contains("<!") && !shown.fallback.contains("<@"));
        assert!(shown.fallback.chars().count() <= 4000);
    }
}
