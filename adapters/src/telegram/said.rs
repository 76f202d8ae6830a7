//! What a post says, as it is stored and sent.

use mayfly_domain::chat::{Button, CallError, Content, Rendered};
use serde::{Deserialize, Serialize};
use teloxide_core::types::{InlineKeyboardButton, InlineKeyboardMarkup};

use crate::text::{self, telegram as markdown};

/// Buttons beside each other.
const ROW: usize = 3;
/// Most bytes a button carries.
const MAX_DATA: usize = 64;

/// A post's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Said {
    /// With tags, where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) html: Option<String>,
    /// Without, for when the tags are refused.
    pub(crate) plain: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) buttons: Vec<Button>,
}

impl Said {
    pub(crate) fn read(content: &Content) -> Result<Said, CallError> {
        serde_json::from_str(&content.0)
            .map_err(|error| CallError::Refused(format!("a post's content is unreadable: {error}")))
    }

    fn content(&self) -> Content {
        Content(serde_json::to_string(self).expect("text is always JSON"))
    }

    /// The buttons; ids that Telegram would not carry are a fault of ours.
    pub(crate) fn keyboard(&self) -> Result<Option<InlineKeyboardMarkup>, CallError> {
        if let Some(button) = self
            .buttons
            .iter()
            .find(|button| button.id.is_empty() || button.id.len() > MAX_DATA)
        {
            return Err(CallError::Refused(format!(
                "the button \"{}\" carries {} bytes, Telegram takes 1 to {MAX_DATA}",
                button.label,
                button.id.len()
            )));
        }
        let rows = self.buttons.chunks(ROW).map(|row| {
            row.iter()
                .map(|button| InlineKeyboardButton::callback(&button.label, &button.id))
        });
        Ok((!self.buttons.is_empty()).then(|| InlineKeyboardMarkup::new(rows)))
    }
}

/// A reply of an agent.
pub(crate) fn render(source: &str) -> Rendered {
    let content = |part: &markdown::Part| {
        Said {
            html: Some(part.html.clone()),
            plain: part.plain.clone(),
            buttons: Vec::new(),
        }
        .content()
    };
    match markdown::render(source) {
        text::Rendered::Parts(parts) => Rendered {
            parts: parts.iter().map(content).collect(),
            whole: None,
        },
        text::Rendered::Long { summary, file } => Rendered {
            parts: vec![content(&summary)],
            whole: Some((file.name, file.content)),
        },
    }
}

/// A text of ours; what is longer than a message is cut.
pub(crate) fn line(text: &str, buttons: &[Button]) -> Content {
    Said {
        html: None,
        plain: text.chars().take(markdown::MAX_TEXT).collect(),
        buttons: buttons.to_vec(),
    }
    .content()
}
