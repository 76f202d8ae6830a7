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
        let line_end = if text.is_empty() || text.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        let _ = write!(out, "{text}{line_end}").and_then(|()| out.flush());
    }

    /// To standard error.
    pub(crate) fn notice(self, text: &str) {
        let _ = writeln!(stderr().lock(), "{}", text.trim_end());
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
