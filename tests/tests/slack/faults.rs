//! Each call, where everything goes wrong on the way: it is seen once, and never lost.

use std::time::{Duration, Instant};

use mayfly_adapters::slack::Pace;
use mayfly_domain::chat::{CallError, NewPost, Platform as _, Sign};
use mayfly_tests::fake::Fault;

use crate::{PATIENCE, bot, bot_at, fake, new_post, pace, post_id, said, thread, until_done};

fn word(error: &CallError) -> &'static str {
    match error {
        CallError::NotDone(_) => "not done",
        CallError::Unknown(_) => "unknown",
        CallError::Limited { .. } => "limited",
        CallError::Gone(_) => "gone",
        CallError::Moved(_) => "moved",
        CallError::Refused(_) => "refused",
    }
}

/// Faults that come at once, and what the first try is told.
fn quick() -> Vec<(Fault, &'static str)> {
    let error = |code: &str| Fault::Refused(200, format!(r#"{{"ok":false,"error":"{code}"}}"#));
    vec![
        (Fault::Cut, "unknown"),
        (Fault::Lost, "unknown"),
        (Fault::TooMany(1), "limited"),
        (Fault::Refused(500, "oops".to_owned()), "unknown"),
        (Fault::Refused(503, "<html>".to_owned()), "unknown"),
        (Fault::Refused(200, "<html>".to_owned()), "unknown"),
        (error("fatal_error"), "unknown"),
        (error("internal_error"), "unknown"),
        (error("ratelimited"), "not done"),
    ]
}

#[tokio::test]
async fn fm_07_fm_08_whatever_goes_wrong_with_a_post_it_is_seen_once() {
    let fake = fake();
    let slack = bot(&fake);
    for (n, (fault, first)) in quick().into_iter().enumerate() {
        let root = fake.write("C1", "U1", "<@U0BOT> hello");
        let key = thread("C1", &root);
        let post = new_post(&key, &format!("t-{n}"), said(&slack, "the answer"));
        fake.fault("chat.postMessage", [fault.clone()]);
        let (ts, failed) = until_done(|unknown_since| {
            let post = NewPost {
                unknown_since,
                ..post.clone()
            };
            let slack = &slack;
            async move { slack.post(&post).await }
        })
        .await;
        assert_eq!(
            failed.iter().map(word).collect::<Vec<_>>(),
            [first],
            "{fault:?}"
        );
        let shown = fake.by_bot("C1", Some(&root));
        assert_eq!(shown.len(), 1, "{fault:?}");
        assert_eq!(shown[0].ts, ts);
    }
}

#[tokio::test]
async fn fm_07_a_post_that_slack_makes_after_we_gave_up_is_found_and_not_made_again() {
    for fault in [
        Fault::Slow(Duration::from_secs(8)),
        Fault::Late(Duration::from_secs(8)),
    ] {
        let fake = fake();
        let hasty = Pace {
            call: Duration::from_secs(3),
            ..pace()
        };
        let patient = Pace {
            settle: PATIENCE,
            ..pace()
        };
        let (hasty, patient) = (bot_at(&fake, hasty), bot_at(&fake, patient));
        let root = fake.write("C1", "U1", "<@U0BOT> hello");
        let mut post = new_post(&thread("C1", &root), "t-1", said(&hasty, "the answer"));
        fake.fault("chat.postMessage", [fault]);
        let at = crate::now();
        let first = hasty.post(&post).await;
        assert!(matches!(first, Err(CallError::Unknown(_))), "{first:?}");
        post.unknown_since = Some(at);
        let ts = patient.post(&post).await.unwrap();
        let shown = fake.by_bot("C1", Some(&root));
        assert_eq!((shown.len(), &shown[0].ts), (1, &ts));
        assert_eq!(fake.calls("chat.postMessage"), 1);
    }
}

#[tokio::test]
async fn a_post_in_a_long_thread_and_one_of_a_direct_conversation_are_found() {
    let fake = fake();
    fake.channel("D1");
    let slack = bot(&fake);
    let root = fake.write("C1", "U1", "<@U0BOT> hello");
    for (channel, root) in [("C1", root.as_str()), ("D1", "")] {
        let since = crate::now();
        let mut post = new_post(&thread(channel, root), "t-1", said(&slack, "the answer"));
        let crowd = || {
            for n in 0..230 {
                match root {
                    "" => fake.write(channel, "U1", &format!("more {n}")),
                    root => fake.reply(channel, root, "U1", &format!("more {n}")),
                };
            }
        };
        crowd();
        let ts = slack.post(&post).await.unwrap();
        crowd();
        post.unknown_since = Some(since);
        assert_eq!(slack.post(&post).await.unwrap(), ts);
        assert_eq!(
            fake.by_bot(channel, None).len() + fake.by_bot(channel, Some(root)).len(),
            1
        );
    }
}

/// More than is ever looked through comes between the call and the look.
#[tokio::test]
async fn a_post_of_a_while_ago_is_found_in_a_busy_channel() {
    let fake = fake();
    let slack = bot(&fake);
    let since = crate::now();
    let mut post = new_post(&thread("C1", ""), "t-1", said(&slack, "the answer"));
    let ts = slack.post(&post).await.unwrap();
    fake.minutes_pass(10);
    for n in 0..1_100 {
        fake.write("C1", "U1", &format!("more {n}"));
    }
    post.unknown_since = Some(since);
    assert_eq!(slack.post(&post).await.unwrap(), ts);
    assert_eq!(fake.by_bot("C1", None).len(), 1);
}

#[tokio::test]
async fn where_nothing_can_be_looked_up_nothing_is_posted_twice() {
    let fake = fake();
    let slack = bot(&fake);
    let root = fake.write("C1", "U1", "<@U0BOT> hello");
    let mut post = new_post(&thread("C1", &root), "t-1", said(&slack, "the answer"));
    post.unknown_since = Some(crate::now());
    fake.without_scope("channels:history");
    let refused = slack.post(&post).await.unwrap_err().to_string();
    assert!(refused.contains("channels:history"), "{refused}");
    fake.fault("conversations.replies", [Fault::TooMany(60)]);
    let limited = bot(&fake).post(&post).await;
    assert!(
        matches!(limited, Err(CallError::Limited { .. })),
        "{limited:?}"
    );
    assert_eq!(fake.calls("chat.postMessage"), 0);
}

#[tokio::test]
async fn whatever_goes_wrong_with_an_edit_or_a_removal_it_is_done() {
    let fake = fake();
    let slack = bot(&fake);
    let root = fake.write("C1", "U1", "<@U0BOT> hello");
    let key = thread("C1", &root);
    for (n, (fault, first)) in quick().into_iter().enumerate() {
        let post = new_post(&key, &format!("t-{n}"), slack.line("working", &[]));
        let ts = slack.post(&post).await.unwrap();
        let answer = said(&slack, &format!("answer {n}"));
        fake.fault("chat.update", [fault.clone()]);
        let ((), failed) = until_done(|_| slack.edit(&key, &ts, &answer)).await;
        assert_eq!(
            failed.iter().map(word).collect::<Vec<_>>(),
            [first],
            "{fault:?}"
        );
        let shown = fake.by_bot("C1", Some(&root));
        assert_eq!(
            (shown.len(), shown[0].text.trim()),
            (1, format!("answer {n}").as_str())
        );
        fake.fault("chat.delete", [fault.clone()]);
        until_done(|_| slack.remove(&key, &ts)).await;
        assert!(fake.by_bot("C1", Some(&root)).is_empty(), "{fault:?}");
    }
}

#[tokio::test]
async fn whatever_goes_wrong_with_marks_and_signs_of_life_they_are_made() {
    let fake = fake();
    let slack = bot(&fake);
    let ts = fake.write("C1", "U1", "<@U0BOT> hello");
    let (id, key) = (post_id("C1", &ts), thread("C1", &ts));
    for (n, (fault, _)) in quick().into_iter().enumerate() {
        let (sign, emoji) = match n % 2 {
            0 => (Sign::Seen, "eyes"),
            _ => (Sign::Answered, "white_check_mark"),
        };
        fake.fault("reactions.add", [fault.clone()]);
        fake.fault("reactions.remove", [fault.clone()]);
        fake.fault("assistant.threads.setStatus", [fault.clone()]);
        until_done(|_| slack.sign(&id, sign)).await;
        until_done(|_| slack.busy(&key)).await;
        assert_eq!(fake.seen("C1", None)[0].reactions, [emoji], "{fault:?}");
    }
}

#[tokio::test]
async fn whatever_goes_wrong_with_opening_one_conversation_is_opened() {
    let fake = fake();
    let slack = bot(&fake);
    let root = fake.write("C1", "U1", "<@U0BOT> fork");
    for (n, (fault, _)) in quick().into_iter().enumerate() {
        for method in [
            "conversations.history",
            "chat.postMessage",
            "chat.getPermalink",
        ] {
            fake.fault(method, [fault.clone()]);
        }
        let (beside, token) = (thread("C1", &root), format!("o-{n}"));
        let opened = until_done(|since| slack.open(&beside, "a fork", &token, since));
        let ((key, link), _) = opened.await;
        assert!(!link.is_empty() && !key.thread.is_empty());
        assert_eq!(fake.by_bot("C1", None).len(), n + 1, "{fault:?}");
    }
}

#[tokio::test]
async fn rc_01_rc_07_nobody_calls_what_slack_wants_silence_for_and_the_rest_goes_on() {
    let fake = fake();
    fake.channel("C2");
    let slack = bot(&fake);
    let root = fake.write("C1", "U1", "<@U0BOT> hello");
    let key = thread("C1", &root);
    let post = new_post(&key, "t-1", said(&slack, "x"));
    fake.fault("chat.postMessage", [Fault::TooMany(33)]);
    for _ in 0..20 {
        let limited = slack.post(&post).await;
        let Err(CallError::Limited { after, .. }) = limited else {
            panic!("{limited:?}");
        };
        assert!(after <= Duration::from_secs(33));
    }
    assert_eq!(fake.calls("chat.postMessage"), 1);
    let other = new_post(&thread("C2", ""), "t-2", said(&slack, "x"));
    slack.post(&other).await.unwrap();
    slack.busy(&key).await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_not_there_has_done_nothing() {
    let down = {
        let fake = fake();
        bot(&fake)
    };
    let post = new_post(&thread("C1", ""), "t", said(&down, "x"));
    let began = Instant::now();
    // The port is closed when the server's thread has ended.
    let error = loop {
        match down.post(&post).await {
            Err(CallError::NotDone(why)) => break why,
            other => assert!(began.elapsed() < PATIENCE, "{other:?}"),
        }
    };
    assert!(!error.contains("xoxb"), "{error}");
}
