//! The languages that replies are written in.
//!
//! To add one: a file here that implements [`Flavour`], and a function beside `slack::render`.

mod discord;
mod html;
mod mrkdwn;
mod plain;
mod slack_markdown;

pub(super) use discord::DiscordMarkdown;
pub(super) use html::Html;
pub(super) use mrkdwn::Mrkdwn;
pub(super) use plain::Plain;
pub(super) use slack_markdown::SlackMarkdown;

use super::{
    document::{Inline, Marker, Style},
    layout::JOINER,
};

/// What stands around a span.
#[derive(Debug, Clone, Default)]
pub(super) struct Wrap {
    pub(super) open: String,
    pub(super) close: String,
}

impl Wrap {
    fn new(open: impl Into<String>, close: impl Into<String>) -> Wrap {
        Wrap {
            open: open.into(),
            close: close.into(),
        }
    }

    fn both(mark: &str) -> Wrap {
        Wrap::new(mark, mark)
    }
}

/// Where a character stands, as a reader sees the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'a> {
    /// The line up to it.
    pub(super) line: &'a str,
    /// The text after it, up to the next mark.
    pub(super) rest: &'a str,
    /// In a link's label.
    pub(super) in_link: bool,
}

impl At<'_> {
    fn before(&self) -> Option<char> {
        self.line.chars().next_back()
    }

    fn after(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn line_start(&self) -> bool {
        self.line.trim_start().is_empty()
    }

    /// `1` of `1. x`.
    fn after_number(&self) -> bool {
        let line = self.line.trim_start();
        (1..=9).contains(&line.len()) && line.bytes().all(|b| b.is_ascii_digit())
    }

    fn before_space(&self) -> bool {
        self.after().is_none_or(char::is_whitespace)
    }
}

/// A language. Whatever it writes for one character or span is never cut. What is not said is as in
/// Markdown.
pub(super) trait Flavour {
    /// A character of text.
    fn char(&self, c: char, at: &At<'_>) -> String;
    /// A character of code, and the code after it.
    fn code_char(&self, c: char, rest: &str) -> String;
    /// A whole code span.
    fn code_span(&self, code: &str) -> String;
    fn heading(&self, level: u8) -> Wrap;

    /// Around a code span that may be cut; it holds no backtick.
    fn code_wrap(&self) -> Wrap {
        Wrap::both("`")
    }
    /// An address that is its own label.
    fn url(&self, url: &str) -> String {
        format!("<{url}>")
    }
    fn style(&self, style: &Style) -> Wrap {
        match style {
            Style::Bold => Wrap::both("**"),
            Style::Italic => Wrap::both("*"),
            Style::Strike => Wrap::both("~~"),
            Style::Link(url) => Wrap::new("[", format!("](<{url}>)")),
        }
    }
    /// Around a block of code.
    fn fence(&self, language: &str) -> Wrap {
        Wrap::new(format!("```{language}\n"), "\n```")
    }
    /// Around a quotation.
    fn quote(&self) -> Wrap {
        Wrap::new("> ", "")
    }
    /// At the beginning of each further line of a quotation.
    fn quote_line(&self) -> &'static str {
        "> "
    }
    /// Before an item `depth` lists deep; `empty` items have no text.
    fn marker(&self, marker: Marker, _depth: usize, empty: bool) -> String {
        written_marker(marker, empty)
    }
    /// Before a line inside of lists whose markers are so wide.
    fn indent(&self, widths: &[usize]) -> String {
        " ".repeat(widths.iter().sum())
    }

    /// A table in the language's own form, if it has one for this table.
    fn table(&self, _rows: &[Vec<Vec<Inline>>]) -> Option<String> {
        None
    }
    /// Quotations have a margin of their own.
    fn roomy_quotes(&self) -> bool {
        false
    }
    /// A style does not reach over a line's end.
    fn styles_end_with_lines(&self) -> bool {
        false
    }
    /// Marks are characters, so that two that touch become another one.
    fn marks_touch(&self) -> bool {
        true
    }
    /// Three backticks end a block of code.
    fn fence_ends_at_ticks(&self) -> bool {
        true
    }
}

/// All of a code's characters.
fn code(flavour: &dyn Flavour, code: &str) -> String {
    code.char_indices()
        .map(|(at, c)| flavour.code_char(c, &code[at + c.len_utf8()..]))
        .collect()
}

/// `&`, `<` and `>` as entities.
fn entity(c: char) -> String {
    match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        _ => c.to_string(),
    }
}

fn written_marker(marker: Marker, empty: bool) -> String {
    let nothing = if empty { JOINER } else { "" };
    match marker {
        Marker::Bullet => format!("- {nothing}"),
        Marker::Number { number, bracket } => {
            let mark = if bracket { ')' } else { '.' };
            format!("{number}{mark} {nothing}")
        }
    }
}

/// A code span in Markdown: more backticks around it than it holds in a row.
fn ticked(shown: &str) -> String {
    let longest = shown.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let ticks = "`".repeat(longest + 1);
    let pad = if shown.starts_with('`') || shown.ends_with('`') {
        " "
    } else {
        ""
    };
    format!("{ticks}{pad}{shown}{pad}{ticks}")
}

/// Telegram finds user names in text. Shorter names than five are nobody's, so that Slack's
/// `<@U123>` stays as it is.
fn at_sign(at: &At<'_>) -> &'static str {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = at.rest.chars().take_while(|c| word(*c)).count();
    let bracketed = at.before() == Some('<') && name < 5;
    if name == 0 || bracketed || at.before().is_some_and(word) {
        "@"
    } else {
        "@\u{2060}"
    }
}
