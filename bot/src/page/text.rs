//! What people, agents and files say, as it may stand on a page. `maud` escapes; here goes what is
//! no markup and misleads all the same.

/// Lines stay; what would not be seen is marked. Writing from right to left stays, too: the style
/// sheet keeps its order to itself.
pub(super) fn said(text: &str) -> String {
    let keep = |c: char| match c {
        '\n' | '\t' => c,
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(keep).collect()
}

/// Browsers end the lines of a form as mail does; programs want them as they are typed.
pub(super) fn typed(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// The beginning of what is too long for a page, and whether something is left out.
pub(super) fn beginning(text: &str, bytes: usize) -> (&str, bool) {
    let end = text.floor_char_boundary(bytes);
    (&text[..end], end < text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_marked() {
        assert_eq!(
            said("a\tb\n\u{1b}[31mc\u{0}"),
            "a\tb\n\u{fffd}[31mc\u{fffd}"
        );
        assert_eq!(said("שלום\u{200f}"), "שלום\u{200f}");
        assert_eq!(typed("a\r\nb\rc\n"), "a\nb\rc\n");
    }

    #[test]
    fn a_character_is_never_cut() {
        assert_eq!(beginning("äö", 3), ("ä", true));
        assert_eq!(beginning("äö", 4), ("äö", false));
    }
}
