//! Events by Socket Mode: stored first, acknowledged then, whatever happens to the socket.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use mayfly_adapters::slack::{Config, Pace, Slack};
use mayfly_domain::{Happened, Inbox, Place, Twin, chat::Platform as _};
use mayfly_tests::{
    fake::Fault,
    fake_slack::{APP_TOKEN, BOT_TOKEN, Ending, Mishap, Running},
};
use serde_json::json;

use crate::{
    bot, bot_at, config, fake,
    kept::{Kept, Watching},
    pace, post_id, thread, until,
};

/// Listens while `meanwhile` goes on.
pub(crate) async fn listening<T>(
    slack: &Slack,
    inbox: &dyn Inbox,
    meanwhile: impl Future<Output = T>,
) -> T {
    tokio::select! {
        stopped = slack.listen(inbox) => panic!("{stopped:?}"),
        done = meanwhile => done,
    }
}

/// Waits until so many envelopes were acknowledged.
async fn acknowledged(fake: &Running, count: usize) {
    until(&format!("{count} acknowledged"), || {
        (fake.acknowledged() >= count).then_some(())
    })
    .await;
}

async fn connected(kept: &Kept, ups: usize) {
    until(&format!("{ups} times up"), || {
        (kept.ups() >= ups).then_some(())
    })
    .await;
}

#[tokio::test]
async fn ev_01_an_event_is_stored_before_it_is_acknowledged() {
    let (fake, kept) = (fake(), Kept::default());
    let watching = Watching {
        kept: &kept,
        fake: &fake,
    };
    let slack = bot(&fake);
    listening(&slack, &watching, async {
        for n in 0..5 {
            fake.write("C1", "U1", &format!("number {n}"));
            acknowledged(&fake, n + 1).await;
        }
    })
    .await;
    assert_eq!(kept.lock().seen_at_take, [0, 1, 2, 3, 4]);
    assert_eq!(kept.texts().len(), 5);
}

#[tokio::test]
async fn ev_01_an_event_that_is_not_stored_is_not_acknowledged_and_comes_again() {
    let (fake, kept) = (fake(), Kept::default());
    kept.lock().failing = 2;
    let slack = bot(&fake);
    listening(&slack, &kept, async {
        fake.write("C1", "U1", "precious");
        acknowledged(&fake, 1).await;
    })
    .await;
    assert_eq!(kept.lock().failing, 0);
    assert_eq!(kept.texts(), ["precious"]);
}

#[tokio::test]
async fn ev_02_both_events_of_a_mention_are_one_post_whichever_comes_first() {
    let (fake, kept) = (fake(), Kept::default());
    let slack = bot(&fake);
    let (first, second) = listening(&slack, &kept, async {
        let first = fake.write("C1", "U1", "<@U0BOT> one");
        let second = fake.write_mention_last("C1", "U1", "<@U0BOT> two");
        acknowledged(&fake, 4).await;
        (first, second)
    })
    .await;
    let posts = kept.posts();
    let told: Vec<_> = posts
        .iter()
        .map(|post| (post.id.id.clone(), post.twin, post.to_us))
        .collect();
    let (mention, message) = (Some(Twin::Mention), Some(Twin::Message));
    assert_eq!(
        told,
        [
            (first.clone(), mention, true),
            (first, message, true),
            (second.clone(), message, true),
            (second, mention, true),
        ]
    );
}

#[tokio::test]
async fn ev_01_ev_07_what_comes_twice_or_while_a_socket_breaks_is_there_once() {
    let (fake, kept) = (fake(), Kept::default());
    let slack = bot(&fake);
    // Written while nobody listens.
    fake.write("C1", "U1", "message 0");
    let all = [
        Mishap::CutBeforeAck,
        Mishap::Twice,
        Mishap::CutAfterAck,
        Mishap::Twice,
    ];
    fake.mishaps(all);
    listening(&slack, &kept, async {
        for n in 1..8 {
            fake.write("C1", "U1", &format!("message {n}"));
        }
        acknowledged(&fake, 8).await;
    })
    .await;
    let wanted: Vec<String> = (0..8).map(|n| format!("message {n}")).collect();
    assert_eq!(kept.texts(), wanted);
    assert!(kept.lock().came > 8, "nothing came again");
}

#[tokio::test]
async fn qu_05_what_comes_with_the_greeting_comes_first() {
    let (fake, kept) = (fake(), Kept::default());
    let slack = bot(&fake);
    fake.write("C1", "U1", "before");
    listening(&slack, &kept, async {
        connected(&kept, 1).await;
        fake.write("C1", "U1", "after");
        acknowledged(&fake, 2).await;
    })
    .await;
    assert_eq!(kept.texts(), ["before", "after"]);
}

#[tokio::test]
async fn qu_05_a_burst_keeps_its_order() {
    let (fake, kept) = (fake(), Kept::default());
    let slack = bot(&fake);
    listening(&slack, &kept, async {
        connected(&kept, 1).await;
        for n in 0..200 {
            fake.write("C1", "U1", &format!("message {n}"));
        }
        acknowledged(&fake, 200).await;
    })
    .await;
    let wanted: Vec<String> = (0..200).map(|n| format!("message {n}")).collect();
    assert_eq!(kept.texts(), wanted);
}

#[tokio::test]
async fn ev_04_edits_deletions_presses_and_commands_are_what_they_are() {
    let (fake, kept) = (fake(), Kept::default());
    let slack = bot(&fake);
    let asked = slack.line(
        "sure?",
        &[mayfly_domain::chat::Button {
            id: "b-1".to_owned(),
            label: "Yes".to_owned(),
            danger: false,
        }],
    );
    let root = fake.write("C1", "U1", "hello https://example.test/a");
    let post = crate::new_post(&thread("C1", &root), "t-1", asked);
    let ours = slack.post(&post).await.unwrap();
    listening(&slack, &kept, async {
        fake.preview("C1", &root);
        fake.edit("C1", &root, "hello again");
        fake.press("C1", &ours, "U2", "Yes");
        fake.command("C1", "U1", "status");
        fake.reply("C1", &root, "U1", "below");
        fake.delete("C1", &root);
        fake.event(json!({"type": "team_join", "user": {"id": "U9"}}));
        acknowledged(&fake, 9).await;
    })
    .await;
    let state = kept.lock();
    let told: Vec<String> = state
        .events
        .iter()
        .map(|event| match &event.happened {
            Happened::Posted(post) => format!("{:?} {}", post.place, post.text),
            Happened::Edited(post) => format!("edit {}", post.text),
            Happened::Deleted(id) => format!("deleted {}", *id == post_id("C1", &root)),
            Happened::Pressed(pressed) => {
                format!(
                    "{} by {} {}",
                    pressed.button,
                    pressed.by.id,
                    pressed.thread.thread == root
                )
            }
            Happened::Ignored(why) => why.clone(),
            Happened::Moved { .. } => "moved".to_owned(),
        })
        .collect();
    let wanted = [
        format!("{:?} hello https://example.test/a", Place::Channel),
        "own".to_owned(),
        "not_an_edit".to_owned(),
        "edit hello again".to_owned(),
        "b-1 by U2 true".to_owned(),
        format!("{:?} /mayfly status", Place::Channel),
        format!("{:?} below", Place::Thread),
        "deleted true".to_owned(),
        "unknown".to_owned(),
    ];
    assert_eq!(told, wanted);
}

#[tokio::test]
async fn rc_02_a_half_open_socket_is_noticed_and_what_was_missed_comes() {
    let (fake, kept) = (fake(), Kept::default());
    let quick = Pace {
        ping: Duration::from_millis(200),
        silence: Duration::from_secs(2),
        ..pace()
    };
    let slack = bot_at(&fake, quick);
    listening(&slack, &kept, async {
        connected(&kept, 1).await;
        fake.end_sockets(Ending::Silent);
        fake.write("C1", "U1", "are you there?");
        until("the silence is noticed", || {
            (kept.downs() >= 1).then_some(())
        })
        .await;
        acknowledged(&fake, 1).await;
    })
    .await;
    assert_eq!(kept.texts(), ["are you there?"]);
}

/// A socket that answers to pings lives on, however long nothing happens.
#[tokio::test]
async fn a_quiet_socket_is_not_taken_for_a_dead_one() {
    let (fake, kept) = (fake(), Kept::default());
    let quick = Pace {
        ping: Duration::from_millis(100),
        silence: Duration::from_secs(2),
        ..pace()
    };
    let slack = bot_at(&fake, quick);
    listening(&slack, &kept, async {
        connected(&kept, 1).await;
        tokio::time::sleep(Duration::from_secs(4)).await;
    })
    .await;
    // A machine that stands still for two seconds loses it once.
    assert!(fake.sockets_ever() <= 2, "{}", fake.sockets_ever());
}

#[tokio::test]
async fn rc_04_after_every_end_events_come_again_without_a_hot_loop() {
    let (fake, kept) = (fake(), Kept::default());
    let slack = bot(&fake);
    let oops = || Fault::Refused(500, "oops".to_owned());
    fake.fault("auth.test", [Fault::Cut, oops()]);
    kept.lock().failing_marks = 2;
    listening(&slack, &kept, async {
        connected(&kept, 1).await;
        for (n, ending) in [Ending::Cut, Ending::Told("too_many_websockets")]
            .into_iter()
            .enumerate()
        {
            fake.fault("apps.connections.open", [oops(), Fault::Cut]);
            fake.end_sockets(ending);
            fake.write("C1", "U1", &format!("message {n}"));
            connected(&kept, n + 2).await;
            acknowledged(&fake, n + 1).await;
        }
    })
    .await;
    assert_eq!(kept.texts().len(), 2);
    assert_eq!(fake.calls("apps.connections.open"), 1 + 2 * 3);
    assert_eq!(kept.lock().failing_marks, 0);
    assert!(kept.downs() >= 4);
}

#[tokio::test]
async fn the_next_socket_opens_before_the_old_one_closes() {
    let (fake, kept) = (fake(), Kept::default());
    let slack = bot(&fake);
    listening(&slack, &kept, async {
        connected(&kept, 1).await;
        for n in 0..3 {
            fake.end_sockets(Ending::Told(["warning", "refresh_requested", "warning"][n]));
            fake.write("C1", "U1", &format!("message {n}"));
            connected(&kept, n + 2).await;
            acknowledged(&fake, n + 1).await;
            until("the old one is closed", || {
                (fake.sockets() == 1).then_some(())
            })
            .await;
        }
    })
    .await;
    assert_eq!(kept.texts().len(), 3);
    assert_eq!(fake.sockets_ever(), 4);
    assert_eq!(kept.downs(), 0, "{:?}", kept.lock().links);
}

#[tokio::test]
async fn what_must_not_be_tried_again_stops_with_the_way_out() {
    let fake = fake();
    let kept = Kept::default();
    let with = |bot: &str, app: &str| {
        let tokens = Config {
            bot_token: bot.into(),
            app_token: Some(app.into()),
            ..config(&fake)
        };
        Slack::with_pace(tokens, pace()).unwrap()
    };
    let other = format!("{BOT_TOKEN}x");
    let said = with(&other, APP_TOKEN).listen(&kept).await.unwrap_err();
    assert!(
        said.contains("invalid_auth") && !said.contains("xoxb"),
        "{said}"
    );
    let other = format!("{APP_TOKEN}x");
    let said = with(BOT_TOKEN, &other).listen(&kept).await.unwrap_err();
    assert!(
        said.contains("invalid_auth") && !said.contains("xapp"),
        "{said}"
    );
    let slack = bot(&fake);
    let stopped = async {
        connected(&kept, 1).await;
        fake.disable_link();
        std::future::pending::<()>().await;
    };
    let said = tokio::select! {
        said = slack.listen(&kept) => said.unwrap_err(),
        () = stopped => unreachable!(),
    };
    assert!(said.contains("Socket Mode is switched off"), "{said}");
    // And where it is off from the start.
    let said = bot(&fake).listen(&kept).await.unwrap_err();
    assert!(said.contains("Socket Mode is switched off"), "{said}");
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .expect("nobody panicked")
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("nobody panicked").clone()).expect("UTF-8")
    }
}

#[tokio::test]
async fn ev_08_se_05_sockets_of_others_are_told_and_no_line_shows_a_secret() {
    let lines = Lines::default();
    let to = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || to.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let (fake, kept) = (fake(), Kept::default());
    fake.strangers(2);
    let slack = bot(&fake);
    listening(&slack, &kept, async {
        connected(&kept, 1).await;
        fake.fault(
            "apps.connections.open",
            [Fault::Cut, Fault::Lost, Fault::Refused(503, String::new())],
        );
        fake.end_sockets(Ending::Cut);
        connected(&kept, 2).await;
    })
    .await;
    let text = lines.text();
    assert!(text.contains("another instance listens"), "{text}");
    for secret in [BOT_TOKEN, APP_TOKEN, "ticket-"] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[tokio::test]
async fn a_payload_of_ten_megabytes_is_stored_like_any_other() {
    let (fake, kept) = (fake(), Kept::default());
    let slack = bot(&fake);
    let long = "x".repeat(10 << 20);
    listening(&slack, &kept, async {
        fake.write("C1", "U1", &long);
        fake.event(json!({"type": "message", "channel": [], "ts": {"a": 1}, "user": null}));
        acknowledged(&fake, 2).await;
    })
    .await;
    assert_eq!(kept.texts(), [long]);
    assert_eq!(kept.lock().events.len(), 2);
}
