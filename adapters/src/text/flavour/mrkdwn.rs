//! Slack's mrkdwn: entities for `&`, `<` and `>`, and no escape for anything else.

use super::{At, Flavour, JOINER, Marker, Style, Wrap, code, entity};

pub(in crate::text) struct Mrkdwn;

impl Flavour for Mrkdwn {
    fn char(&self, c: char, at: &At<'_>) -> String {
        match c {
            '>' if at.line_start() => format!("{JOINER}&gt;"),
            '`' => "ˋ".to_owned(),
            _ => entity(c),
        }
    }

    fn code_char(&self, c: char, _rest: &str) -> String {
        entity(c)
    }

    fn code_span(&self, text: &str) -> String {
        format!("`{}`", code(self, &text.replace('`', "ˋ")))
    }

    fn url(&self, url: &str) -> String {
        format!("<{}>", url.replace('&', "&amp;"))
    }

    fn style(&self, style: &Style) -> Wrap {
        match style {
            Style::Bold => Wrap::both("*"),
            Style::Italic => Wrap::both("_"),
            Style::Strike => Wrap::both("~"),
            Style::Link(url) => Wrap::new(format!("<{}|", url.replace('&', "&amp;")), ">"),
        }
    }

    fn heading(&self, _level: u8) -> Wrap {
        Wrap::both("*")
    }

    fn fence(&self, _language: &str) -> Wrap {
        Wrap::new("```\n", "\n```")
    }

    fn marker(&self, marker: Marker, depth: usize, _empty: bool) -> String {
        marker.drawn(depth)
    }

    fn indent(&self, widths: &[usize]) -> String {
        "    ".repeat(widths.len())
    }

    fn styles_end_with_lines(&self) -> bool {
        true
    }
}
