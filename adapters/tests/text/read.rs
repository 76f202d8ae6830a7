//! What a person sees of a message: one reader for each platform's format, written without the
//! code that writes it. A format that is not whole makes a reader panic.

mod discord;
mod html;
mod markdown;
mod mrkdwn;

pub(crate) use discord::discord;
pub(crate) use html::html;
pub(crate) use markdown::markdown;
pub(crate) use mrkdwn::mrkdwn;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    Text(String),
    Link { label: String, url: String },
}

/// Only what can be seen, with one spelling for each thing that platforms draw differently. Links
/// that touch and lead to one place are one: a link may be cut where a part ends.
pub(crate) fn text(items: &[Item]) -> String {
    let mut text = String::new();
    let mut link: Option<&str> = None;
    for item in items {
        match item {
            Item::Text(more) if seen(more).is_empty() => {}
            Item::Text(more) => {
                if let Some(url) = link.take() {
                    text.push_str(&format!("({url})"));
                }
                text.push_str(more);
            }
            Item::Link { label, url } => {
                if let Some(other) = link.replace(url)
                    && other != url
                {
                    text.push_str(&format!("({other})"));
                }
                text.push_str(label);
            }
        }
    }
    if let Some(url) = link {
        text.push_str(&format!("({url})"));
    }
    seen(&text)
}

/// As [`text`], for mrkdwn, which has no escapes: whether one of these is a mark or a letter cannot
/// be told.
pub(crate) fn text_without_marks(items: &[Item]) -> String {
    let letters = |text: &str| seen(text).replace(['*', '_', '~', '`'], "");
    let items: Vec<Item> = items
        .iter()
        .map(|item| match item {
            Item::Text(text) => Item::Text(letters(text)),
            Item::Link { label, url } => Item::Link {
                label: letters(label),
                url: letters(url),
            },
        })
        .collect();
    text(&items)
}

pub(crate) fn seen(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_whitespace() && !c.is_control() && !invisible(*c))
        .map(|c| match c {
            '◦' => '•',
            'ˋ' => '`',
            c => c,
        })
        .collect()
}

fn invisible(c: char) -> bool {
    let code = u32::from(c);
    [
        0xad, 0x34f, 0x61c, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x3164, 0xfeff, 0xffa0,
    ]
    .contains(&code)
        || [
            (0x180b, 0x180f),
            (0x200b, 0x200f),
            (0x202a, 0x202e),
            (0x2060, 0x206f),
            (0xfe00, 0xfe0f),
            (0xfff0, 0xfffb),
            (0xe0000, 0xe0fff),
        ]
        .iter()
        .any(|(from, to)| (*from..=*to).contains(&code))
}
