//! The source of Slack's `markdown` block: CommonMark with tables, written so that nothing in it
//! is a mention. Whether the block expands `<@U1>` is not documented; here it cannot.

use super::{At, Flavour, Inline, JOINER, Style, Wrap, code, ticked};
use crate::text::layout::{after_end, first_char, loses_mark};

/// What a table block of Slack takes.
const MAX_ROWS: usize = 100;
const MAX_COLUMNS: usize = 20;

pub(in crate::text) struct SlackMarkdown;

impl Flavour for SlackMarkdown {
    fn char(&self, c: char, at: &At<'_>) -> String {
        let after = at.after();
        let escaped = match c {
            '<' if after.is_some_and(|c| "@!#".contains(c)) => return format!("\\<{JOINER}"),
            '@' if broadcasts(at.rest) => return format!("@{JOINER}"),
            // Tags, addresses, and people's mail addresses, which may begin with any sign.
            '<' => !after.is_some_and(char::is_whitespace),
            '&' => after.is_some_and(|c| c.is_alphanumeric() || c == '#'),
            '_' => {
                !(at.before().is_some_and(char::is_alphanumeric)
                    && after.is_some_and(char::is_alphanumeric))
            }
            '\\' | '*' | '`' | '~' | '|' | '[' => true,
            ']' => at.in_link,
            '>' => at.line_start(),
            // Before a link it would make an image.
            '!' => at.rest.is_empty(),
            // At its beginning a line is made a heading by it, at its end a heading loses it.
            '#' => at.line_start() || ends_heading(at),
            '-' | '+' | '=' | ':' => at.line_start() && !after.is_some_and(char::is_alphanumeric),
            '.' | ')' => at.after_number() && at.before_space(),
            _ => false,
        };
        if escaped {
            format!("\\{c}")
        } else {
            c.to_string()
        }
    }

    fn code_char(&self, c: char, rest: &str) -> String {
        let mention = match c {
            '<' => rest.starts_with(['@', '!', '#']),
            '@' => broadcasts(rest),
            _ => false,
        };
        if mention {
            format!("{c}{JOINER}")
        } else {
            c.to_string()
        }
    }

    fn code_span(&self, text: &str) -> String {
        ticked(&code(self, text))
    }

    fn heading(&self, level: u8) -> Wrap {
        Wrap::new(format!("{} ", "#".repeat(usize::from(level))), "")
    }

    fn table(&self, rows: &[Vec<Vec<Inline>>]) -> Option<String> {
        let columns = rows.first()?.len();
        if rows.len() > MAX_ROWS || columns > MAX_COLUMNS || columns == 0 {
            return None;
        }
        // Blank lines keep it apart from a paragraph.
        let mut table = "\n".to_owned();
        for (n, row) in rows.iter().enumerate() {
            for cell in row {
                table.push_str(&format!("| {} ", self.cell(cell)));
            }
            table.push_str("|\n");
            if n == 0 {
                table.push_str(&"| --- ".repeat(columns));
                table.push_str("|\n");
            }
        }
        Some(table)
    }
}

impl SlackMarkdown {
    /// Marks are held apart from what is beside them as everywhere ([`loses_mark`]).
    fn cell(&self, inlines: &[Inline]) -> String {
        let mut cell = Cell::default();
        for (n, inline) in inlines.iter().enumerate() {
            let before = n.checked_sub(1).map(|n| &inlines[n]);
            let after = &inlines[n + 1..];
            match inline {
                Inline::Text(text) => self.words(text, &mut cell),
                Inline::Code(code) => {
                    cell.add(&self.code_span(code).replace('|', "\\|"));
                }
                Inline::Url(url) => cell.add(&self.url(url)),
                Inline::Break => cell.add(" "),
                Inline::Open(style) => {
                    cell.in_link |= matches!(style, Style::Link(_));
                    if matches!(before, Some(Inline::Close(_))) {
                        cell.add(JOINER);
                    }
                    cell.written.push_str(&self.style(style).open);
                    let nested = matches!(before, Some(Inline::Open(_)));
                    if !nested && loses_mark(cell.last, first_char(after)) {
                        cell.add(JOINER);
                    }
                }
                Inline::Close(style) => {
                    cell.in_link &= !matches!(style, Style::Link(_));
                    let inside = match before {
                        Some(inline) if inline.ends_a_link() => Some(')'),
                        Some(Inline::Close(_)) => None,
                        _ => cell.last,
                    };
                    if loses_mark(after_end(after), inside) {
                        cell.add(JOINER);
                    }
                    cell.written.push_str(&self.style(style).close);
                }
            }
        }
        cell.written
    }

    fn words(&self, text: &str, cell: &mut Cell) {
        for (at, c) in text.char_indices() {
            // Nothing in a cell stands at a line's beginning.
            let line = format!("|{}", cell.last.unwrap_or(' '));
            let place = At {
                line: &line,
                rest: &text[at + c.len_utf8()..],
                in_link: cell.in_link,
            };
            cell.add(&self.char(c, &place));
        }
    }
}

#[derive(Default)]
struct Cell {
    written: String,
    /// The last character, apart from marks.
    last: Option<char>,
    in_link: bool,
}

impl Cell {
    fn add(&mut self, text: &str) {
        self.written.push_str(text);
        self.last = text.chars().next_back().or(self.last);
    }
}

fn ends_heading(at: &At<'_>) -> bool {
    at.before().is_some_and(|c| c.is_whitespace() || c == '#')
        && at.rest.trim_start_matches('#').trim().is_empty()
}

fn broadcasts(rest: &str) -> bool {
    ["here", "channel", "everyone", "group"]
        .iter()
        .any(|name| rest.starts_with(name))
}
