//! The HTML that messages may be written in: few tags, well nested, three entities.

/// What people see of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// Without tags and entities.
    pub text: String,
    /// How many entities it has.
    pub entities: usize,
}

const TAGS: [&str; 16] = [
    "b",
    "strong",
    "i",
    "em",
    "u",
    "ins",
    "s",
    "strike",
    "del",
    "span",
    "tg-spoiler",
    "a",
    "code",
    "pre",
    "blockquote",
    "tg-emoji",
];

/// Reads a text as the Bot API does; the error is what it would say.
pub(super) fn read(html: &str) -> Result<Seen, String> {
    let mut open: Vec<&str> = Vec::new();
    let mut seen = Seen {
        text: String::new(),
        entities: 0,
    };
    let mut rest = html;
    while let Some(at) = rest.find(['<', '&']) {
        seen.text.push_str(&rest[..at]);
        let offset = html.len() - rest.len() + at;
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix('&') {
            let (shown, length) = entity(after);
            seen.text.push_str(&shown);
            rest = &after[length..];
            continue;
        }
        let close = rest.find('>').ok_or_else(|| unclosed(offset))?;
        let tag = &rest[1..close];
        rest = &rest[close + 1..];
        match tag.strip_prefix('/') {
            Some(name) => match open.pop() {
                Some(begun) if begun.eq_ignore_ascii_case(name.trim()) => seen.entities += 1,
                Some(begun) => {
                    return Err(format!(
                        "can't parse entities: Unmatched end tag at byte offset {offset}, expected \"</{begun}>\", found \"</{name}>\""
                    ));
                }
                None => {
                    return Err(format!(
                        "can't parse entities: Unexpected end tag at byte offset {offset}"
                    ));
                }
            },
            None => {
                let name = tag.split_whitespace().next().unwrap_or_default();
                if !TAGS.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                    return Err(format!(
                        "can't parse entities: Unsupported start tag \"{name}\" at byte offset {offset}"
                    ));
                }
                open.push(name);
            }
        }
    }
    seen.text.push_str(rest);
    match open.pop() {
        None => Ok(seen),
        Some(name) => Err(format!(
            "can't parse entities: Can't find end tag corresponding to start tag \"{name}\""
        )),
    }
}

fn unclosed(offset: usize) -> String {
    format!("can't parse entities: Unclosed start tag at byte offset {offset}")
}

/// What stands after `&`: what is shown, and how many bytes it took. Unknown ones are text.
fn entity(after: &str) -> (String, usize) {
    let Some(end) = after.find(';').filter(|end| *end <= 8) else {
        return ("&".to_owned(), 0);
    };
    let shown = match &after[..end] {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "amp" => Some('&'),
        "quot" => Some('"'),
        name => number(name),
    };
    match shown {
        Some(shown) => (shown.to_string(), end + 1),
        None => ("&".to_owned(), 0),
    }
}

fn number(name: &str) -> Option<char> {
    let digits = name.strip_prefix('#')?;
    let value = match digits.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    char::from_u32(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_and_what_is_refused() {
        let shown = |html| read(html).map(|seen| seen.text);
        assert_eq!(
            shown("a &lt; <b>b &amp;&amp; <i>c</i></b>").unwrap(),
            "a < b && c"
        );
        assert_eq!(
            shown("<pre><code class=\"language-rs\">x</code></pre>").unwrap(),
            "x"
        );
        assert_eq!(shown("&nbsp;&#65;&").unwrap(), "&nbsp;A&");
        assert!(
            shown("<b><i>x</b></i>")
                .unwrap_err()
                .contains("expected \"</i>\"")
        );
        assert!(
            shown("<h1>x</h1>")
                .unwrap_err()
                .contains("Unsupported start tag \"h1\"")
        );
        assert!(shown("<b>x").unwrap_err().contains("Can't find end tag"));
        assert!(shown("a < b").unwrap_err().contains("Unclosed"));
    }
}
