//! How many lines of a text came and went.

use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

/// Larger files are not counted.
pub(super) const COUNTED_MAX: u64 = 1 << 20;
/// After this a comparison is cut short and counts too many lines rather than too few.
const PATIENCE: Duration = Duration::from_millis(200);

/// `(added, removed)`; none where either side is no text.
pub(super) fn count(before: &[u8], after: &[u8]) -> Option<(u64, u64)> {
    if before.contains(&0) || after.contains(&0) {
        return None;
    }
    let (old, new) = (split(before), split(after));
    let deadline = Some(Instant::now() + PATIENCE);
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, deadline);
    let mut counts = (0, 0);
    for op in ops {
        if !matches!(op, DiffOp::Equal { .. }) {
            counts.0 += op.new_range().len() as u64;
            counts.1 += op.old_range().len() as u64;
        }
    }
    Some(counts)
}

fn split(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn lines_are_counted_and_binaries_are_not() {
        assert_eq!(count(b"a\nb\nc\n", b"a\nB\nc\nd\n"), Some((2, 1)));
        assert_eq!(count(b"", b"a\nno end"), Some((2, 0)));
        assert_eq!(count(b"a\0", b"a"), None);
    }
}
