//! A reply as Telegram messages.

use super::{
    Rendered,
    flavour::{Html, Plain},
    layout::Flavours,
    split::Size,
};

/// Telegram takes 4,096 after reading the tags; counted here with them, and not to the edge.
pub const MAX_TEXT: usize = 4000;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// For `parse_mode` HTML.
    pub html: String,
    /// The same without a `parse_mode`, for when the HTML is refused.
    pub plain: String,
}

/// Renders a reply.
pub fn render(source: &str) -> Rendered<Part> {
    let flavours = Flavours {
        main: &Html,
        side: Some(&Plain),
    };
    let limits = Size {
        main: MAX_TEXT,
        side: MAX_TEXT,
    };
    super::render(source, flavours, limits, |pair| Part {
        html: pair.main,
        plain: pair.side,
    })
}
