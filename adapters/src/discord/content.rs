//! What a message says, as the JSON that Discord takes, and what it is known by.

use mayfly_domain::chat::{Button, CallError, Content, Rendered};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::{
    json::{at, id, items, text},
    text::discord,
};

/// Discord takes no longer nonce.
const NONCE: usize = 25;
/// Most buttons in a row, and rows.
const ROW: usize = 5;

/// A reply's parts.
pub(crate) fn render(markdown: &str) -> Rendered {
    let said = |part: discord::Part| Content(json!({"content": part.content}).to_string());
    match discord::render(markdown) {
        crate::text::Rendered::Parts(parts) => Rendered {
            parts: parts.into_iter().map(said).collect(),
            whole: None,
        },
        crate::text::Rendered::Long { summary, file } => Rendered {
            parts: vec![said(summary)],
            whole: Some((file.name, file.content)),
        },
    }
}

/// A text of ours with buttons.
pub(crate) fn line(text: &str, buttons: &[Button]) -> Content {
    let row = |buttons: &[Button]| {
        let buttons: Vec<Value> = buttons.iter().map(button).collect();
        json!({"type": 1, "components": buttons})
    };
    let rows: Vec<Value> = buttons.chunks(ROW).take(ROW).map(row).collect();
    Content(json!({"content": literal(text), "components": rows}).to_string())
}

fn button(button: &Button) -> Value {
    let label: String = button.label.chars().take(80).collect();
    json!({
        "type": 2, "style": if button.danger { 4 } else { 2 },
        "label": label, "custom_id": button.id,
    })
}

/// Text that is shown as it is; addresses stay links.
pub(crate) fn literal(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for word in text.split_inclusive(char::is_whitespace) {
        let address = word.starts_with("https://") || word.starts_with("http://");
        for c in word.chars() {
            if !address && "\\*_~|`<>[]#".contains(c) {
                shown.push('\\');
            }
            shown.push(c);
        }
    }
    if shown.chars().count() <= discord::MAX_CONTENT {
        return shown;
    }
    let cut: String = shown.chars().take(discord::MAX_CONTENT - 1).collect();
    format!("{}…", cut.trim_end_matches('\\'))
}

/// The identity that Discord joins repeated posts by.
pub(crate) fn nonce(token: &str) -> String {
    let mut nonce = hex::encode(Sha256::digest(token));
    nonce.truncate(NONCE);
    nonce
}

/// Two characters that nobody sees and Discord keeps.
const BITS: [char; 2] = ['\u{200b}', '\u{200c}'];

/// What a post is known by when its nonce is told no more: 32 bits that nobody sees.
pub(crate) fn mark(nonce: &str) -> String {
    let bits = nonce.chars().take(8).filter_map(|digit| digit.to_digit(16));
    let bit = |digit: u32, n: u32| BITS[(digit >> n & 1) as usize];
    bits.flat_map(|digit| (0..4).map(move |n| bit(digit, n)))
        .collect()
}

/// Puts the mark behind the words, where there are no buttons, whose ids are as good, and where it
/// fits. An edit takes it away.
pub(crate) fn marked(fields: &mut Map<String, Value>, nonce: &str) {
    let Some(said) = fields.get("content").and_then(Value::as_str) else {
        return;
    };
    let said = format!("{said}{}", mark(nonce));
    let plain = buttons(&Value::Object(fields.clone())).is_empty();
    if plain && said.chars().count() <= discord::MAX_CONTENT {
        fields.insert("content".to_owned(), said.into());
    }
}

/// The stored content as fields of a request that pings nobody.
pub(crate) fn fields(content: &Content) -> Result<Map<String, Value>, CallError> {
    let Ok(Value::Object(mut fields)) = serde_json::from_str(&content.0) else {
        return Err(CallError::Refused(
            "the stored text of this post is not Discord's".to_owned(),
        ));
    };
    fields.insert("allowed_mentions".to_owned(), nobody());
    Ok(fields)
}

/// Nobody is notified, also not the author of the message that is answered.
pub(crate) fn nobody() -> Value {
    json!({"parse": [], "replied_user": false})
}

/// Whether a message says what would be posted, mark included. Discord cuts white space off.
pub(crate) fn same(message: &Value, fields: &Map<String, Value>) -> bool {
    let wanted = fields
        .get("content")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let said = text(message, &["content"]).unwrap_or_default();
    let posted = Value::Object(fields.clone());
    at(message, &["edited_timestamp"]).is_none()
        && said.trim() == wanted.trim()
        && buttons(message) == buttons(&posted)
        && items(message, &["attachments"]).next().is_none()
}

fn buttons(message: &Value) -> Vec<String> {
    let rows = items(message, &["components"]);
    let buttons = rows.flat_map(|row| items(row, &["components"]));
    buttons
        .filter_map(|button| id(button, &["custom_id"]))
        .collect()
}

/// A thread's name from what its first message says: one line of 1 to 100 characters.
pub(crate) fn thread_name(said: &str) -> String {
    let mut words = String::new();
    let mut rest = said;
    // Mentions are numbers: they name nobody.
    while let Some(start) = rest.find("<@") {
        words.push_str(&rest[..start]);
        let after = &rest[start..];
        match after.find('>') {
            Some(end) => rest = &after[end + 1..],
            None => break,
        }
    }
    words.push_str(rest);
    let line = words.trim().lines().next().unwrap_or_default();
    let name: String = crate::names::shown(line).chars().take(100).collect();
    if name.trim().is_empty() {
        return "Conversation".to_owned();
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn th_06_every_text_gives_a_name_of_1_to_100_characters() {
        let name = |said: &str| thread_name(said);
        assert_eq!(name("<@42> what next?\nmore"), "what next?");
        assert_eq!(name("<@!42>"), "Conversation");
        assert_eq!(name(" \u{200b}\u{200b} "), "Conversation");
        for said in [
            "x".repeat(101),
            "👨‍👩‍👧‍👦".repeat(101),
            "<@".repeat(300),
            String::new(),
        ] {
            let length = name(&said).chars().count();
            assert!((1..=100).contains(&length), "{length}");
        }
    }

    #[test]
    fn a_line_of_ours_shows_as_it_is_with_its_buttons() {
        let button = |n: usize| Button {
            id: format!("id-{n}"),
            label: "Stop".to_owned(),
            danger: n == 0,
        };
        let buttons: Vec<Button> = (0..6).map(button).collect();
        let content = line("**a** <@1> see https://x.io/a_b now", &buttons);
        let value: Value = serde_json::from_str(&content.0).expect("JSON");
        assert_eq!(
            value["content"],
            r"\*\*a\*\* \<@1\> see https://x.io/a_b now"
        );
        assert_eq!(
            value["components"][0]["components"]
                .as_array()
                .expect("a row")
                .len(),
            5
        );
        assert_eq!(value["components"][0]["components"][0]["style"], 4);
        assert_eq!(value["components"][1]["components"][0]["custom_id"], "id-5");
        assert!(literal(&"*".repeat(3000)).chars().count() <= 2000);
    }

    #[test]
    fn a_nonce_is_short_and_each_tokens_own() {
        assert_eq!(nonce("a").len(), NONCE);
        assert_eq!(nonce("a"), nonce("a"));
        assert_ne!(nonce("a"), nonce("b"));
        assert_eq!(mark(&nonce("a")).chars().count(), 32);
        assert_ne!(mark(&nonce("a")), mark(&nonce("b")));
        let Ok(mut long) = fields(&Content(
            serde_json::json!({"content": "x".repeat(2000)}).to_string(),
        )) else {
            panic!("fields");
        };
        marked(&mut long, &nonce("a"));
        assert_eq!(long["content"], "x".repeat(2000));
    }
}
