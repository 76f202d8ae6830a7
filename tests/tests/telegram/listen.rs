//! Updates in: each kept once and in order before it is acknowledged, whatever goes wrong.

use std::{
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use mayfly_adapters::telegram::{Telegram, config::Config};
use mayfly_domain::{Happened, Link, chat::Platform as _};
use mayfly_tests::{
    fake::Fault,
    fake_telegram::{FakeTelegram, Person, TOKEN},
};
use serde_json::json;

use crate::{
    bot, config, in_time,
    kept::{Kept, Next},
    until,
};

const ANN: Person = Person(7);
const DAY: i64 = 24 * 60 * 60 * 1000;

/// Listens while `script` runs; listening is dropped at its end, as by `kill -9`.
async fn during<T>(bot: &Telegram, inbox: &Kept, script: impl Future<Output = T>) -> T {
    tokio::select! {
        ended = bot.listen(inbox) => panic!("{ended:?}"),
        done = script => done,
    }
}

fn expected(texts: std::ops::Range<usize>) -> Vec<String> {
    texts.map(|n| format!("message {n}")).collect()
}

fn write(fake: &crate::Fake, texts: std::ops::Range<usize>) {
    for text in expected(texts) {
        fake.platform.write(ANN.0, ANN, &text);
    }
}

#[tokio::test]
async fn ev_06_after_a_crash_each_update_is_kept_once_and_none_is_lost() {
    for crash in [Next::HoldBefore, Next::HoldAfter] {
        let fake = FakeTelegram::start();
        fake.platform.private(ANN);
        fake.platform.count_updates_from(501);
        write(&fake, 0..5);
        let inbox = Kept::default();
        inbox.lock().next.push(crash);
        during(
            &bot(&fake),
            &inbox,
            until("a crash", || inbox.lock().takes == 1),
        )
        .await;
        let before = if crash == Next::HoldAfter { 5 } else { 0 };
        assert_eq!(inbox.texts(), expected(0..before));
        assert_eq!(
            fake.platform.unconfirmed(),
            5,
            "nothing is acknowledged yet"
        );
        write(&fake, 5..8);
        let again = bot(&fake);
        during(&again, &inbox, async {
            until("all of them", || inbox.posts().len() == 8).await;
            until("their acknowledgement", || fake.platform.unconfirmed() == 0).await;
        })
        .await;
        assert_eq!(inbox.texts(), expected(0..8));
        assert_eq!(inbox.offset().as_deref(), Some("509"));
    }
}

#[tokio::test]
async fn qu_05_updates_are_kept_in_their_order_over_many_polls() {
    let fake = FakeTelegram::start();
    fake.platform.private(ANN);
    write(&fake, 0..250);
    let inbox = Kept::default();
    during(&bot(&fake), &inbox, async {
        until("the first", || !inbox.posts().is_empty()).await;
        write(&fake, 250..300);
        until("all", || inbox.posts().len() == 300).await;
    })
    .await;
    assert_eq!(inbox.texts(), expected(0..300));
    assert_eq!(inbox.link(), Some(Link::Up));
}

#[tokio::test]
async fn an_update_that_comes_twice_or_late_is_one_with_its_first() {
    let fake = FakeTelegram::start();
    fake.platform.private(ANN);
    write(&fake, 0..2);
    fake.platform.swap_last_updates();
    fake.platform.repeat_last_update("message");
    let inbox = Kept::default();
    during(&bot(&fake), &inbox, async {
        until("their acknowledgement", || fake.platform.unconfirmed() == 0).await;
    })
    .await;
    assert_eq!(inbox.texts(), ["message 1", "message 0"]);
}

#[tokio::test]
async fn what_cannot_be_kept_is_not_acknowledged() {
    let fake = FakeTelegram::start();
    fake.platform.private(ANN);
    write(&fake, 0..3);
    let inbox = Kept::default();
    inbox.lock().next.extend([Next::Fail, Next::Fail]);
    during(&bot(&fake), &inbox, async {
        until("a second refusal", || inbox.lock().takes == 2).await;
        assert_eq!(fake.platform.unconfirmed(), 3);
        until("all", || inbox.posts().len() == 3).await;
        until("the connection", || inbox.link() == Some(Link::Up)).await;
    })
    .await;
    assert!(inbox.was_down("could not be stored"));
    assert_eq!(inbox.texts(), expected(0..3));
}

#[tokio::test]
async fn unknown_and_huge_updates_are_kept_as_they_came() {
    let fake = FakeTelegram::start();
    fake.platform.private(ANN);
    let odd = json!({"flux": [1, 2.5, null], "message_id": "seven"});
    fake.platform.update("entangled_message", odd.clone());
    fake.platform.update("message", json!("no object"));
    fake.platform.write(ANN.0, ANN, &"x".repeat(10 << 20));
    let inbox = Kept::default();
    during(
        &bot(&fake),
        &inbox,
        until("all", || inbox.lock().events.len() == 3),
    )
    .await;
    let state = inbox.lock();
    let raw = String::from_utf8(state.events[0].raw.clone()).expect("text");
    assert!(raw.contains(&odd.to_string()), "{raw}");
    let why = |n: usize| match &state.events[n].event {
        Ok(event) => event.happened.clone(),
        Err(why) => panic!("{why}"),
    };
    assert_eq!(why(0), Happened::Ignored("unknown".to_owned()));
    assert_eq!(why(1), Happened::Ignored("unreadable".to_owned()));
    assert!(state.events[2].raw.len() > 10 << 20);
}

#[tokio::test]
async fn cf_02_under_privacy_mode_commands_and_answers_to_the_bot_still_come() {
    let fake = FakeTelegram::start();
    fake.platform.group(-55);
    fake.platform.set_privacy(true);
    let ours = bot(&fake);
    let post = crate::say(&ours, &crate::chat(-55), "hello all").await;
    let post = post.expect("posted").parse().expect("a number");
    fake.platform.write(-55, ANN, "among people");
    fake.platform.write(-55, ANN, "/status@mayfly_test_bot");
    fake.platform.answer(-55, post, ANN, "to the bot");
    let inbox = Kept::default();
    during(&ours, &inbox, until("both", || inbox.posts().len() == 2)).await;
    assert_eq!(inbox.texts(), ["/status", "to the bot"]);
    assert!(inbox.posts().iter().all(|post| post.to_us));
}

#[tokio::test]
async fn ev_06_after_six_quiet_days_numbers_may_begin_anew_lower() {
    let fake = FakeTelegram::start();
    fake.platform.private(ANN);
    let inbox = Kept::default();
    let stale = ("1000000".to_owned(), 0);
    inbox.lock().marks.insert("offset".to_owned(), stale);
    let now = Arc::new(AtomicI64::new(6 * DAY));
    let at = now.clone();
    let bot = bot(&fake).with_clock(Arc::new(move || at.load(Ordering::SeqCst)));
    write(&fake, 0..1);
    during(&bot, &inbox, async {
        until("the first", || inbox.posts().len() == 1).await;
        // The same while it runs: nothing for a week, then a lower number.
        now.fetch_add(7 * DAY, Ordering::SeqCst);
        fake.platform.count_updates_from(-50);
        write(&fake, 1..3);
        until("the others", || inbox.posts().len() == 3).await;
    })
    .await;
    assert_eq!(inbox.texts(), expected(0..3));
}

#[tokio::test]
async fn ev_06_an_offset_of_yesterday_is_used() {
    let fake = FakeTelegram::start();
    fake.platform.private(ANN);
    write(&fake, 0..3);
    let inbox = Kept::default();
    inbox
        .lock()
        .marks
        .insert("offset".to_owned(), ("3".to_owned(), 0));
    let bot = bot(&fake).with_clock(Arc::new(|| DAY));
    during(
        &bot,
        &inbox,
        until("the third", || !inbox.posts().is_empty()),
    )
    .await;
    assert_eq!(inbox.texts(), expected(2..3));
}

#[tokio::test]
async fn ev_08_a_second_poller_is_named_and_both_come_back_when_one_stops() {
    let fake = FakeTelegram::start();
    fake.platform.private(ANN);
    let inbox = Kept::default();
    let conflict = r#"{"ok":false,"error_code":409,"description":"Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"}"#;
    let three = (0..3).map(|_| Fault::Refused(409, conflict.to_owned()));
    fake.fault("getupdates", three);
    let began = Instant::now();
    during(&bot(&fake), &inbox, async {
        until("the connection", || inbox.link() == Some(Link::Up)).await;
        write(&fake, 0..1);
        until("a message", || inbox.posts().len() == 1).await;
    })
    .await;
    assert!(inbox.was_down("another program polls with the same token"));
    assert!(
        began.elapsed() >= Duration::from_millis(250 + 500 + 1000),
        "not in a rush"
    );
    assert_eq!(
        inbox.lock().links.len(),
        2,
        "told once, and once that it is over"
    );
}

#[tokio::test]
async fn ev_08_two_bots_with_one_token_lose_nothing() {
    let fake = FakeTelegram::start();
    fake.platform.private(ANN);
    let (one, other) = (Kept::default(), Kept::default());
    let (first, second) = (bot(&fake), bot(&fake));
    during(&first, &one, async {
        until("the first", || one.link() == Some(Link::Up)).await;
        during(&second, &other, async {
            until("a conflict", || {
                one.was_down("another program") || other.was_down("another program")
            })
            .await;
            write(&fake, 0..20);
            let kept = || {
                let mut all = [one.texts(), other.texts()].concat();
                all.sort();
                all.dedup();
                all.len()
            };
            until("all of them", || kept() == 20).await;
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_webhook_that_is_set_is_named() {
    let fake = FakeTelegram::start();
    fake.platform.private(ANN);
    fake.platform.set_webhook("https://bot.example/x");
    let inbox = Kept::default();
    during(&bot(&fake), &inbox, async {
        until("a reason", || inbox.was_down("deleteWebhook")).await;
        fake.platform.set_webhook("");
        until("the connection", || inbox.link() == Some(Link::Up)).await;
    })
    .await;
}

#[tokio::test]
async fn a_webhook_that_somebody_takes_away_is_told_and_mended_and_one_that_fails_cuts_nothing_off()
{
    let fake = FakeTelegram::start();
    fake.platform.private(ANN);
    let url = "https://bot.example/hooks/telegram";
    let bot = Telegram::new(&Config {
        webhook_url: Some(url.parse().expect("an address")),
        ..config(&fake)
    });
    let inbox = Kept::default();
    during(&bot.expect("a bot"), &inbox, async {
        until("a webhook", || {
            fake.platform.webhook().as_deref() == Some(url)
        })
        .await;
        until("the connection", || inbox.link() == Some(Link::Up)).await;
        fake.platform.set_webhook("");
        until("a reason", || inbox.was_down("another program")).await;
        until("it again", || {
            fake.platform.webhook().as_deref() == Some(url)
        })
        .await;
        until("the connection again", || inbox.link() == Some(Link::Up)).await;
        // Nobody is where the address leads to. That is no lost connection: see the decisions.
        fake.platform.write(ANN.0, ANN, "hello");
        let failures = || {
            let told = fake.answered();
            let failures = told.iter().filter(|(method, answer)| {
                method == "answer.getwebhookinfo"
                    && answer.to_string().contains("Connection refused")
            });
            failures.count()
        };
        until("failures that were looked at", || failures() >= 2).await;
    })
    .await;
    assert!(!inbox.was_down("Connection refused"));
    assert_eq!(inbox.link(), Some(Link::Up));
    assert_eq!(fake.calls("getupdates").len(), 0);
}

#[tokio::test]
async fn a_token_that_is_not_accepted_ends_it_with_the_way_out() {
    for (method, status, said) in [
        ("getme", 401, "Unauthorized"),
        ("getme", 404, "Not Found"),
        ("getupdates", 401, "Unauthorized"),
    ] {
        let fake = FakeTelegram::start();
        let body = json!({"ok": false, "error_code": status, "description": said});
        fake.fault(method, [Fault::Refused(status, body.to_string())]);
        let inbox = Kept::default();
        let ended = in_time("an end", bot(&fake).listen(&inbox)).await;
        let why = ended.expect_err("an end");
        assert!(
            why.contains("@BotFather") && !why.contains(&TOKEN[11..]),
            "{why}"
        );
    }
}

#[tokio::test]
async fn rc_02_a_poll_that_is_never_answered_is_given_up() {
    let fake = FakeTelegram::start();
    fake.platform.private(ANN);
    let inbox = Kept::default();
    let hasty = Telegram::new(&Config {
        timeout_s: 2,
        ..config(&fake)
    });
    fake.fault("getupdates", [Fault::Slow(Duration::from_secs(600))]);
    during(&hasty.expect("a bot"), &inbox, async {
        until("the loss", || matches!(inbox.link(), Some(Link::Down(_)))).await;
        write(&fake, 0..3);
        until("what was missed", || inbox.posts().len() == 3).await;
    })
    .await;
    assert_eq!(inbox.texts(), expected(0..3));
    // With the settings that nobody changes it is noticed within a minute.
    let token = config(&fake).token;
    let usual = Config::new(token);
    assert!(u64::from(usual.poll_s) + u64::from(usual.timeout_s) < 60);
}

#[tokio::test]
async fn rc_04_broken_connections_are_tried_again_with_growing_pauses() {
    let fake = FakeTelegram::start();
    fake.platform.private(ANN);
    let inbox = Kept::default();
    let page = Fault::Refused(502, "<html>bad gateway</html>".to_owned());
    fake.fault("getme", [Fault::Cut]);
    fake.fault("getupdates", [Fault::Cut, page, Fault::Lost]);
    write(&fake, 0..1);
    during(
        &bot(&fake),
        &inbox,
        until("a message", || inbox.posts().len() == 1),
    )
    .await;
    let calls = fake.calls("getupdates");
    let pauses: Vec<Duration> = calls.windows(2).map(|two| two[1] - two[0]).collect();
    for (pause, least) in pauses.iter().zip([500, 1000, 2000]) {
        assert!(*pause >= Duration::from_millis(least - 50), "{pauses:?}");
    }
    assert_eq!(inbox.texts(), expected(0..1));
}

#[tokio::test]
async fn rc_01_a_poll_waits_as_long_as_it_is_asked_to() {
    let fake = FakeTelegram::start();
    fake.platform.private(ANN);
    write(&fake, 0..1);
    let inbox = Kept::default();
    fake.fault("getupdates", [Fault::TooMany(2)]);
    during(
        &bot(&fake),
        &inbox,
        until("a message", || inbox.posts().len() == 1),
    )
    .await;
    let calls = fake.calls("getupdates");
    assert!(calls[1] - calls[0] >= Duration::from_secs(2) - Duration::from_millis(50));
}

#[tokio::test]
async fn a_server_that_never_waits_is_not_asked_in_a_rush() {
    let fake = FakeTelegram::start();
    let inbox = Kept::default();
    let empty = r#"{"ok":true,"result":[]}"#;
    let many = (0..1000).map(|_| Fault::Refused(200, empty.to_owned()));
    fake.fault("getupdates", many);
    let polls = || fake.calls("getupdates");
    during(
        &bot(&fake),
        &inbox,
        until("some polls", || polls().len() >= 3),
    )
    .await;
    let calls = polls();
    assert!(calls[2] - calls[0] >= Duration::from_millis(1900));
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panicked").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn se_05_rc_04_the_log_has_no_token_and_a_line_a_second() {
    let log = Log::default();
    let sink = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || sink.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let fake = FakeTelegram::start();
    fake.platform.private(ANN);
    let body = format!(
        r#"{{"ok":false,"error_code":400,"description":"odd: https://api.telegram.org/bot{TOKEN}/getUpdates"}}"#
    );
    fake.fault(
        "getupdates",
        [
            Fault::Cut,
            Fault::Refused(400, body),
            Fault::Lost,
            Fault::Cut,
        ],
    );
    write(&fake, 0..1);
    let inbox = Kept::default();
    let began = Instant::now();
    during(
        &bot(&fake),
        &inbox,
        until("a message", || inbox.posts().len() == 1),
    )
    .await;
    let lines = String::from_utf8(log.0.lock().expect("nobody panicked").clone());
    let lines = lines.expect("text");
    let ours = lines.matches("no updates from Telegram").count() as u64;
    assert!(
        (1..=began.elapsed().as_secs() + 1).contains(&ours),
        "{ours}: {lines}"
    );
    let told = format!("{lines} {:?}", inbox.lock().links);
    assert!(!told.contains(&TOKEN[11..]), "{told}");
}
