//! The source of Slack's `markdown` block: CommonMark with tables, written so that nothing in it
//! is a mention. Whether the block expands `<@U1>` is not documented; here it cannot.

use super::{At, Flavour, Inline, JOINER, Style, Wrap, code, ticked};

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
    fn cell(&self, inlines: &[Inline]) -> String {
        let mut cell = String::new();
        // Nothing in a cell stands at a line's beginning.
        let mut line = "|".to_owned();
        let mut in_link = false;
        for inline in inlines {
            match inline {
                Inline::Text(text) => {
                    for (at, c) in text.char_indices() {
                        let rest = &text[at + c.len_utf8()..];
                        let place = At {
                            line: &line,
                            rest,
                            in_link,
                        };
                        cell.push_str(&self.char(c, &place));
                        line = c.to_string();
                    }
                }
                Inline::Code(code) => cell.push_str(&self.code_span(code).replace('|', "\\|")),
                Inline::Url(url) => cell.push_str(&self.url(url)),
                Inline::Break => cell.push(' '),
                Inline::Open(style) => {
                    in_link |= matches!(style, Style::Link(_));
                    cell.push_str(&self.style(style).open);
                }
                Inline::Close(style) => {
                    in_link &= !matches!(style, Style::Link(_));
                    cell.push_str(&self.style(style).close);
                }
            }
        }
        cell
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
