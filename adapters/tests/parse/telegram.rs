use mayfly_adapters::telegram::parse::{Me, parse};
use mayfly_domain::{Event, Happened, Place};
use serde_json::{Value, json as value};

use super::{ignored, json, posted};

const TOPIC: &str = include_str!("../../fixtures/telegram/topic_message.json");
const ALBUM: &str = include_str!("../../fixtures/telegram/album_item.json");

fn of(update: &Value) -> Event {
    let me = Me {
        id: "42".to_owned(),
        username: "mayfly_bot".to_owned(),
    };
    parse(&serde_json::to_vec(update).expect("JSON"), &me)
}

#[test]
fn a_topic_is_a_thread_and_a_mention_is_found_behind_an_emoji() {
    let post = posted(of(&json(TOPIC)));
    assert_eq!(post.thread.to_string(), "telegram/42/-1001234567890/77");
    assert_eq!((post.place, post.to_us), (Place::Thread, true));
    assert_eq!(post.author.name, "Ann Lee");
    // The note that made the topic is no answer to us.
    assert_eq!(post.answers, None);
    let mut silent = json(TOPIC);
    silent["message"]["entities"] = value!([]);
    assert!(!posted(of(&silent)).to_us);
}

#[test]
fn th_04_the_general_topic_and_plain_replies_have_no_thread_number() {
    let mut general = json(TOPIC);
    general["message"]["message_thread_id"] = value!(1);
    assert_eq!(posted(of(&general)).thread.thread, "");
    let mut reply = json(TOPIC);
    reply["message"]["is_topic_message"] = value!(false);
    let reply = posted(of(&reply));
    assert_eq!(
        (reply.thread.thread.as_str(), reply.place),
        ("", Place::Channel)
    );
    let Happened::Pressed(press) = of(&json(include_str!(
        "../../fixtures/telegram/callback_query.json"
    )))
    .happened
    else {
        panic!("a press");
    };
    assert_eq!(press.thread.thread, "77");
    assert_eq!(
        (press.button.as_str(), press.answer_to.as_str()),
        ("one-shot-7", "4382")
    );
}

#[test]
fn th_08_both_notes_of_a_move_say_the_same_and_start_nothing() {
    let to = of(&json(include_str!(
        "../../fixtures/telegram/migrate_to.json"
    )));
    let from = of(&json(include_str!(
        "../../fixtures/telegram/migrate_from.json"
    )));
    assert_eq!(to, from);
    let Happened::Moved { from, to } = to.happened else {
        panic!("a move");
    };
    assert_eq!(
        (from.channel.as_str(), to.channel.as_str()),
        ("-555", "-1001234567890")
    );
}

#[test]
fn ev_06_the_key_is_the_posts_and_not_the_updates() {
    let mut again = json(TOPIC);
    again["update_id"] = value!(3);
    assert_eq!(of(&again), of(&json(TOPIC)));
}

#[test]
fn ev_07_a_post_has_the_time_at_which_it_was_written() {
    assert_eq!(posted(of(&json(TOPIC))).at, 1_700_000_000_000);
}

#[test]
fn ev_09_own_anonymous_and_system_posts_are_told_apart() {
    let mut own = json(TOPIC);
    own["message"]["from"] = value!({"id": 42, "is_bot": true, "first_name": "bot"});
    ignored(of(&own), "own");
    let mut via = json(TOPIC);
    via["message"]["via_bot"] = value!({"id": 42, "is_bot": true});
    ignored(of(&via), "own");
    let mut bot = json(TOPIC);
    bot["message"]["from"]["is_bot"] = value!(true);
    assert!(posted(of(&bot)).by_bot);
    let mut anonymous = json(TOPIC);
    anonymous["message"]["sender_chat"] = value!({"id": -1});
    ignored(of(&anonymous), "anonymous");
    for field in ["new_chat_members", "pinned_message", "forum_topic_created"] {
        let mut system = json(TOPIC);
        system["message"][field] = value!({});
        ignored(of(&system), "system");
    }
}

#[test]
fn fi_03_an_albums_items_name_their_group() {
    let item = posted(of(&json(ALBUM)));
    assert_eq!(
        (item.group.as_deref(), item.text.as_str()),
        (Some("g-1"), "these")
    );
    assert_eq!((item.files.len(), item.files[0].id.as_str()), (1, "large"));
    assert_eq!((item.place, item.to_us), (Place::Direct, true));
}

#[test]
fn edits_name_the_post_and_their_time() {
    let edited = of(&json(include_str!(
        "../../fixtures/telegram/edited_message.json"
    )));
    assert_eq!(edited.key, "edited 11 31 1700000050");
    assert!(matches!(edited.happened, Happened::Edited(_)));
}

#[test]
fn commands_of_others_are_not_ours() {
    let mut command = json(TOPIC);
    let mut to_us = |text: &str| {
        command["message"]["text"] = value!(text);
        let length = text.split(' ').next().map_or(0, str::len);
        command["message"]["entities"] =
            value!([{"type": "bot_command", "offset": 0, "length": length}]);
        let post = posted(of(&command));
        (post.to_us, post.text)
    };
    assert_eq!(
        to_us("/status@Mayfly_bot now"),
        (true, "/status now".to_owned())
    );
    assert_eq!(to_us("/status"), (true, "/status".to_owned()));
    assert_eq!(
        to_us("/status@other_bot"),
        (false, "/status@other_bot".to_owned())
    );
}

#[test]
fn odd_entities_name_nobody() {
    for (offset, length) in [(-1, 5), (1, 5), (0, i64::MAX), (i64::MAX, 1)] {
        let mut odd = json(TOPIC);
        odd["message"]["entities"] =
            value!([{"type": "mention", "offset": offset, "length": length}]);
        assert!(!posted(of(&odd)).to_us);
    }
}

#[test]
fn se_07_a_forward_names_its_writer_and_a_quote_is_left_out() {
    let of_origin = |origin: Value| {
        let mut update = json(TOPIC);
        update["message"]["forward_origin"] = origin;
        posted(of(&update)).words_of
    };
    let eve = value!({"type": "user", "sender_user": {"id": 66, "first_name": "Eve"}});
    let writer = of_origin(eve).expect("a writer");
    assert_eq!((writer.id.as_str(), writer.name.as_str()), ("66", "Eve"));
    let hidden = value!({"type": "hidden_user", "sender_user_name": "Shy"});
    let writer = of_origin(hidden).expect("a writer");
    assert_eq!(
        (writer.id.as_str(), writer.name.as_str()),
        ("unknown", "Shy")
    );
    let channel = value!({"type": "channel", "chat": {"id": -7, "title": "News"}});
    assert_eq!(of_origin(channel).expect("a writer").id, "-7");
    assert!(of_origin(value!({"type": "new kind"})).is_some());
    // What is one's own stays one's own.
    let own = value!({"type": "user", "sender_user": {"id": 11, "first_name": "Ann"}});
    assert_eq!(of_origin(own), None);
    let mut quoting = json(TOPIC);
    quoting["message"]["reply_to_message"] = value!({"message_id": 29, "date": 1,
        "from": {"id": 66, "is_bot": false, "first_name": "Eve"}, "text": "words of a stranger"});
    quoting["message"]["quote"] = value!({"text": "words of a stranger", "position": 0});
    let post = posted(of(&quoting));
    assert!(!post.text.contains("stranger"), "{}", post.text);
    assert_eq!(post.words_of, None);
}
