use mayfly_adapters::discord::parse::{Known, deleted_in_bulk, parse};
use mayfly_domain::{Event, Happened, Place};
use serde_json::{Value, json as value};

use super::{ignored, json, posted};

const CREATE: &str = include_str!("../../fixtures/discord/message_create.json");

/// Channel 600 is a thread in 500.
fn of(frame: &Value) -> Event {
    let parent = |channel: &str| (channel == "600").then(|| "500".to_owned());
    let known = Known {
        me: "42",
        parent: &parent,
    };
    parse(&serde_json::to_vec(frame).expect("JSON"), &known)
}

#[test]
fn a_mention_opens_the_thread_that_has_its_id() {
    let post = posted(of(&json(CREATE)));
    assert_eq!(
        post.thread.to_string(),
        "discord/900/500/1186712345678901248"
    );
    assert_eq!((post.place, post.to_us), (Place::Channel, true));
    assert_eq!(post.text, "what next? <@77>");
    assert_eq!((post.author.name.as_str(), post.roles.len()), ("Annie", 2));
    assert_eq!(post.files[0].name, "log.txt");
    // 2023-12-19T15:..: the time within the id.
    assert_eq!(post.at / 86_400_000, 19_710);
}

#[test]
fn what_is_said_in_the_thread_belongs_to_it() {
    let mut reply = json(CREATE);
    reply["d"]["channel_id"] = value!("600");
    reply["d"]["mentions"] = value!([]);
    let post = posted(of(&reply));
    assert_eq!(post.thread.to_string(), "discord/900/500/600");
    assert_eq!((post.place, post.to_us), (Place::Thread, false));
}

#[test]
fn th_07_a_direct_message_needs_no_mention() {
    let mut direct = json(CREATE);
    direct["d"]["guild_id"] = Value::Null;
    direct["d"]["mentions"] = value!([]);
    let post = posted(of(&direct));
    assert_eq!((post.place, post.to_us), (Place::Direct, true));
    assert_eq!(post.thread.to_string(), "discord//500/");
}

#[test]
fn ev_01_a_replay_after_resume_has_the_key_of_the_first() {
    let mut again = json(CREATE);
    again["s"] = value!(99);
    assert_eq!(of(&again), of(&json(CREATE)));
}

#[test]
fn ev_04_a_preview_is_no_edit() {
    let mut update = json(CREATE);
    update["t"] = value!("MESSAGE_UPDATE");
    ignored(of(&update), "not_an_edit");
    update["d"]["edited_timestamp"] = value!("2023-12-19T15:00:00Z");
    let first = of(&update);
    assert!(matches!(first.happened, Happened::Edited(_)));
    update["d"]["edited_timestamp"] = value!("2023-12-19T15:01:00Z");
    assert_ne!(of(&update).key, first.key);
}

#[test]
fn ev_09_own_bot_and_system_posts_are_told_apart() {
    let mut own = json(CREATE);
    own["d"]["author"]["id"] = value!("42");
    ignored(of(&own), "own");
    let mut hook = json(CREATE);
    hook["d"]["webhook_id"] = value!("5");
    ignored(of(&hook), "bot");
    let mut bot = json(CREATE);
    bot["d"]["author"]["bot"] = value!(true);
    assert!(posted(of(&bot)).by_bot);
    for kind in [6, 7, 18, 20, 21, 46] {
        let mut system = json(CREATE);
        system["d"]["type"] = value!(kind);
        ignored(of(&system), "system");
    }
}

#[test]
fn cf_02_a_post_without_content_starts_nothing() {
    let mut empty = json(CREATE);
    empty["d"]["content"] = value!("");
    empty["d"]["attachments"] = value!([]);
    ignored(of(&empty), "empty");
}

#[test]
fn everyone_is_not_us_and_an_answer_to_us_is() {
    let mut all = json(CREATE);
    all["d"]["mentions"] = value!([]);
    all["d"]["mention_everyone"] = value!(true);
    assert!(!posted(of(&all)).to_us);
    let mut reply = all.clone();
    reply["d"]["type"] = value!(19);
    reply["d"]["message_reference"] = value!({"message_id": "700"});
    reply["d"]["referenced_message"] = value!({"id": "700", "author": {"id": "42"}});
    let post = posted(of(&reply));
    assert_eq!((post.to_us, post.answers.as_deref()), (true, Some("700")));
}

#[test]
fn deletions_name_their_posts() {
    let delete = value!({"op": 0, "t": "MESSAGE_DELETE", "s": 1, "d": {"id": "1186712345678901248", "channel_id": "500", "guild_id": "900"}});
    assert_eq!(
        of(&delete).happened,
        Happened::Deleted(posted(of(&json(CREATE))).id)
    );
    let bulk = value!({"op": 0, "t": "MESSAGE_DELETE_BULK", "s": 1, "d": {"ids": ["1", "2"], "channel_id": "500", "guild_id": "900"}});
    let events = deleted_in_bulk(&serde_json::to_vec(&bulk).expect("JSON"));
    let keys: Vec<&str> = events.iter().map(|event| event.key.as_str()).collect();
    assert_eq!(keys, ["deleted 1", "deleted 2"]);
}

#[test]
fn interactions_say_what_has_to_be_answered() {
    let Happened::Pressed(press) =
        of(&json(include_str!("../../fixtures/discord/button.json"))).happened
    else {
        panic!("a press");
    };
    assert_eq!(press.answer_to, "3001 interaction-token");
    assert_eq!(
        (press.button.as_str(), press.by.name.as_str()),
        ("one-shot-7", "ann")
    );
    assert_eq!(press.thread.to_string(), "discord/900/500/600");
    let command = posted(of(&json(include_str!(
        "../../fixtures/discord/command.json"
    ))));
    assert_eq!(
        (command.text.as_str(), command.place),
        ("/diff 3", Place::Direct)
    );
}

#[test]
fn what_is_no_event_is_told_apart() {
    ignored(of(&value!({"op": 11})), "protocol");
    ignored(of(&value!({"op": 0, "t": "READY", "d": {}})), "protocol");
    ignored(
        of(&value!({"op": 0, "t": "SOUNDBOARD_SOUNDS", "d": {}})),
        "unknown",
    );
    ignored(of(&value!([])), "unreadable");
}

#[test]
fn se_07_what_an_answered_or_forwarded_post_says_is_left_out() {
    let mut frame = json(CREATE);
    let stranger = value!({"id": "1", "channel_id": "500", "content": "words of a stranger",
        "author": {"id": "66", "username": "eve"}});
    frame["d"]["referenced_message"] = stranger.clone();
    frame["d"]["message_snapshots"] = value!([{"message": stranger}]);
    let post = posted(of(&frame));
    assert!(!format!("{post:?}").contains("stranger"), "{post:?}");
}
