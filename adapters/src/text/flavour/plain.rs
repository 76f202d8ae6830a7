//! Text without any marks, for when Telegram refuses a part's HTML. Addresses stand in brackets.

use super::{At, Flavour, Marker, Style, Wrap, at_sign, code};

pub(in crate::text) struct Plain;

impl Flavour for Plain {
    fn char(&self, c: char, at: &At<'_>) -> String {
        match c {
            '@' => at_sign(at).to_owned(),
            _ => c.to_string(),
        }
    }

    fn code_char(&self, c: char, rest: &str) -> String {
        let at = At {
            line: "",
            rest,
            in_link: false,
        };
        self.char(c, &at)
    }

    fn code_span(&self, text: &str) -> String {
        code(self, text)
    }

    fn code_wrap(&self) -> Wrap {
        Wrap::default()
    }

    fn url(&self, url: &str) -> String {
        url.to_owned()
    }

    fn style(&self, style: &Style) -> Wrap {
        match style {
            Style::Bold | Style::Italic | Style::Strike => Wrap::default(),
            Style::Link(url) => Wrap::new("", format!(" ({url})")),
        }
    }

    fn heading(&self, _level: u8) -> Wrap {
        Wrap::default()
    }

    fn fence(&self, _language: &str) -> Wrap {
        Wrap::default()
    }

    fn marker(&self, marker: Marker, depth: usize, _empty: bool) -> String {
        marker.drawn(depth)
    }

    fn indent(&self, widths: &[usize]) -> String {
        "   ".repeat(widths.len())
    }

    fn marks_touch(&self) -> bool {
        false
    }

    fn fence_ends_at_ticks(&self) -> bool {
        false
    }
}
