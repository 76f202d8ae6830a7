//! A reply as Slack messages.

use super::{
    Rendered,
    flavour::{Mrkdwn, SlackMarkdown},
    layout::Flavours,
    split::Size,
};

/// Slack cuts a longer `text` into several messages by itself.
pub const MAX_TEXT: usize = 4000;
/// All `markdown` blocks of a message together.
pub const MAX_MARKDOWN: usize = 12_000;

/// One message: post it with both, `text` as mrkdwn and `markdown` as its one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// mrkdwn: shown where blocks are not, read by notifications and screen readers.
    pub text: String,
    /// The source of a `markdown` block, in which nothing is a mention.
    pub markdown: String,
}

/// Renders a reply.
pub fn render(source: &str) -> Rendered<Part> {
    let flavours = Flavours {
        main: &Mrkdwn,
        side: Some(&SlackMarkdown),
    };
    let limits = Size {
        main: MAX_TEXT,
        side: MAX_MARKDOWN,
    };
    super::render(source, flavours, limits, |pair| Part {
        text: pair.main,
        markdown: pair.side,
    })
}
