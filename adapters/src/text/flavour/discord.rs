//! Discord's message content. A message is sent with `allowed_mentions` none; here only what would
//! be shown as something else than its text is escaped.

use super::{At, Flavour, Wrap, ticked};

pub(in crate::text) struct DiscordMarkdown;

impl Flavour for DiscordMarkdown {
    fn char(&self, c: char, at: &At<'_>) -> String {
        let after = at.after();
        let double = after == Some(c) || at.before() == Some(c);
        let escaped = match c {
            // Whether it begins a link also hangs on code that may follow.
            '\\' | '*' | '_' | '`' | '[' => true,
            '~' | '|' => double,
            ']' => at.in_link,
            '<' => reference(at.rest),
            '>' => at.line_start() && (at.before_space() || after == Some('>')),
            '#' => at.line_start() && starts_heading(at.rest),
            '-' | '+' => at.line_start() && (at.before_space() || after == Some('#')),
            '.' | ')' => at.after_number() && at.before_space(),
            _ => false,
        };
        if escaped {
            format!("\\{c}")
        } else {
            c.to_string()
        }
    }

    fn code_char(&self, c: char, _rest: &str) -> String {
        c.to_string()
    }

    fn code_span(&self, code: &str) -> String {
        if code.contains("``") {
            // Three backticks begin a block wherever they stand.
            ticked(&code.replace('`', "ˋ"))
        } else {
            ticked(code)
        }
    }

    fn heading(&self, level: u8) -> Wrap {
        match level {
            1..=3 => Wrap::new(format!("{} ", "#".repeat(usize::from(level))), ""),
            _ => Wrap::both("**"),
        }
    }
}

/// `<@1>`, `<@&1>`, `<#1>`, `<:name:1>`, `<t:1>`, `</command:1>`, `<id:guide>`, `<https://x>`.
fn reference(rest: &str) -> bool {
    let starts = [
        "@&", "@!", "#", ":", "a:", "t:", "/", "id:", "http:", "https:", "sound:",
    ];
    let user = rest
        .strip_prefix('@')
        .is_some_and(|id| id.starts_with(|c: char| c.is_ascii_digit()));
    user || starts.iter().any(|start| rest.starts_with(start))
}

fn starts_heading(rest: &str) -> bool {
    let title = rest.trim_start_matches('#');
    title.is_empty() || title.starts_with(char::is_whitespace)
}
