//! Slack's mrkdwn. `<` begins a link and nothing else: `<@U1>` and `<!here>` would ping.

use super::Item;

pub(crate) fn mrkdwn(source: &str) -> Vec<Item> {
    assert_eq!(
        source.matches("```").count() % 2,
        0,
        "a fence is open in {source}"
    );
    let mut items = Vec::new();
    let mut text = String::new();
    for (n, piece) in source.split("```").enumerate() {
        let code = n % 2 == 1;
        if !code {
            assert_eq!(
                piece.matches('`').count() % 2,
                0,
                "code is open in {source}"
            );
        }
        let mut line_start = true;
        let mut rest = piece;
        while let Some(c) = rest.chars().next() {
            if line_start && !code && rest.starts_with("> ") {
                rest = &rest[2..];
                line_start = false;
                continue;
            }
            line_start = c == '\n';
            match c {
                '<' => {
                    assert!(!code, "a link in code in {source}");
                    let end = rest.find('>').expect("a link ends");
                    items.push(Item::Text(std::mem::take(&mut text)));
                    items.push(link(&rest[1..end]));
                    rest = &rest[end + 1..];
                }
                '&' => {
                    let end = rest.find(';').expect("an entity ends");
                    text.push_str(&entities(&rest[..=end]));
                    rest = &rest[end + 1..];
                }
                c => {
                    text.push(c);
                    rest = &rest[c.len_utf8()..];
                }
            }
        }
    }
    items.push(Item::Text(text));
    items
}

fn link(inner: &str) -> Item {
    let known = ["http://", "https://", "mailto:"];
    let (url, label) = inner.split_once('|').unwrap_or((inner, ""));
    assert!(
        known.iter().any(|scheme| url
            .get(..scheme.len())
            .is_some_and(|s| s.eq_ignore_ascii_case(scheme))),
        "<{inner}> is no link"
    );
    let url = entities(url);
    match label {
        "" => Item::Text(url),
        label => Item::Link {
            label: entities(label),
            url,
        },
    }
}

fn entities(text: &str) -> String {
    for entity in text.split('&').skip(1) {
        let known = ["amp;", "lt;", "gt;"];
        assert!(
            known.iter().any(|known| entity.starts_with(known)),
            "&{entity}"
        );
    }
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}
