//! Names in an archive: marks of the image specification, and users' names that look like one.
//!
//! A user's name that begins with `.wh.`, after any number of `%`, gets one more `%` in front, so
//! that no reader takes it for a mark. Nothing else is changed; the way back takes one `%` away.

use std::borrow::Cow;

const WHITEOUT: &[u8] = b".wh.";
/// Hides whatever older layers have in its folder.
pub(super) const OPAQUE: &[u8] = b".wh..wh..opq";

/// What one name of an archive's path says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning<'a> {
    /// A user's name.
    Plain(&'a [u8]),
    /// The user's name of what is hidden.
    Hides(&'a [u8]),
    /// See [`OPAQUE`].
    Opaque,
    /// A mark that we do not know, or of a name that cannot be.
    Unknown,
}

fn looks_like_a_mark(name: &[u8]) -> bool {
    let bare = name.iter().position(|byte| *byte != b'%');
    bare.is_some_and(|at| name[at..].starts_with(WHITEOUT))
}

/// A user's name as an archive has it.
pub(super) fn escape(name: &[u8]) -> Cow<'_, [u8]> {
    match looks_like_a_mark(name) {
        true => Cow::Owned([b"%", name].concat()),
        false => Cow::Borrowed(name),
    }
}

/// Each name of a path.
pub(super) fn escape_path(path: &[u8]) -> Vec<u8> {
    let names: Vec<_> = path.split(|byte| *byte == b'/').map(escape).collect();
    names.join(&b'/')
}

/// The mark that hides a user's name.
pub(super) fn whiteout(name: &[u8]) -> Vec<u8> {
    [WHITEOUT, &escape(name)].concat()
}

pub(super) fn read(name: &[u8]) -> Meaning<'_> {
    if name == OPAQUE {
        return Meaning::Opaque;
    }
    let Some(hidden) = name.strip_prefix(WHITEOUT) else {
        return Meaning::Plain(unescape(name));
    };
    match hidden {
        b"" | b"." | b".." => Meaning::Unknown,
        _ if hidden.starts_with(WHITEOUT) => Meaning::Unknown,
        _ => Meaning::Hides(unescape(hidden)),
    }
}

fn unescape(name: &[u8]) -> &[u8] {
    match looks_like_a_mark(name) {
        true => name.strip_prefix(b"%").unwrap_or(name),
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_name_comes_back_and_is_no_mark(name in "[%.wh]{0,3}(\\.wh\\.)?[%.whopqx]{1,8}") {
            let name = name.as_bytes();
            prop_assume!(!matches!(name, b"." | b".."));
            let (escaped, hidden) = (escape(name), whiteout(name));
            prop_assert_eq!(read(&escaped), Meaning::Plain(name));
            prop_assert_eq!(read(&hidden), Meaning::Hides(name));
        }
    }

    #[test]
    fn only_names_that_look_like_marks_change() {
        assert_eq!(&*escape(b".wh.x"), b"%.wh.x");
        assert_eq!(&*escape(b"%.wh.x"), b"%%.wh.x");
        assert_eq!(&*escape(b"100%"), b"100%");
        assert_eq!(read(b".wh..wh.plnk"), Meaning::Unknown);
        assert_eq!(read(b".wh.."), Meaning::Unknown);
        assert_eq!(escape_path(b"a/.wh.b/c"), b"a/%.wh.b/c");
    }
}
