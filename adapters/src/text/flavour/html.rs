//! Telegram's HTML: `b i s a code pre blockquote`, nothing else.

use super::{At, Flavour, Marker, Style, Wrap, at_sign, code, entity};

pub(in crate::text) struct Html;

impl Flavour for Html {
    fn char(&self, c: char, at: &At<'_>) -> String {
        match c {
            '@' => at_sign(at).to_owned(),
            _ => entity(c),
        }
    }

    fn code_char(&self, c: char, _rest: &str) -> String {
        entity(c)
    }

    fn code_span(&self, text: &str) -> String {
        format!("<code>{}</code>", code(self, text))
    }

    fn code_wrap(&self) -> Wrap {
        Wrap::new("<code>", "</code>")
    }

    fn url(&self, url: &str) -> String {
        url.replace('&', "&amp;")
    }

    fn style(&self, style: &Style) -> Wrap {
        match style {
            Style::Bold => Wrap::new("<b>", "</b>"),
            Style::Italic => Wrap::new("<i>", "</i>"),
            Style::Strike => Wrap::new("<s>", "</s>"),
            Style::Link(url) => Wrap::new(
                format!("<a href=\"{}\">", url.replace('&', "&amp;")),
                "</a>",
            ),
        }
    }

    fn heading(&self, _level: u8) -> Wrap {
        Wrap::new("<b>", "</b>")
    }

    fn fence(&self, language: &str) -> Wrap {
        if language.is_empty() {
            Wrap::new("<pre>", "</pre>")
        } else {
            Wrap::new(
                format!("<pre><code class=\"language-{language}\">"),
                "</code></pre>",
            )
        }
    }

    fn quote(&self) -> Wrap {
        Wrap::new("<blockquote>", "</blockquote>")
    }

    fn quote_line(&self) -> &'static str {
        ""
    }

    fn marker(&self, marker: Marker, depth: usize, _empty: bool) -> String {
        marker.drawn(depth)
    }

    fn indent(&self, widths: &[usize]) -> String {
        "   ".repeat(widths.len())
    }

    fn roomy_quotes(&self) -> bool {
        true
    }

    fn marks_touch(&self) -> bool {
        false
    }

    fn fence_ends_at_ticks(&self) -> bool {
        false
    }
}
