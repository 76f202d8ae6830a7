//! Which addresses become links.

/// Longest address that is kept whole, as it is written out (`&` as `&amp;`).
const LONGEST: usize = 1200;

/// A link's target as it is written, if it is one that every platform opens and that names nobody
/// (Telegram's `tg://user?id=` pings).
pub(super) fn linkable(target: &str) -> Option<String> {
    let schemes = ["https://", "http://", "mailto:"];
    let scheme = schemes.iter().find(|scheme| {
        target
            .get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    })?;
    if target.len() == scheme.len() {
        return None;
    }
    let mut clean = String::with_capacity(target.len());
    for c in target.chars() {
        let special = matches!(c, '<' | '>' | '"' | '|' | '`' | '\\');
        if special || c.is_whitespace() || c.is_control() {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                clean.push_str(&format!("%{byte:02X}"));
            }
        } else {
            clean.push(c);
        }
    }
    fits(&clean).then_some(clean)
}

/// How many bytes at the start of `text` are an address that a person typed without marks.
pub(super) fn bare(text: &str) -> Option<usize> {
    let scheme = ["https://", "http://"]
        .into_iter()
        .find(|scheme| text.starts_with(scheme))?;
    let end = text
        .find(|c: char| {
            c.is_whitespace()
                || c.is_control()
                || super::layout::invisible(c)
                || matches!(c, '<' | '>' | '"' | '`' | '|' | '\\')
        })
        .unwrap_or(text.len());
    let mut url = &text[..end];
    while let Some(last) = url.chars().next_back() {
        let closes = match last {
            ')' => url.matches('(').count() < url.matches(')').count(),
            '.' | ',' | ':' | ';' | '!' | '?' | '\'' | '*' | '_' | '~' | ']' | '}' => true,
            _ => false,
        };
        if !closes {
            break;
        }
        url = &url[..url.len() - last.len_utf8()];
    }
    let host = url.get(scheme.len()..)?.chars().next()?;
    (host.is_alphanumeric() && fits(url)).then_some(url.len())
}

fn fits(url: &str) -> bool {
    url.chars().count() + 4 * url.matches('&').count() <= LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_ping_nobody_are_links() {
        assert_eq!(linkable("tg://user?id=1"), None);
        assert_eq!(linkable("javascript:alert(1)"), None);
        assert_eq!(linkable("src/main.rs"), None);
        assert_eq!(linkable("https://"), None);
        assert_eq!(
            linkable("HTTPS://x.io/a b|c>\"").as_deref(),
            Some("HTTPS://x.io/a%20b%7Cc%3E%22")
        );
        assert_eq!(linkable(&format!("https://{}", "a".repeat(2000))), None);
    }

    #[test]
    fn a_bare_address_ends_where_the_sentence_goes_on() {
        let bare_of = |text: &'static str| bare(text).map(|end| &text[..end]);
        assert_eq!(bare_of("https://x.io/a_b. Next"), Some("https://x.io/a_b"));
        assert_eq!(bare_of("https://x.io/a_(b))"), Some("https://x.io/a_(b)"));
        assert_eq!(bare_of("https://."), None);
        assert_eq!(bare_of("ftp://x.io"), None);
    }
}
