//! A difference as `git diff` writes it: people know it, `git apply` takes it.

use std::io::Write as _;

use mayfly_orchestrator::snapshot::{Change, ChangeKind, Diff, Side, Text};

use super::{bytes, quote::quoted};
use crate::screen::Screen;

const TYPE: u32 = 0o170_000;
const FOLDER: u32 = 0o040_000;
const LINK: u32 = 0o120_000;

/// Bytes, because lines of files may be no UTF-8.
pub(crate) fn patch(diff: &Diff) -> Vec<u8> {
    let mut out = Vec::new();
    for change in &diff.changes {
        if change.kind == ChangeKind::TypeChanged {
            // As git has it: one goes, another comes.
            entry(&mut out, diff, &half(change, true));
            entry(&mut out, diff, &half(change, false));
        } else {
            entry(&mut out, diff, change);
        }
    }
    for line in ends(diff.more, &diff.notes) {
        let _ = writeln!(out, "# {line}");
    }
    out
}

/// What a reader should know beyond the changes that are listed.
pub(crate) fn ends(more: u64, notes: &[String]) -> Vec<String> {
    let mut lines = match more {
        0 => Vec::new(),
        1 => vec!["1 more entry differs and is not listed".to_owned()],
        more => vec![format!("{more} more entries differ and are not listed")],
    };
    lines.extend(notes.iter().cloned());
    lines
}

/// The removal or the addition that a change of type is made of.
fn half(change: &Change, before: bool) -> Change {
    let other = match before {
        true => Change {
            kind: ChangeKind::Removed,
            after: None,
            bytes_after: None,
            ..change.clone()
        },
        false => Change {
            kind: ChangeKind::Added,
            before: None,
            bytes_before: None,
            ..change.clone()
        },
    };
    let side = other.before.as_ref().or(other.after.as_ref());
    let regular = side.is_some_and(|side| side.mode & TYPE != LINK && side.mode & TYPE != FOLDER);
    Change {
        text: if regular { other.text } else { Text::None },
        ..other
    }
}

fn entry(out: &mut Vec<u8>, diff: &Diff, change: &Change) {
    if is_told_by_others(diff, change) {
        return;
    }
    let old = change.from.as_deref().unwrap_or(&change.path);
    let (a, b) = (named("a", old), named("b", &change.path));
    let _ = writeln!(out, "diff --git {a} {b}");
    match (&change.before, &change.after) {
        (None, Some(side)) => {
            let _ = writeln!(out, "new file mode {:06o}", mode(side));
        }
        (Some(side), None) => {
            let _ = writeln!(out, "deleted file mode {:06o}", mode(side));
        }
        (Some(before), Some(after)) => modes(out, before, after),
        (None, None) => {}
    }
    if change.kind == ChangeKind::Renamed {
        let (from, to) = (quoted(bare(old)), quoted(bare(&change.path)));
        let below = match change.below {
            0 => String::new(),
            below => format!("# a folder with all {below} entries below it\n"),
        };
        let _ = write!(
            out,
            "similarity index 100%\nrename from {from}\nrename to {to}\n{below}"
        );
        return;
    }
    content(out, change, (&a, &b));
}

/// A folder shows by what is in it.
fn is_told_by_others(diff: &Diff, change: &Change) -> bool {
    let folder = |side: &Side| side.mode & TYPE == FOLDER;
    let sides = [&change.before, &change.after];
    if change.kind == ChangeKind::ModeChanged
        || change.kind == ChangeKind::Renamed
        || !sides.into_iter().flatten().all(folder)
    {
        return false;
    }
    let below = [&change.path[..], b"/"].concat();
    let at = diff.changes.partition_point(|other| other.path < below);
    let next = diff.changes.get(at);
    next.is_some_and(|other| other.path.starts_with(&below))
}

/// Links have no permissions of their own.
fn mode(side: &Side) -> u32 {
    match side.mode & TYPE {
        LINK => LINK,
        _ => side.mode,
    }
}

fn modes(out: &mut Vec<u8>, before: &Side, after: &Side) {
    if before.mode != after.mode {
        let (old, new) = (mode(before), mode(after));
        let _ = writeln!(out, "old mode {old:06o}\nnew mode {new:06o}");
    }
    let owner = |side: &Side| (side.uid, side.gid);
    if owner(before) != owner(after) {
        let ((a, b), (c, d)) = (owner(before), owner(after));
        let _ = writeln!(out, "# owner {a}:{b} -> {c}:{d}");
    }
}

fn content(out: &mut Vec<u8>, change: &Change, (a, b): (&str, &str)) {
    let heads = |out: &mut Vec<u8>| {
        let null = "/dev/null";
        let from = if change.before.is_some() { a } else { null };
        let to = if change.after.is_some() { b } else { null };
        let _ = writeln!(out, "--- {from}\n+++ {to}");
    };
    let target = |side: &Option<Side>| side.as_ref().and_then(|side| side.target.clone());
    let (old, new) = (target(&change.before), target(&change.after));
    if old != new {
        heads(out);
        link(out, old.as_deref(), new.as_deref());
        return;
    }
    match &change.text {
        Text::None => {}
        Text::Hunks(hunks) if hunks.is_empty() => {}
        Text::Hunks(hunks) => {
            heads(out);
            out.extend_from_slice(hunks);
        }
        Text::Binary => {
            let _ = writeln!(out, "Binary files {a} and {b} differ");
        }
        Text::Large | Text::LeftOut => {
            let size = |size: Option<u64>| size.map_or("nothing".to_owned(), bytes);
            let (old, new) = (size(change.bytes_before), size(change.bytes_after));
            let _ = writeln!(
                out,
                "Files {a} and {b} differ: {old} -> {new}, not shown here"
            );
        }
    }
}

/// The content of a link is its target, without a line end.
fn link(out: &mut Vec<u8>, old: Option<&[u8]>, new: Option<&[u8]>) {
    let span = |side: Option<&[u8]>| if side.is_some() { "1" } else { "0,0" };
    let _ = writeln!(out, "@@ -{} +{} @@", span(old), span(new));
    for (mark, target) in [(b'-', old), (b'+', new)] {
        if let Some(target) = target {
            out.push(mark);
            out.extend_from_slice(target);
            out.extend_from_slice(b"\n\\ No newline at end of file\n");
        }
    }
}

fn bare(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"/").unwrap_or(path)
}

fn named(side: &str, path: &[u8]) -> String {
    quoted(&[side.as_bytes(), b"/", bare(path)].concat())
}

/// For a terminal: coloured, and nothing in it can steer.
pub(crate) fn painted(patch: &[u8], screen: Screen) -> String {
    let text = String::from_utf8_lossy(patch);
    let mut lines = String::new();
    let mut hunk = false;
    for line in text.lines() {
        let line = super::printable(line);
        // Inside of a hunk every line has a mark; what begins otherwise ends it.
        hunk = line.starts_with("@@ ") || (hunk && line.starts_with([' ', '+', '-', '\\']));
        let shown = match line.as_bytes().first() {
            Some(b'@') => screen.dim(&line),
            Some(b'+') if hunk => screen.green(&line),
            Some(b'-') if hunk => screen.red(&line),
            _ if hunk => line,
            Some(b'#') => screen.yellow(&line),
            _ => screen.bold(&line),
        };
        lines.push_str(&shown);
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_terminal_a_file_neither_steers_nor_passes_for_a_head() {
        let colour = Screen {
            json: false,
            colour: true,
        };
        let patch = b"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n--- a\x1b[2J\n ok\xff\n+\xe2\x80\xae\n";
        let shown = painted(patch, colour);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[1], "\x1b[1m--- a/f\x1b[0m");
        assert_eq!(lines[4], "\x1b[31m--- a\u{fffd}[2J\x1b[0m");
        assert_eq!(lines[5], " ok\u{fffd}");
        assert_eq!(lines[6], "\x1b[32m+\u{fffd}\x1b[0m");
    }
}
