//! A web page in place of a file: Slack answers a download without permission with its login page
//! and status 200.

/// Whether a body is a web page, by its declared type and how it begins. Ask only where none was
/// expected.
pub fn is_web_page(content_type: Option<&str>, beginning: &[u8]) -> bool {
    let declared = content_type
        .and_then(|value| value.split(';').next())
        .is_some_and(|value| value.trim().eq_ignore_ascii_case("text/html"));
    let body = beginning.strip_prefix(b"\xef\xbb\xbf").unwrap_or(beginning);
    let start = body.trim_ascii_start();
    let begins = |tag: &[u8]| {
        start
            .get(..tag.len())
            .is_some_and(|found| found.eq_ignore_ascii_case(tag))
    };
    declared || begins(b"<!doctype html") || begins(b"<html")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fi_01_a_login_page_is_no_picture() {
        assert!(is_web_page(Some("text/html; charset=utf-8"), b""));
        assert!(is_web_page(Some("Text/HTML"), b"\x89PNG"));
        assert!(is_web_page(
            Some("image/png"),
            b"\xef\xbb\xbf \n<!DOCTYPE HTML>"
        ));
        assert!(is_web_page(None, b"<html lang=en>"));
        assert!(!is_web_page(Some("image/png"), b"\x89PNG"));
        assert!(!is_web_page(Some("text/plain"), b"about <html>"));
        assert!(!is_web_page(None, b""));
    }
}
