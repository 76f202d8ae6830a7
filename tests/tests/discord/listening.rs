//! Events in: each is stored once, in order, whatever happens to connections and sessions.

use std::{sync::atomic::Ordering, time::Duration};

use mayfly_adapters::discord::Discord;
use mayfly_domain::{Happened, Link, Place, chat::Platform};
use mayfly_tests::{
    fake::Fault,
    fake_discord::{ANN, BEN, FakeDiscord, Order, Running},
};

use super::{adapter, direct, inbox::Notebook, thread, until};

/// Listens while `what` goes on; the end of that ends the listening at once, as a crash would.
async fn listening(discord: &Discord, inbox: &Notebook, what: impl Future<Output = ()>) {
    tokio::select! {
        end = discord.listen(inbox) => panic!("it ended: {end:?}"),
        () = what => {}
    }
}

/// As [`listening`], with a new adapter, once it is connected.
async fn connected(fake: &Running, inbox: &Notebook, what: impl Future<Output = ()>) {
    let ups = inbox.ups();
    listening(&adapter(fake), inbox, async {
        until("a connection", || inbox.ups() > ups).await;
        what.await;
    })
    .await;
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("message {n}")).collect()
}

#[tokio::test]
async fn qu_05_events_are_stored_in_order_with_where_we_stand() {
    let fake = FakeDiscord::start();
    let inbox = Notebook::new();
    let channel = fake.channel("general");
    connected(&fake, &inbox, async {
        for text in numbers(0..200) {
            fake.write(channel, ANN, &text);
        }
        fake.again();
        until("all of them", || inbox.texts().len() == 200).await;
    })
    .await;
    assert_eq!(inbox.texts(), numbers(0..200));
    assert!(
        inbox.marks_fit(),
        "a mark is written with the events before it"
    );
    assert_eq!(inbox.links(), [Link::Up]);
    let first = inbox.posts().remove(0);
    assert_eq!(
        (first.place, first.thread.channel.as_str()),
        (Place::Channel, channel.to_string().as_str())
    );
}

#[tokio::test]
async fn ev_06_a_restart_goes_on_where_the_last_stored_event_ended() {
    let fake = FakeDiscord::start();
    let inbox = Notebook::new();
    let channel = fake.channel("general");
    connected(&fake, &inbox, async {
        for text in numbers(0..5) {
            fake.write(channel, ANN, &text);
        }
        until("the first", || inbox.texts().len() == 5).await;
    })
    .await;
    // Nobody listens.
    for text in numbers(5..10) {
        fake.write(channel, ANN, &text);
    }
    let stood = inbox.marked().expect("a mark");
    connected(&fake, &inbox, async {
        until("the rest", || inbox.texts().len() == 10).await;
    })
    .await;
    assert_eq!(inbox.texts(), numbers(0..10));
    assert_eq!(fake.resumed(), [stood]);
    assert_eq!(fake.identified().len(), 1);
    assert!(inbox.marks_fit());
}

#[tokio::test]
async fn ev_01_what_was_not_stored_comes_again() {
    let fake = FakeDiscord::start();
    let inbox = Notebook::new();
    let channel = fake.channel("general");
    connected(&fake, &inbox, async {
        inbox.failures.store(2, Ordering::SeqCst);
        for text in numbers(0..3) {
            fake.write(channel, ANN, &text);
        }
        until("they are stored after all", || inbox.texts().len() == 3).await;
        until("the connection is up again", || inbox.is_up()).await;
    })
    .await;
    assert_eq!(inbox.texts(), numbers(0..3));
    let why = |link: &Link| matches!(link, Link::Down(why) if why.contains("could not be stored"));
    assert!(inbox.links().iter().any(why), "{:?}", inbox.links());
    assert!(inbox.marks_fit());
}

/// Reset, closed, asked to go, told to resume again: messages flow on in one session.
#[tokio::test]
async fn rc_04_a_lost_connection_is_resumed_and_nothing_is_lost() {
    let fake = FakeDiscord::start();
    let inbox = Notebook::new();
    let channel = fake.channel("general");
    let orders = [
        Order::Cut,
        Order::Close(4000),
        Order::Reconnect,
        Order::Invalid(true),
        Order::Close(1001),
    ];
    let count = orders.len();
    connected(&fake, &inbox, async {
        for (n, order) in orders.into_iter().enumerate() {
            fake.write(channel, ANN, &format!("message {}", 2 * n));
            fake.order(order.clone());
            fake.write(channel, ANN, &format!("message {}", 2 * n + 1));
            until("both messages", || inbox.texts().len() == 2 * n + 2).await;
            until("a resumed session", || fake.resumed().len() > n).await;
            until("the connection is up", || inbox.is_up()).await;
        }
    })
    .await;
    assert_eq!(inbox.texts(), numbers(0..2 * count));
    assert_eq!(fake.identified().len(), 1);
    assert!(inbox.marks_fit());
}

#[tokio::test]
async fn rc_04_a_resume_that_fails_once_is_tried_again() {
    let fake = FakeDiscord::start();
    let inbox = Notebook::new();
    let channel = fake.channel("general");
    connected(&fake, &inbox, async {
        fake.refuse_next(Order::Cut);
        fake.refuse_next(Order::Close(4001));
        fake.refuse_next(Order::Deaf);
        fake.order(Order::Cut);
        fake.write(channel, ANN, "message 0");
        fake.beat(1000);
        until("it goes on", || inbox.texts().len() == 1).await;
    })
    .await;
    assert_eq!(fake.identified().len(), 1);
}

/// A conversation in a thread, in which something is said that no session hears of; the listening
/// begins with a session that Discord has forgotten.
async fn gap(end: impl Fn(&Running)) {
    let fake = FakeDiscord::start();
    let inbox = Notebook::new();
    let channel = fake.channel("general");
    let asked = fake.mention(channel, ANN, "start");
    fake.open(channel, asked, "start");
    let private = fake.direct();
    let newest = fake.write(private, ANN, "before");
    inbox.know(thread(channel, asked), asked);
    inbox.know(direct(private), newest);
    connected(&fake, &inbox, async {
        until("what it knows is looked through", || {
            fake.rest.calls("messages").len() == 2
        })
        .await;
    })
    .await;
    for n in 0..130 {
        fake.write_unheard(asked, ANN, &format!("message {n}"));
    }
    fake.write_unheard(private, BEN, "private");
    end(&fake);
    // One of the looks fails at first.
    fake.rest.fault("messages", [Fault::Cut, Fault::TooMany(1)]);
    connected(&fake, &inbox, async {
        fake.write(asked, ANN, "message 130");
        until("everything", || inbox.texts().len() == 132).await;
    })
    .await;
    let in_thread: Vec<String> = inbox
        .texts()
        .into_iter()
        .filter(|text| text.starts_with("message"))
        .collect();
    assert_eq!(
        in_thread,
        numbers(0..131),
        "in order, what comes live after what was missed"
    );
    let post = inbox
        .posts()
        .into_iter()
        .find(|post| post.text == "message 7")
        .expect("a post");
    assert_eq!(
        (post.thread, post.place),
        (thread(channel, asked), Place::Thread)
    );
    assert_eq!(post.roles, ["777"], "roles are asked for");
    // The mark is of the new session: it can be resumed.
    let resumed = fake.resumed().len();
    connected(&fake, &inbox, async {
        until("resumed", || fake.resumed().len() == resumed + 1).await;
    })
    .await;
}

#[tokio::test]
async fn rc_02_a_session_that_is_gone_is_caught_up() {
    gap(|fake| fake.forget_sessions()).await;
}

#[tokio::test]
async fn rc_02_a_session_that_is_over_is_caught_up() {
    gap(|fake| fake.refuse_next(Order::Close(4009))).await;
}

#[tokio::test]
async fn rc_07_identifies_keep_their_distance() {
    let fake = FakeDiscord::start();
    let inbox = Notebook::new();
    connected(&fake, &inbox, async {
        fake.forget_sessions();
        fake.order(Order::Cut);
        until("another session", || {
            fake.identified().len() == 2 && inbox.is_up()
        })
        .await;
    })
    .await;
    // The fake answers an early one with op 9, and there would be a third.
    let pause = fake.identified()[1].duration_since(fake.identified()[0]);
    assert!(pause >= Duration::from_secs(5), "{pause:?}");
}

#[tokio::test]
async fn codes_that_must_not_reconnect_end_with_the_way_out() {
    for (code, way_out) in [
        (4004, "DISCORD_BOT_TOKEN"),
        (4011, "4011"),
        (4013, "update Mayfly"),
        (4014, "MESSAGE CONTENT INTENT"),
    ] {
        let fake = FakeDiscord::start();
        let inbox = Notebook::new();
        fake.refuse_next(Order::Close(code));
        let end = tokio::time::timeout(super::PATIENCE, adapter(&fake).listen(&inbox)).await;
        let said = end.expect("it ends").expect_err("it ends with a sentence");
        assert!(said.contains(way_out), "{said}");
        assert_eq!(inbox.links(), [Link::Down(said)]);
        assert_eq!(fake.rest.calls("gateway").len(), 1);
    }
}

#[tokio::test]
async fn cf_02_a_missing_intent_ends_with_the_switch_to_set() {
    let fake = FakeDiscord::start();
    fake.grant_content(false);
    let inbox = Notebook::new();
    let end = tokio::time::timeout(super::PATIENCE, adapter(&fake).listen(&inbox)).await;
    let said = end.expect("it ends").expect_err("it ends with a sentence");
    let place = format!("/{}/bot", mayfly_tests::fake_discord::BOT);
    assert!(
        said.contains("MESSAGE CONTENT INTENT") && said.contains(&place),
        "{said}"
    );
}

/// With Discord's own 41 s between beats the silence that ends a connection is 52 s.
#[tokio::test]
async fn rc_02_a_half_open_connection_is_noticed_and_replaced() {
    let fake = FakeDiscord::start();
    fake.beat(1000);
    let inbox = Notebook::new();
    let channel = fake.channel("general");
    connected(&fake, &inbox, async {
        fake.order(Order::Deaf);
        until("nothing comes any more", || fake.deaf() == 1).await;
        fake.write(channel, ANN, "are you there?");
        until("it comes by another connection", || {
            inbox.texts() == ["are you there?"]
        })
        .await;
        until("up", || inbox.is_up()).await;
    })
    .await;
    assert!(
        matches!(inbox.links()[1], Link::Down(_)),
        "{:?}",
        inbox.links()
    );
    assert!(!fake.resumed().is_empty());
    assert_eq!(fake.identified().len(), 1);
}

/// The library notices at its second beat without an answer, after twice the time between two: ours is
/// what keeps Discord's 41 seconds within a minute.
#[tokio::test]
async fn rc_02_a_half_open_connection_is_noticed_by_our_own_deadline() {
    const BEAT: Duration = Duration::from_secs(6);
    let fake = FakeDiscord::start();
    fake.beat(6000);
    let inbox = Notebook::new();
    connected(&fake, &inbox, async {
        until("up", || inbox.is_up()).await;
        fake.order(Order::DeafAfterBeat);
        until("nothing comes any more", || fake.deaf() == 1).await;
        let since = tokio::time::Instant::now();
        until("it is noticed", || {
            inbox
                .links()
                .iter()
                .any(|link| matches!(link, Link::Down(_)))
        })
        .await;
        let after = since.elapsed();
        assert!(after > BEAT && after < 7 * BEAT / 4, "{after:?}");
    })
    .await;
}

#[tokio::test]
async fn ev_01_an_interaction_is_acknowledged_when_it_is_stored() {
    let fake = FakeDiscord::start();
    let inbox = Notebook::new();
    let channel = fake.direct();
    let message = fake.write(channel, ANN, "hello");
    fake.callback_within(super::PATIENCE);
    connected(&fake, &inbox, async {
        until("the first mark", || inbox.marked().is_some()).await;
        let permits = inbox
            .gate
            .forget_permits(tokio::sync::Semaphore::MAX_PERMITS);
        let asked = inbox.asked.load(Ordering::SeqCst);
        let kept = fake.press(message, "stop", ANN);
        until("it is on its way into the inbox", || {
            inbox.asked.load(Ordering::SeqCst) > asked
        })
        .await;
        // A moment in which one that does not wait for the inbox would be seen.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(fake.acknowledged(kept), None, "nothing is stored yet");
        inbox.gate.add_permits(permits);
        until("acknowledged", || fake.acknowledged(kept) == Some(6)).await;
        let asked = fake.command(channel, ANN, "status", "now");
        until("acknowledged", || fake.acknowledged(asked) == Some(5)).await;
        until("resolved", || !fake.whispered(asked).is_empty()).await;
        assert!(fake.whispered(asked)[0].contains("/status"));
        fake.rest.fault("callback", [Fault::Cut]);
        let again = fake.press(message, "stop", ANN);
        until("acknowledged at the second try", || {
            fake.acknowledged(again) == Some(6)
        })
        .await;
    })
    .await;
    let happened: Vec<Happened> = inbox
        .happened()
        .into_iter()
        .map(|event| event.happened)
        .collect();
    let pressed: Vec<_> = happened
        .iter()
        .filter(|happened| matches!(happened, Happened::Pressed(_)))
        .collect();
    assert_eq!(pressed.len(), 2);
    assert_eq!(inbox.texts(), ["/status now"]);
}

/// While a gap is caught up, a button does not wait.
#[tokio::test]
async fn ev_01_an_interaction_does_not_wait_for_a_gap() {
    let fake = FakeDiscord::start();
    let inbox = Notebook::new();
    let channel = fake.direct();
    let message = fake.write(channel, ANN, "hello");
    inbox.know(direct(channel), message);
    fake.callback_within(super::PATIENCE);
    fake.rest.fault("messages", [Fault::TooMany(300)]);
    connected(&fake, &inbox, async {
        until("the look is refused", || {
            !fake.rest.calls("messages").is_empty()
        })
        .await;
        fake.write(channel, ANN, "later");
        let press = fake.press(message, "stop", ANN);
        until("acknowledged", || fake.acknowledged(press) == Some(6)).await;
        assert_eq!(
            inbox.happened().len(),
            1,
            "the message waits for what came before it"
        );
        assert_eq!(inbox.marked(), None, "a crash now finds the gap again");
    })
    .await;
}

/// After a resume nobody tells which channels are threads.
#[tokio::test]
async fn th_03_a_thread_that_nobody_told_of_is_asked_for() {
    let fake = FakeDiscord::start();
    let inbox = Notebook::new();
    let channel = fake.channel("general");
    let asked = fake.mention(channel, ANN, "start");
    fake.open(channel, asked, "start");
    connected(&fake, &inbox, async {
        // The mark is past what the guild tells of its threads.
        fake.write(channel, ANN, "before");
        until("a mark", || inbox.texts().len() == 1).await;
    })
    .await;
    fake.rest
        .fault("channel", [Fault::Cut, Fault::Refused(502, String::new())]);
    connected(&fake, &inbox, async {
        fake.write(asked, ANN, "in the thread");
        until("it is stored", || inbox.texts().len() == 2).await;
    })
    .await;
    assert_eq!(
        fake.rest.calls("channel").len(),
        3,
        "it is asked until it is told"
    );
    let post = inbox.posts().remove(1);
    assert_eq!(
        (post.thread, post.place),
        (thread(channel, asked), Place::Thread)
    );
    assert_eq!(fake.identified().len(), 1);
}

#[tokio::test]
async fn ev_04_previews_and_own_posts_are_no_events_and_edits_are() {
    let fake = FakeDiscord::start();
    let inbox = Notebook::new();
    let channel = fake.direct();
    let discord = adapter(&fake);
    listening(&discord, &inbox, async {
        until("a connection", || inbox.is_up()).await;
        let message = fake.write(channel, ANN, "see https://example.test/a");
        fake.preview(message);
        let post = super::new_post(&direct(channel), "token", super::said(&discord, "our own"));
        discord.post(&post).await.expect("a post");
        fake.edit(message, "see https://example.test/b");
        fake.delete(message);
        until("three events", || inbox.happened().len() == 3).await;
        fake.write(channel, ANN, "the last");
        until("the last", || inbox.happened().len() == 4).await;
    })
    .await;
    let kinds: Vec<&str> = inbox
        .happened()
        .iter()
        .map(|event| match event.happened {
            Happened::Posted(_) => "posted",
            Happened::Edited(_) => "edited",
            Happened::Deleted(_) => "deleted",
            _ => "else",
        })
        .collect();
    assert_eq!(kinds, ["posted", "edited", "deleted", "posted"]);
}

#[tokio::test]
async fn what_is_not_understood_is_kept_and_nothing_stops() {
    let fake = FakeDiscord::start();
    let inbox = Notebook::new();
    let channel = fake.direct();
    connected(&fake, &inbox, async {
        fake.order(Order::Raw("{\"op\":".to_owned()));
        fake.order(Order::Raw(
            r#"{"op":0,"t":"MESSAGE_CREATE","s":"x","d":[]}"#.to_owned(),
        ));
        let large = format!(r#"{{"op":11,"d":"{}"}}"#, "x".repeat(10 << 20));
        fake.order(Order::Raw(large));
        until("two are kept", || inbox.not_understood().len() == 2).await;
        fake.write(channel, ANN, "still there?");
        until("the next message", || inbox.texts() == ["still there?"]).await;
    })
    .await;
    assert!(
        inbox
            .not_understood()
            .iter()
            .any(|(raw, _)| raw == b"{\"op\":")
    );
    assert_eq!(inbox.links(), [Link::Up]);
}
