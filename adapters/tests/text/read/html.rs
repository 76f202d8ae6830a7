//! Telegram's HTML, as strict as Telegram: known tags, nested well, closed.

use super::Item;

pub(crate) fn html(source: &str) -> Vec<Item> {
    let mut items = Vec::new();
    let mut text = String::new();
    let mut open: Vec<&str> = Vec::new();
    let mut link: Option<String> = None;
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        match c {
            '<' => {
                let end = rest.find('>').expect("a tag ends");
                let tag = &rest[1..end];
                rest = &rest[end + 1..];
                if let Some(name) = tag.strip_prefix('/') {
                    assert_eq!(open.pop(), Some(name), "nesting in {source}");
                    if name == "a" {
                        let label = std::mem::take(&mut text);
                        let url = link.take().expect("a link");
                        items.push(Item::Link { label, url });
                    }
                } else {
                    let (name, attribute) = tag.split_once(' ').unwrap_or((tag, ""));
                    begin(name, attribute, &open);
                    if let Some(url) = attribute.strip_prefix("href=\"") {
                        items.push(Item::Text(std::mem::take(&mut text)));
                        let url = url.strip_suffix('"').expect("a quote");
                        link = Some(url.replace("&amp;", "&"));
                    }
                    open.push(name);
                }
            }
            '>' => panic!("a bare > in {source}"),
            '&' => {
                let end = rest.find(';').expect("an entity ends");
                text.push(match &rest[..=end] {
                    "&lt;" => '<',
                    "&gt;" => '>',
                    "&amp;" => '&',
                    other => panic!("{other} in {source}"),
                });
                rest = &rest[end + 1..];
            }
            c => {
                text.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    assert!(open.is_empty(), "{open:?} is open in {source}");
    items.push(Item::Text(text));
    items
}

fn begin(name: &str, attribute: &str, open: &[&str]) {
    assert!(
        ["b", "i", "s", "a", "code", "pre", "blockquote"].contains(&name),
        "{name}"
    );
    assert!(!open.contains(&name), "{name} within {name}");
    match name {
        "a" => {
            assert!(attribute.starts_with("href=\"http") || attribute.starts_with("href=\"mailto:"))
        }
        "code" if !attribute.is_empty() => {
            assert_eq!(open.last(), Some(&"pre"));
            assert!(attribute.starts_with("class=\"language-"));
        }
        _ => assert_eq!(attribute, ""),
    }
    let code = open.contains(&"code") || (open.contains(&"pre") && name != "code");
    assert!(!code, "{name} within code");
}
