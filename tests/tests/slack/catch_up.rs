//! After a gap each known conversation is looked at once.

use std::time::Duration;

use mayfly_adapters::{
    hook::{Answer, Hook as _},
    slack::{Config, Pace, Slack},
};
use mayfly_domain::{Recent, chat::Platform as _};
use mayfly_tests::{
    fake::Fault,
    fake_slack::{SIGNING_SECRET, signed},
};

use crate::{
    bot, channel, config, fake, kept::Kept, listen::listening, new_post, now, pace, said, thread,
    until,
};

const MINUTE: i64 = 60_000;

fn known(kept: &Kept, id: &str, root: &str, newest: &str) {
    kept.lock().recent.push(Recent {
        thread: thread(id, root),
        newest: newest.to_owned(),
        at: now(),
    });
}

fn heard(kept: &Kept, ago: i64) {
    let at = now() - ago;
    kept.lock().mark = Some((at.to_string(), at));
}

#[tokio::test]
async fn rc_02_what_was_written_in_a_gap_comes_once_and_our_own_does_not() {
    let (fake, kept) = (fake(), Kept::default());
    fake.channel("D1");
    fake.forget_while_deaf();
    let slack = bot(&fake);
    let root = fake.write("C1", "U1", "<@U0BOT> hello");
    let direct = fake.write("D1", "U1", "hello");
    let seen = fake.reply("C1", &root, "U1", "known");
    let answer = new_post(&thread("C1", &root), "t-1", said(&slack, "our answer"));
    slack.post(&answer).await.unwrap();
    known(&kept, "C1", &root, &seen);
    known(&kept, "D1", "", &direct);
    known(&kept, "C404", "", "1.000001");
    let file = ("a.txt", "text/plain", b"abc".as_slice());
    let missed = [
        fake.reply("C1", &root, "U2", "missed"),
        fake.send_file("C1", Some(&root), "U1", "and a file", file),
        fake.write("D1", "U1", "missed, too"),
    ];
    heard(&kept, 5 * MINUTE);
    // A wait that Slack asks for in between ends nothing, and neither does a disk that is full for a while.
    kept.lock().failing = 2;
    fake.fault("conversations.replies", [Fault::TooMany(1), Fault::Cut]);
    for round in 0..2 {
        listening(&slack, &kept, async {
            until("the pass is over", || {
                let state = kept.lock();
                let (value, _) = state.mark.as_ref()?;
                (now() - value.parse::<i64>().ok()? < MINUTE).then_some(())
            })
            .await;
        })
        .await;
        let posts = kept.posts();
        let ids: Vec<&String> = posts.iter().map(|post| &post.id.id).collect();
        assert_eq!(ids, missed.iter().collect::<Vec<_>>(), "{round}");
        assert_eq!(posts[0].thread, thread("C1", &root));
        assert_eq!(posts[1].files.len(), 1);
        assert_eq!(
            (&posts[2].id.channel, posts[2].thread.thread.as_str()),
            (&channel("D1"), "")
        );
        heard(&kept, 5 * MINUTE);
    }
    assert_eq!(kept.lock().failing, 0);
}

#[tokio::test]
async fn after_a_refused_request_what_slack_gives_up_is_looked_for() {
    let (fake, kept) = (fake(), Kept::default());
    fake.forget_while_deaf();
    let config = Config {
        app_token: None,
        signing_secret: Some(SIGNING_SECRET.into()),
        ..config(&fake)
    };
    let quick = Pace {
        gap: Duration::from_secs(1),
        ..pace()
    };
    let slack = Slack::with_pace(config, quick).expect("tokens of the right form");
    let root = fake.write("C1", "U1", "<@U0BOT> hello");
    known(&kept, "C1", &root, &root);
    let body = r#"{"type":"event_callback","team_id":"T1","event_id":"Ev1","event":{"type":"x"}}"#;
    let at = now() / 1000;
    let mut headers = hyper::HeaderMap::new();
    let signature = signed(at, body.as_bytes());
    headers.append("x-slack-request-timestamp", at.into());
    headers.append("x-slack-signature", signature.parse().expect("hex"));
    listening(&slack, &kept, async {
        until("it is up", || kept.lock().mark.clone()).await;
        kept.lock().failing = 2;
        let refused = slack.receive(&headers, body.as_bytes(), &kept).await;
        assert!(matches!(refused, Answer::Later(_)), "{refused:?}");
        fake.reply("C1", &root, "U2", "given up");
        until("what was given up", || {
            (!kept.texts().is_empty()).then_some(())
        })
        .await;
    })
    .await;
    assert_eq!(kept.texts(), ["given up"]);
}

#[tokio::test]
async fn rc_07_without_a_gap_nothing_is_looked_at() {
    let (fake, kept) = (fake(), Kept::default());
    let slack = bot(&fake);
    let root = fake.write("C1", "U1", "<@U0BOT> hello");
    known(&kept, "C1", &root, &root);
    heard(&kept, 1000);
    listening(&slack, &kept, async {
        until("it is stored", || (fake.acknowledged() == 2).then_some(())).await;
    })
    .await;
    assert_eq!(fake.calls("conversations.replies"), 0);
}

#[tokio::test]
async fn a_pass_that_ends_early_is_made_again_after_a_restart() {
    let (fake, kept) = (fake(), Kept::default());
    let slack = bot(&fake);
    let root = fake.write("C1", "U1", "<@U0BOT> hello");
    known(&kept, "C1", &root, &root);
    heard(&kept, 5 * MINUTE);
    let before = kept.lock().mark.clone();
    fake.fault("conversations.replies", [Fault::TooMany(600)]);
    listening(&slack, &kept, async {
        until("it waits", || {
            (fake.calls("conversations.replies") == 1).then_some(())
        })
        .await;
        until("it is stored", || (fake.acknowledged() == 2).then_some(())).await;
    })
    .await;
    assert_eq!(kept.lock().mark, before);
}
