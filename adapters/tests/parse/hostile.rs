//! Any bytes: an event or a reason, never a panic.

use mayfly_adapters::{discord, slack, telegram};
use mayfly_domain::{Event, Happened};
use proptest::prelude::*;
use serde_json::Value;

fn all(raw: &[u8]) -> [Event; 3] {
    let slack_me = slack::parse::Me {
        user: "U0BOT".to_owned(),
        app: "A0APP".to_owned(),
    };
    let telegram_me = telegram::parse::Me {
        id: "42".to_owned(),
        username: "mayfly_bot".to_owned(),
    };
    let parent = |_: &str| None;
    let known = discord::parse::Known {
        me: "42",
        parent: &parent,
    };
    discord::parse::deleted_in_bulk(raw);
    [
        slack::parse::parse(raw, &slack_me),
        discord::parse::parse(raw, &known),
        telegram::parse::parse(raw, &telegram_me),
    ]
}

const FIXTURES: [&str; 9] = [
    include_str!("../../fixtures/slack/message.json"),
    include_str!("../../fixtures/slack/reply_with_file.json"),
    include_str!("../../fixtures/slack/message_changed.json"),
    include_str!("../../fixtures/slack/block_actions.json"),
    include_str!("../../fixtures/discord/message_create.json"),
    include_str!("../../fixtures/discord/button.json"),
    include_str!("../../fixtures/telegram/topic_message.json"),
    include_str!("../../fixtures/telegram/album_item.json"),
    include_str!("../../fixtures/telegram/callback_query.json"),
];

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{1,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Puts `new` in place of the `n`th value within `value`.
fn replace(value: &mut Value, n: &mut usize, new: &Value) {
    if *n == 0 {
        *value = new.clone();
    }
    *n = n.wrapping_sub(1);
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, n, new)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace(field, n, new)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_survived(raw in prop::collection::vec(any::<u8>(), 0..200)) {
        all(&raw);
    }

    #[test]
    fn any_field_may_be_anything(fixture in 0usize..9, n in 0usize..60, new in any_json()) {
        let mut value: Value = serde_json::from_str(FIXTURES[fixture]).expect("a fixture");
        replace(&mut value, &mut n.clone(), &new);
        all(&serde_json::to_vec(&value).expect("JSON"));
    }

    #[test]
    fn any_beginning_of_an_event_is_unreadable(fixture in 0usize..9, cut in 0.0f64..0.99) {
        let raw = FIXTURES[fixture].trim_end();
        let end = (raw.len() as f64 * cut) as usize;
        let end = (0..=end).rev().find(|at| raw.is_char_boundary(*at)).expect("a boundary");
        for event in all(&raw.as_bytes()[..end]) {
            prop_assert_eq!(event.happened, Happened::Ignored("unreadable".to_owned()));
        }
    }
}

#[test]
fn deep_and_large_payloads_are_survived() {
    for open in ["[", "{\"payload\":", "{\"d\":", "{\"message\":"] {
        all(open.repeat(1_000_000).as_bytes());
    }
    let large = FIXTURES[6].replace("what next?", &"x".repeat(10 << 20));
    let [_, _, event] = all(large.as_bytes());
    let Happened::Posted(post) = event.happened else {
        panic!("a post");
    };
    assert!(post.text.len() > 10 << 20 && post.to_us);
}
