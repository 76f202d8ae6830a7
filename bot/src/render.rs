//! Views as text for people.

mod agent;
mod diff;
mod files;
mod graph;
mod message;
mod patch;
mod quote;
mod table;
mod tick;

pub(crate) use agent::{agent, agents, gc, rollback, stop};
pub(crate) use diff::{diff, names};
pub(crate) use files::listing;
pub(crate) use graph::graph;
pub(crate) use message::{paired, parked, state};
pub(crate) use patch::{painted, patch};
pub(crate) use quote::quoted;
pub(crate) use tick::{exit, outcome, phases, tick, ticks};

use jiff::{Timestamp, tz::TimeZone};

/// Unix milliseconds in this host's time zone, to the second.
pub(crate) fn time(unix_ms: i64) -> String {
    match Timestamp::from_millisecond(unix_ms) {
        Ok(time) => {
            let zoned = time.to_zoned_datetime(TimeZone::system());
            zoned.strftime("%Y-%m-%d %H:%M:%S").to_string()
        }
        Err(_) => unix_ms.to_string(),
    }
}

/// Milliseconds as people say them.
pub(crate) fn span(ms: i64) -> String {
    match ms {
        ..=999 => format!("{ms} ms"),
        1_000..=59_999 => format!("{:.1} s", ms as f64 / 1e3),
        _ => format!("{} min {} s", ms / 60_000, ms / 1_000 % 60),
    }
}

/// Bytes as people say them.
pub(crate) fn bytes(count: u64) -> String {
    match count {
        ..=1_023 => format!("{count} B"),
        1_024..=1_048_575 => format!("{:.1} KiB", count as f64 / 1024.0),
        1_048_576..=1_073_741_823 => format!("{:.1} MiB", count as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", count as f64 / 1_073_741_824.0),
    }
}

/// What a program or a person wrote, on one line and unable to steer the terminal.
pub(crate) fn one_line(text: &str, longest: usize) -> String {
    let mut line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(longest)
        .collect();
    if text.chars().count() > longest {
        line.push('…');
    }
    line
}

/// As [`one_line`], but lines and tabs stay.
pub(crate) fn printable(text: &str) -> String {
    let keep = |c: char| match c {
        '\n' | '\t' => c,
        c if quote::steers(c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(keep).collect()
}

#[cfg(test)]
mod tests;
