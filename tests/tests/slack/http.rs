//! Events by HTTP requests.

use mayfly_adapters::{
    signature::Refused,
    slack::{HttpAnswer, http_event},
};
use mayfly_domain::{Happened, Place};
use mayfly_tests::fake_slack::{SIGNING_SECRET, signed};

use crate::{bot, fake};

const NOW: i64 = 1_700_000_000;
const FORM: &str = "application/x-www-form-urlencoded";

fn asked(kind: &str, body: &str, at: i64, now: i64) -> Result<HttpAnswer, Refused> {
    let signature = signed(at, body.as_bytes());
    given(&[("x-slack-signature", &signature)], kind, body, at, now)
}

fn given(
    more: &[(&'static str, &str)],
    kind: &str,
    body: &str,
    at: i64,
    now: i64,
) -> Result<HttpAnswer, Refused> {
    let mut headers = hyper::HeaderMap::new();
    headers.append("content-type", kind.parse().unwrap());
    headers.append("x-slack-request-timestamp", at.to_string().parse().unwrap());
    for (name, value) in more {
        headers.append(*name, value.parse().unwrap());
    }
    http_event(&headers, body.as_bytes(), SIGNING_SECRET.as_bytes(), now)
}

fn event(kind: &str, body: &str) -> Vec<u8> {
    match asked(kind, body, NOW, NOW) {
        Ok(HttpAnswer::Event(raw)) => raw,
        other => panic!("{other:?}"),
    }
}

#[test]
fn slack_asks_whether_we_are_there() {
    let body = r#"{"type":"url_verification","token":"t","challenge":"3eZbrw1aB"}"#;
    let challenge = HttpAnswer::Challenge("3eZbrw1aB".to_owned());
    assert_eq!(asked("application/json", body, NOW, NOW), Ok(challenge));
}

#[tokio::test]
async fn events_presses_and_commands_are_read_as_those_of_a_socket() {
    let fake = fake();
    let slack = bot(&fake);
    let message = r#"{"type":"event_callback","team_id":"T1","api_app_id":"A0APP","event_id":"Ev1","event":{"type":"app_mention","channel":"C1","user":"U1","text":"<@U0BOT> hi","ts":"1700000000.000100"}}"#;
    let press = form_urlencoded::Serializer::new(String::new())
        .append_pair("payload", r#"{"type":"block_actions","team":{"id":"T1"},"user":{"id":"U1"},"channel":{"id":"C1"},"container":{"message_ts":"1.000001"},"actions":[{"action_id":"a","value":"b-1","action_ts":"2.1"}]}"#)
        .finish();
    let command = "team_id=T1&channel_id=C1&user_id=U1&user_name=ann&command=%2Fmayfly&text=status+all&trigger_id=1.2.3";
    let mut told = Vec::new();
    for (kind, body) in [
        ("application/json", message),
        (FORM, &press),
        (FORM, command),
    ] {
        let incoming = slack.incoming(event(kind, body)).await.unwrap();
        told.push(incoming.event.unwrap().happened);
    }
    let [
        Happened::Posted(post),
        Happened::Pressed(pressed),
        Happened::Posted(command),
    ] = &told[..]
    else {
        panic!("{told:?}");
    };
    assert_eq!(
        (post.text.as_str(), post.place, post.to_us),
        ("hi", Place::Channel, true)
    );
    assert_eq!(pressed.button, "b-1");
    assert_eq!(
        (command.text.as_str(), command.author.name.as_str()),
        ("/mayfly status all", "ann")
    );
    assert_eq!(fake.calls("auth.test"), 1);
}

#[test]
fn what_slack_signed_and_is_no_event_is_unreadable() {
    let json = "application/json";
    for (kind, body) in [
        (json, "{\"type\":"),
        (json, ""),
        (json, "[1]"),
        (json, "\u{feff}{}"),
        (FORM, "payload=%7B"),
        (FORM, "payload=7"),
    ] {
        assert_eq!(
            asked(kind, body, NOW, NOW),
            Ok(HttpAnswer::Unreadable),
            "{body}"
        );
    }
}

#[test]
fn what_slack_did_not_send_now_is_refused() {
    let body = r#"{"type":"event_callback"}"#;
    let json = "application/json";
    assert!(asked(json, body, NOW, NOW + 300).is_ok());
    assert_eq!(asked(json, body, NOW, NOW + 301), Err(Refused::Stale(301)));
    let good = signed(NOW, body.as_bytes());
    let signature = "x-slack-signature";
    let one = [(signature, good.as_str())];
    assert_eq!(given(&one, json, "{}", NOW, NOW), Err(Refused::Wrong));
    let two = [one[0], one[0]];
    assert!(matches!(
        given(&two, json, body, NOW, NOW),
        Err(Refused::Twice(_))
    ));
    assert!(matches!(
        given(&[], json, body, NOW, NOW),
        Err(Refused::Missing(_))
    ));
    // A body that is not signed is not even asked for a challenge.
    let challenge = r#"{"type":"url_verification","challenge":"x"}"#;
    assert_eq!(given(&one, json, challenge, NOW, NOW), Err(Refused::Wrong));
}
