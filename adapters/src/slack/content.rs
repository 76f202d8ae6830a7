//! What posts say, as stored: `text` and `blocks` of a message, always both.

use mayfly_domain::chat::{Button, CallError, Content, Rendered};
use serde_json::{Map, Value, json};

use crate::text::{self, slack::Part};

/// Most characters of a line of ours; a section takes 3,000.
const MAX_LINE: usize = 2900;

/// A reply.
pub(super) fn reply(markdown: &str) -> Rendered {
    let part = |part: Part| {
        let block = json!({"type": "markdown", "text": part.markdown});
        content(&part.text, vec![block])
    };
    match text::slack::render(markdown) {
        text::Rendered::Parts(parts) => Rendered {
            parts: parts.into_iter().map(part).collect(),
            whole: None,
        },
        text::Rendered::Long { summary, file } => Rendered {
            parts: vec![part(summary)],
            whole: Some((file.name, file.content)),
        },
    }
}

/// A text of ours with buttons.
pub(super) fn line(text: &str, buttons: &[Button]) -> Content {
    let shown: String = match text.trim().is_empty() {
        true => "…".to_owned(),
        false => text.chars().take(MAX_LINE).collect(),
    };
    let section = json!({
        "type": "section",
        "text": {"type": "plain_text", "text": shown, "emoji": false},
    });
    let mut blocks = vec![section];
    if !buttons.is_empty() {
        let elements: Vec<Value> = buttons.iter().map(button).collect();
        blocks.push(json!({"type": "actions", "elements": elements}));
    }
    content(&escaped(&shown), blocks)
}

fn button(button: &Button) -> Value {
    let mut element = json!({
        "type": "button",
        "action_id": button.id,
        "value": button.id,
        "text": {"type": "plain_text", "text": button.label, "emoji": false},
    });
    if button.danger {
        element["style"] = json!("danger");
    }
    element
}

/// Nothing in it is a mention.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn content(text: &str, blocks: Vec<Value>) -> Content {
    Content(json!({"text": text, "blocks": blocks}).to_string())
}

/// The fields of a message that says this.
pub(super) fn fields(content: &Content) -> Result<Map<String, Value>, CallError> {
    match serde_json::from_str(&content.0) {
        Ok(Value::Object(fields)) => Ok(fields),
        _ => Err(CallError::Refused(
            "the stored text of this post is no message for Slack".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fm_06_a_line_with_mentions_pings_nobody() {
        let said = line("<!channel> <@U1> & more", &[]);
        let fields = fields(&said).unwrap();
        assert_eq!(fields["text"], "&lt;!channel&gt; &lt;@U1&gt; &amp; more");
        assert_eq!(fields["blocks"][0]["text"]["type"], "plain_text");
    }

    #[test]
    fn a_line_is_never_empty_or_longer_than_a_block_takes() {
        for text in ["", " ", &"x".repeat(5000)] {
            let said = line(text, &[]);
            let fields = fields(&said).unwrap();
            let shown = fields["blocks"][0]["text"]["text"].as_str().unwrap();
            assert!((1..=3000).contains(&shown.chars().count()));
        }
    }

    #[test]
    fn buttons_stand_in_a_block_of_their_own() {
        let stop = Button {
            id: "b-1".to_owned(),
            label: "Stop".to_owned(),
            danger: true,
        };
        let said = line("working", std::slice::from_ref(&stop));
        let fields = fields(&said).unwrap();
        let element = &fields["blocks"][1]["elements"][0];
        assert_eq!(
            (&element["value"], &element["style"]),
            (&json!("b-1"), &json!("danger"))
        );
    }
}
