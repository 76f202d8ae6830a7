//! How a command speaks: answers to standard output, everything else to standard error, colour and
//! progress only on a terminal.

use std::{
    io::{IsTerminal, Write, stderr, stdout},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    pub(crate) json: bool,
    pub(crate) colour: bool,
}

impl Screen {
    pub(crate) fn new(json: bool, no_color: bool) -> Self {
        Screen {
            json,
            colour: !json && !no_color && stdout().is_terminal(),
        }
    }

    /// The view itself under `--json`, else its text.
    pub(crate) fn show<T: Serialize>(self, view: &T, text: impl FnOnce(&T, Screen) -> String) {
        match self.json {
            true => self.json(view),
            false => self.answer(&text(view, self)),
        }
    }

    pub(crate) fn json(self, view: &impl Serialize) {
        self.answer(&serde_json::to_string_pretty(view).expect("plain data"));
    }

    /// To standard output, with one line end. A reader that went away is not our fault.
    pub(crate) fn answer(self, text: &str) {
        let mut out = stdout().lock();
        let text = &harmless(text, out.is_terminal());
        let line_end = if text.is_empty() || text.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        let _ = write!(out, "{text}{line_end}").and_then(|()| out.flush());
    }

    /// To standard error.
    pub(crate) fn notice(self, text: &str) {
        let mut out = stderr().lock();
        let text = harmless(text.trim_end(), out.is_terminal());
        let _ = writeln!(out, "{text}");
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.painted("2", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.painted("1", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.painted("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.painted("33", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.painted("31", text)
    }

    fn painted(self, code: &str, text: &str) -> String {
        match self.colour {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    /// A line that moves, where somebody looks at it.
    pub(crate) fn spinner(self) -> ProgressBar {
        if self.json || !stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
        let bar = ProgressBar::new_spinner();
        bar.set_style(style.expect("a constant template"));
        bar.enable_steady_tick(Duration::from_millis(120));
        bar
    }
}

/// What agents write may colour a terminal and nothing else: no moving cursor, no title, no reply
/// typed in a person's name. Where no terminal is, every byte stays.
fn harmless(text: &str, terminal: bool) -> String {
    if !terminal {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let colour = colour_length(rest);
        let length = colour.unwrap_or(c.len_utf8());
        match c {
            _ if colour.is_some() => shown.push_str(&rest[..length]),
            '\n' | '\t' => shown.push(c),
            c if c.is_control() => shown.push('\u{fffd}'),
            c => shown.push(c),
        }
        rest = &rest[length..];
    }
    shown
}

/// Bytes of the colour sequence that the text begins with (ECMA-48, SGR: `ESC [ 0-9; m`).
fn colour_length(text: &str) -> Option<usize> {
    let codes = text.strip_prefix("\x1b[")?;
    let end = codes.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    codes[end..].starts_with('m').then_some(2 + end + 1)
}

#[cfg(test)]
mod tests {
    use super::harmless;

    #[test]
    fn agents_may_colour_a_terminal_and_nothing_else() {
        let sly = "a\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J\r\x1b[6n\u{9b}b\tc\n";
        let shown = harmless(sly, true);
        assert_eq!(
            shown,
            "a\x1b[31mred\x1b[0m\u{fffd}]0;title\u{fffd}\u{fffd}[2J\u{fffd}\u{fffd}[6n\u{fffd}b\tc\n"
        );
        assert_eq!(harmless(sly, false), sly);
    }
}
