use mayfly_adapters::slack::parse::{Me, parse};
use mayfly_domain::{Event, Happened, Place, Twin};
use serde_json::{Value, json as value};

use super::{ignored, json, posted};

fn me() -> Me {
    Me {
        user: "U0BOT".to_owned(),
        app: "A0APP".to_owned(),
    }
}

fn of(frame: &Value) -> Event {
    parse(&serde_json::to_vec(frame).expect("JSON"), &me())
}

/// A fixture's event, for changing it.
fn event(frame: &mut Value) -> &mut Value {
    if frame.get("payload").is_some() {
        &mut frame["payload"]["event"]
    } else {
        &mut frame["event"]
    }
}

const MESSAGE: &str = include_str!("../../fixtures/slack/message.json");
const MENTION: &str = include_str!("../../fixtures/slack/app_mention.json");
const REPLY: &str = include_str!("../../fixtures/slack/reply_with_file.json");
const CHANGED: &str = include_str!("../../fixtures/slack/message_changed.json");
const DELETED: &str = include_str!("../../fixtures/slack/message_deleted.json");

#[test]
fn a_mention_opens_a_thread_and_reads_as_it_was_written() {
    let post = posted(of(&json(MESSAGE)));
    assert_eq!(post.thread.to_string(), "slack/T1/C1/1700000000.000100");
    assert_eq!(
        (post.place, post.to_us, post.by_bot),
        (Place::Channel, true, false)
    );
    assert_eq!(post.text, "what <next>? see https://x.io/a and @ben");
    assert_eq!(post.at, 1_700_000_000_000);
}

#[test]
fn ev_01_a_redelivery_has_the_key_of_the_first() {
    let first = of(&json(MESSAGE));
    let mut again = json(MESSAGE);
    again["envelope_id"] = value!("e-9");
    again["retry_attempt"] = value!(3);
    again["retry_reason"] = value!("timeout");
    assert_eq!(of(&again), first);
    assert_eq!(first.key, "Ev1");
}

#[test]
fn ev_02_both_events_of_a_mention_are_one_post_that_speaks_to_us() {
    let (message, mention) = (of(&json(MESSAGE)), of(&json(MENTION)));
    assert_ne!(message.key, mention.key);
    let (message, mention) = (posted(message), posted(mention));
    assert_eq!((message.id, message.thread), (mention.id, mention.thread));
    assert!(message.to_us && mention.to_us);
    assert_eq!(
        (message.twin, mention.twin),
        (Some(Twin::Message), Some(Twin::Mention))
    );
    assert_eq!(message.text, mention.text);
}

#[test]
fn ev_04_a_preview_is_no_edit_and_an_edit_is_no_post() {
    let mut preview = json(CHANGED);
    let old = preview["event"]["previous_message"]["text"].clone();
    preview["event"]["message"]["text"] = old;
    preview["event"]["message"]["attachments"] = value!([{"id": 1}]);
    ignored(of(&preview), "not_an_edit");
    let Happened::Edited(edit) = of(&json(CHANGED)).happened else {
        panic!("an edit");
    };
    assert_eq!(
        (edit.id.id.as_str(), edit.text.as_str()),
        ("1700000000.000100", "what now?")
    );
    assert_eq!(edit.author.id, "U1");
    let mut mention = json(MENTION);
    event(&mut mention)["edited"] = value!({"user": "U1", "ts": "1700000070.000000"});
    assert!(matches!(of(&mention).happened, Happened::Edited(_)));
    // Our own progress, edited.
    let mut ours = json(CHANGED);
    ours["event"]["message"]["user"] = value!("U0BOT");
    ignored(of(&ours), "own");
}

#[test]
fn ev_09_own_bot_and_system_posts_are_told_apart() {
    let mut own = json(MESSAGE);
    event(&mut own)["user"] = value!("U0BOT");
    ignored(of(&own), "own");
    let mut own = json(MESSAGE);
    event(&mut own)["bot_id"] = value!("B1");
    event(&mut own)["app_id"] = value!("A0APP");
    ignored(of(&own), "own");
    let mut other = json(MESSAGE);
    event(&mut other)["bot_id"] = value!("B2");
    assert!(posted(of(&other)).by_bot);
    for subtype in [
        "channel_join",
        "channel_topic",
        "pinned_item",
        "message_replied",
    ] {
        let mut system = json(MESSAGE);
        event(&mut system)["subtype"] = value!(subtype);
        ignored(of(&system), "system");
    }
}

#[test]
fn th_01_equal_times_in_two_channels_are_two_conversations() {
    let one = posted(of(&json(MESSAGE)));
    let mut two = json(MESSAGE);
    event(&mut two)["channel"] = value!("C2");
    let two = posted(of(&two));
    assert_ne!(one.thread, two.thread);
    assert_ne!(one.id, two.id);
}

#[test]
fn th_07_a_strangers_thread_does_not_speak_to_us_and_a_direct_message_does() {
    let reply = posted(of(&json(REPLY)));
    assert_eq!((reply.place, reply.to_us), (Place::Thread, false));
    let mut direct = json(MESSAGE);
    event(&mut direct)["channel"] = value!("D1");
    event(&mut direct)["channel_type"] = value!("im");
    event(&mut direct)["text"] = value!("hello");
    let direct = posted(of(&direct));
    assert_eq!((direct.place, direct.to_us), (Place::Direct, true));
    assert_eq!(direct.thread.to_string(), "slack/T1/D1/");
    assert_eq!(direct.twin, None);
}

#[test]
fn fi_06_a_stub_from_a_shared_channel_has_to_be_asked_for() {
    let reply = posted(of(&json(REPLY)));
    assert_eq!(reply.thread.thread, "1700000000.000100");
    let [whole, stub] = reply.files.as_slice() else {
        panic!("two files");
    };
    assert_eq!((whole.name.as_str(), whole.size), ("log.txt", Some(12)));
    assert!(
        whole
            .url
            .as_deref()
            .is_some_and(|url| url.contains("/download/"))
    );
    assert_eq!((stub.id.as_str(), stub.url.as_ref()), ("F2", None));
}

#[test]
fn a_deletion_names_the_post() {
    let Happened::Deleted(post) = of(&json(DELETED)).happened else {
        panic!("a deletion");
    };
    assert_eq!(post, posted(of(&json(MESSAGE))).id);
}

#[test]
fn a_press_says_which_button_where_and_by_whom() {
    let raw = include_str!("../../fixtures/slack/block_actions.json");
    let Happened::Pressed(press) = of(&json(raw)).happened else {
        panic!("a press");
    };
    assert_eq!(
        (press.button.as_str(), press.by.id.as_str()),
        ("one-shot-7", "U1")
    );
    assert_eq!(press.thread.thread, "1700000000.000100");
    assert_eq!(press.on.id, "1700000090.000500");
    assert_eq!(of(&json(raw)).key, of(&json(raw)).key);
    let mut again = json(raw);
    again["payload"]["actions"][0]["action_ts"] = value!("1700000096.000000");
    assert_ne!(of(&again).key, of(&json(raw)).key);
}

#[test]
fn a_native_command_speaks_to_us() {
    let post = posted(of(&json(include_str!(
        "../../fixtures/slack/slash_command.json"
    ))));
    assert_eq!(
        (post.text.as_str(), post.to_us),
        ("/mayfly status all", true)
    );
    // There is no message to hang a thread on.
    assert_eq!(
        (post.place, post.thread.thread.as_str()),
        (Place::Channel, "")
    );
}

#[test]
fn what_is_no_event_is_told_apart() {
    ignored(
        of(&value!({"type": "hello", "num_connections": 1})),
        "protocol",
    );
    ignored(
        of(&value!({"type": "disconnect", "reason": "warning"})),
        "protocol",
    );
    let mut unknown = json(MESSAGE);
    event(&mut unknown)["type"] = value!("agent_session_stopped");
    assert_eq!(of(&unknown).key, "Ev1");
    ignored(of(&unknown), "unknown");
    ignored(parse(b"\xff{", &me()), "unreadable");
}

#[test]
fn se_07_what_a_shared_post_or_a_preview_says_is_left_out() {
    let mut frame = json(MESSAGE);
    event(&mut frame)["attachments"] = value!([{"is_share": true, "author_id": "U66",
        "text": "words of a stranger", "fallback": "words of a stranger",
        "files": [{"id": "F66", "name": "stranger.txt", "url_private": "https://files.slack.com/x"}]}]);
    let post = posted(of(&frame));
    assert!(!format!("{post:?}").contains("stranger"), "{post:?}");
}
