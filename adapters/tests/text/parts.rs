//! A reply on all three platforms, checked to be whole and within limits.

use mayfly_adapters::text::{Rendered, discord, slack, telegram};

use crate::read::{self, Item};

/// The parts of a platform as a person reads them.
pub(crate) struct Seen {
    pub(crate) parts: Vec<Vec<Item>>,
    /// Only the beginning; the rest is in a file.
    pub(crate) cut: bool,
}

pub(crate) const NOTE: &str = "(The whole reply is in the attached file.)";

fn parts<P>(source: &str, rendered: Rendered<P>) -> (Vec<P>, bool) {
    match rendered {
        Rendered::Parts(parts) => {
            assert!(parts.len() <= 3);
            (parts, false)
        }
        Rendered::Long { summary, file } => {
            assert_eq!(file.name, "reply.md");
            assert_eq!(file.content, source);
            (vec![summary], true)
        }
    }
}

fn fits(text: &str, limit: usize) {
    assert!(
        text.chars().count() <= limit,
        "{} scalars",
        text.chars().count()
    );
    assert!(!read::seen(text).is_empty(), "nothing to see");
}

fn seen<P>((parts, cut): (Vec<P>, bool), read: impl Fn(&P) -> Vec<Item>) -> Seen {
    Seen {
        parts: parts.iter().map(read).collect(),
        cut,
    }
}

pub(crate) fn on_slack(source: &str) -> (Seen, Seen) {
    let (parts, cut) = parts(source, slack::render(source));
    for part in &parts {
        fits(&part.text, 4000);
        fits(&part.markdown, 12_000);
        let outside: Vec<&str> = part
            .markdown
            .split("<http")
            .enumerate()
            .map(|(n, piece)| match piece.split_once('>') {
                Some((_, after)) if n > 0 => after,
                _ => piece,
            })
            .collect();
        let outside = outside.join(" ");
        for mention in ["<@", "<!", "<#", "@here", "@channel", "@everyone"] {
            assert!(!outside.contains(mention), "{mention} in {}", part.markdown);
        }
    }
    let text = parts.iter().map(|part| read::mrkdwn(&part.text)).collect();
    let markdown = parts
        .iter()
        .map(|part| read::markdown(&part.markdown))
        .collect();
    (
        Seen { parts: text, cut },
        Seen {
            parts: markdown,
            cut,
        },
    )
}

pub(crate) fn on_discord(source: &str) -> Seen {
    seen(parts(source, discord::render(source)), |part| {
        fits(&part.content, 2000);
        read::discord(&part.content)
    })
}

/// The HTML read, and the plain texts.
pub(crate) fn on_telegram(source: &str) -> (Seen, Vec<String>) {
    let (parts, cut) = parts(source, telegram::render(source));
    let plain = parts
        .iter()
        .map(|part| {
            fits(&part.plain, 4000);
            part.plain.clone()
        })
        .collect();
    let html = seen((parts, cut), |part| {
        fits(&part.html, 4000);
        read::html(&part.html)
    });
    (html, plain)
}

/// Every platform shows what the reply says, all of it or its beginning.
pub(crate) fn check(source: &str) {
    let reply = read::markdown(source);
    let whole = read::text(&reply);
    let (text, markdown) = on_slack(source);
    let discord = on_discord(source);
    let (html, plain) = on_telegram(source);
    if whole.is_empty() {
        return;
    }
    same(
        "Slack text",
        source,
        &reply,
        &text,
        read::text_without_marks,
    );
    same("Slack markdown", source, &reply, &markdown, read::text);
    same("Discord", source, &reply, &discord, read::text);
    same("Telegram", source, &reply, &html, read::text);
    if !html.cut {
        // Plain text repeats a cut link's address, and draws quotations with `>`.
        let plain = read::seen(&plain.concat());
        let mut rest = plain.chars();
        for c in whole.chars() {
            assert!(
                rest.any(|other| other == c),
                "{c} is not in\n{plain}\nof\n{source}"
            );
        }
    }
}

fn same(
    platform: &str,
    source: &str,
    reply: &[Item],
    seen: &Seen,
    text: impl Fn(&[Item]) -> String,
) {
    let whole = &text(reply);
    let shown = text(&seen.parts.concat());
    let shown = if seen.cut {
        let shown = shown
            .strip_suffix(&read::seen(NOTE))
            .unwrap_or_else(|| panic!("{platform} does not say that there is more"));
        // Where a link was cut, its address stands after the beginning of its label.
        shown
            .rsplit_once("(http")
            .map_or(shown, |(before, _)| before)
    } else {
        shown.as_str()
    };
    let common = shown
        .chars()
        .zip(whole.chars())
        .take_while(|(a, b)| a == b)
        .count();
    let all = if seen.cut { shown } else { whole };
    if common < all.chars().count() || (!seen.cut && common < shown.chars().count()) {
        let around = |text: &str| -> String {
            text.chars()
                .skip(common.saturating_sub(20))
                .take(60)
                .collect()
        };
        panic!(
            "{platform} shows {:?} for {:?}, character {common} of {}",
            around(shown),
            around(whole),
            source.len(),
        );
    }
}
