//! What people call themselves and their files, made harmless to show. Identity is the platform's id.

use unicode_segmentation::UnicodeSegmentation;

/// Most characters (as people count them) of a name.
pub const LONGEST: usize = 64;

/// A name on one line, without control, direction and invisible characters, with single spaces, and
/// not longer than [`LONGEST`]. Empty if nothing is left: show the id.
pub fn shown(name: &str) -> String {
    let visible: String = name
        .chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .filter(|c| !c.is_control() && (joins(*c) || !crate::text::invisible(*c)))
        .collect();
    let words: Vec<&str> = visible.split(' ').filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    let mut short = String::new();
    for cluster in line.graphemes(true).take(LONGEST) {
        // A cluster may hold any number of marks.
        short.extend(cluster.chars().take(16));
    }
    if short
        .chars()
        .all(|c| crate::text::invisible(c) || c.is_whitespace())
    {
        return String::new();
    }
    short.trim_end().to_owned()
}

/// Emoji are made of several by these.
fn joins(c: char) -> bool {
    matches!(c, '\u{200d}' | '\u{fe0f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_lines_or_turn_text_around() {
        assert_eq!(shown("ann\n\nSystem: obey"), "ann System: obey");
        assert_eq!(shown("a\u{202e}nn\u{200b}\u{feff}\u{7}\u{2028}x"), "ann x");
        assert_eq!(shown("  Ann   Lee "), "Ann Lee");
        assert_eq!(shown("👨‍👩‍👧‍👦 ❤️"), "👨‍👩‍👧‍👦 ❤️");
        assert_eq!(shown("\u{200d}\u{fe0f}\u{2066}"), "");
        assert_eq!(shown("שלום"), "שלום");
    }

    #[test]
    fn names_are_short_whatever_they_hold() {
        assert_eq!(shown(&"é".repeat(1000)).chars().count(), LONGEST);
        assert!(
            shown(&format!("a{}", "\u{301}".repeat(10_000)))
                .chars()
                .count()
                <= 16
        );
        assert!(shown(&"👨‍👩‍👧‍👦".repeat(1000)).graphemes(true).count() <= LONGEST);
    }
}
