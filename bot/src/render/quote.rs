//! Names as they can be shown and read back: any byte may stand in one.

/// As it is, or in C-style quotes where a byte in it could steer a terminal, end a line, mislead
/// the eye (Unicode's bidirectional controls) or is no UTF-8. As `git` prints names.
pub(crate) fn quoted(name: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(name)
        && !text.chars().any(|c| c == '"' || c == '\\' || steers(c))
    {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                c if steers(c) => octal(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => out.push(c),
            }
        }
        octal(&mut out, chunk.invalid());
    }
    out.push('"');
    out
}

fn octal(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        out.push_str(&format!("\\{byte:03o}"));
    }
}

/// Moves the cursor, starts a command of a terminal, or turns the order of what follows.
pub(crate) fn steers(c: char) -> bool {
    let turns = ['\u{200e}', '\u{200f}', '\u{061c}', '\u{2028}', '\u{2029}'];
    c.is_control()
        || turns.contains(&c)
        || ('\u{202a}'..='\u{202e}').contains(&c)
        || ('\u{2066}'..='\u{2069}').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn only_names_that_need_it_are_quoted() {
        assert_eq!(quoted("/work/ä b'".as_bytes()), "/work/ä b'");
        assert_eq!(quoted(b"a\nb\t\x1b[31m"), "\"a\\nb\\t\\033[31m\"");
        assert_eq!(quoted(b"say \"\\\""), "\"say \\\"\\\\\\\"\"");
        assert_eq!(quoted(b"\xff\xc3\xa4"), "\"\\377ä\"");
        assert_eq!(quoted("a\u{202e}b".as_bytes()), "\"a\\342\\200\\256b\"");
    }
}
