//! Which lines of a text came and went.

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline, group_diff_ops};

/// Larger files are not compared.
pub(super) const COUNTED_MAX: u64 = 1 << 20;
/// After this a comparison is cut short and counts too many lines rather than too few.
const PATIENCE: Duration = Duration::from_millis(200);
/// Unchanged lines around a change.
const CONTEXT: usize = 3;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    pub(super) added: u64,
    pub(super) removed: u64,
    /// As of a unified diff, without its head; empty where not asked for.
    pub(super) hunks: Vec<u8>,
}

/// None where either side is no text.
pub(super) fn compare(before: &[u8], after: &[u8], hunks: bool) -> Option<Lines> {
    if before.contains(&0) || after.contains(&0) {
        return None;
    }
    let (old, new) = (split(before), split(after));
    let deadline = Some(Instant::now() + PATIENCE);
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, deadline);
    let mut lines = Lines::default();
    for op in &ops {
        if !matches!(op, DiffOp::Equal { .. }) {
            lines.added += op.new_range().len() as u64;
            lines.removed += op.old_range().len() as u64;
        }
    }
    if hunks {
        for group in group_diff_ops(ops, CONTEXT) {
            hunk(&mut lines.hunks, &group, &old, &new);
        }
    }
    Some(lines)
}

fn split(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

fn hunk(out: &mut Vec<u8>, ops: &[DiffOp], old: &[&[u8]], new: &[&[u8]]) {
    let (Some(first), Some(last)) = (ops.first(), ops.last()) else {
        return;
    };
    let before = span(first.old_range().start, last.old_range().end);
    let after = span(first.new_range().start, last.new_range().end);
    let _ = writeln!(out, "@@ -{before} +{after} @@");
    for op in ops {
        if let DiffOp::Equal { .. } = op {
            put(out, b' ', &old[op.old_range()]);
        } else {
            put(out, b'-', &old[op.old_range()]);
            put(out, b'+', &new[op.new_range()]);
        }
    }
}

/// Lines count from 1; an empty span names the line before it.
fn span(start: usize, end: usize) -> String {
    match end - start {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        len => format!("{},{len}", start + 1),
    }
}

fn put(out: &mut Vec<u8>, mark: u8, lines: &[&[u8]]) {
    for line in lines {
        out.push(mark);
        out.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            out.extend_from_slice(b"\n\\ No newline at end of file\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(before: &[u8], after: &[u8]) -> Option<(u64, u64)> {
        compare(before, after, false).map(|lines| (lines.added, lines.removed))
    }

    #[test]
    fn lines_are_counted_and_binaries_are_not() {
        assert_eq!(counted(b"a\nb\nc\n", b"a\nB\nc\nd\n"), Some((2, 1)));
        assert_eq!(counted(b"", b"a\nno end"), Some((2, 0)));
        assert_eq!(counted(b"a\0", b"a"), None);
    }

    #[test]
    fn hunks_have_three_lines_around_them_and_tell_a_missing_line_end() {
        let before: String = (1..=20).map(|n| format!("{n}\n")).collect();
        let after = before.replace("10\n", "ten\n");
        let lines = compare(before.as_bytes(), after.as_bytes(), true).unwrap();
        let wanted = "@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n";
        assert_eq!(String::from_utf8(lines.hunks).unwrap(), wanted);
        let lines = compare(b"", b"x", true).unwrap();
        assert_eq!(
            lines.hunks,
            b"@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"
        );
        assert!(compare(b"x", b"x", true).unwrap().hunks.is_empty());
    }
}
