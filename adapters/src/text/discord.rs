//! A reply as Discord messages.

use super::{Rendered, flavour::DiscordMarkdown, layout::Flavours, split::Size};

/// Discord refuses longer content.
pub const MAX_CONTENT: usize = 2000;

/// One message. Always sent with `allowed_mentions: {"parse": []}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Discord's Markdown.
    pub content: String,
}

/// Renders a reply.
pub fn render(source: &str) -> Rendered<Part> {
    let flavours = Flavours {
        main: &DiscordMarkdown,
        side: None,
    };
    let limits = Size {
        main: MAX_CONTENT,
        side: 0,
    };
    super::render(source, flavours, limits, |pair| Part { content: pair.main })
}
