//! Secrets taken out of text: known ones wherever they stand, and everything that has the form of a
//! platform's token, also inside addresses.

/// What stands in place of a secret.
pub const MASK: &str = "[secret]";

/// `text` without the `known` secrets and without anything shaped like a token.
pub fn redact(text: &str, known: &[&str]) -> String {
    let mut clean = text.to_owned();
    for secret in known.iter().filter(|secret| !secret.is_empty()) {
        clean = clean.replace(secret, MASK);
    }
    for (mark, is_token) in MARKS {
        clean = after(&clean, mark, is_token);
    }
    words(&clean)
}

type Form = fn(&str) -> bool;

/// Where in an address a secret follows, and what it looks like there.
const MARKS: [(&str, Form); 6] = [
    ("/bot", telegram),
    ("hooks.slack.com/", anything),
    ("/interactions/", anything),
    ("/webhooks/", anything),
    ("/link/?ticket=", anything),
    ("Bearer ", anything),
];

fn anything(text: &str) -> bool {
    !text.is_empty()
}

/// `123456:AA...`, also percent-encoded.
fn telegram(text: &str) -> bool {
    let text = text.replace("%3A", ":").replace("%3a", ":");
    let first = text.split('/').next().unwrap_or_default();
    first.split_once(':').is_some_and(|(id, secret)| {
        id.len() >= 5 && id.bytes().all(|b| b.is_ascii_digit()) && secret.len() >= 20
    })
}

/// Replaces what follows `mark`, up to where an address ends, if it has the form.
fn after(text: &str, mark: &str, is_token: Form) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(mark) {
        let start = at + mark.len();
        let end = rest[start..]
            .find(|c: char| c.is_whitespace() || "\"'<>)]}\\".contains(c))
            .map_or(rest.len(), |end| start + end);
        clean.push_str(&rest[..start]);
        let found = &rest[start..end];
        if found == MASK || !is_token(found) {
            clean.push_str(found);
        } else {
            clean.push_str(MASK);
        }
        rest = &rest[end..];
    }
    clean.push_str(rest);
    clean
}

/// Tokens are recognised by themselves wherever they stand.
fn words(text: &str) -> String {
    let part = |c: char| c.is_ascii_alphanumeric() || "-_.:%".contains(c);
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(part) {
        clean.push_str(&rest[..start]);
        let word = &rest[start..];
        let end = word.find(|c| !part(c)).unwrap_or(word.len());
        let word = &word[..end];
        clean.push_str(if token(word) { MASK } else { word });
        rest = &rest[start + end..];
    }
    clean.push_str(rest);
    clean
}

fn token(word: &str) -> bool {
    let slack = [
        "xoxb-", "xoxp-", "xoxa-", "xoxe-", "xoxe.", "xoxr-", "xoxs-", "xapp-",
    ];
    slack.iter().any(|start| word.contains(start)) || telegram(word) || discord(word)
}

/// Three parts of base64, of which the first is an id.
fn discord(word: &str) -> bool {
    let parts: Vec<&str> = word.split('.').collect();
    let letters = |part: &str| {
        part.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    matches!(parts.as_slice(), [id, time, mac]
        if id.len() >= 18 && time.len() == 6 && mac.len() >= 27
            && letters(id) && letters(time) && letters(mac))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Of the right form, and nobody's.
    const TELEGRAM: &str = "123456789:AAaaBBbbCCccDDddEEeeFFffGGggHHhhIIi";

    fn discord_form() -> String {
        [
            "MTEyMjMzNDQ1NTY2Nzc4ODk5",
            "Gabcde",
            "abcdefghijklmnopqrstuvwxyz0123456789AB",
        ]
        .join(".")
    }

    #[test]
    fn se_05_an_error_that_names_the_address_does_not_name_the_token() {
        for text in [
            format!(
                "error sending request for url (https://api.telegram.org/bot{TELEGRAM}/getUpdates): connection reset"
            ),
            format!(
                "https://api.telegram.org/file/bot{}/documents/a.txt",
                TELEGRAM.replace(':', "%3A")
            ),
            format!("token was Use this token: {TELEGRAM} Keep it"),
        ] {
            let clean = redact(&text, &[]);
            assert!(!clean.contains("AAaaBBbb"), "{clean}");
            assert!(clean.contains(MASK));
        }
    }

    #[test]
    fn se_05_every_platforms_tokens_are_masked_wherever_they_stand() {
        let bot = format!("{}-1-2-abcDEF", "xoxb");
        let discord = discord_form();
        for secret in [bot.as_str(), "xapp-1-A1-2-abc", discord.as_str(), TELEGRAM] {
            for text in [
                secret.to_owned(),
                format!("\"{secret}\""),
                format!("a={secret}&b"),
                format!("Bot {secret}\n"),
            ] {
                let clean = redact(&text, &[]);
                assert!(!clean.contains(secret), "{clean}");
            }
        }
        let hook = redact(
            "POST https://hooks.slack.com/services/T1/B2/c3d4 failed",
            &[],
        );
        assert_eq!(hook, format!("POST https://hooks.slack.com/{MASK} failed"));
        let interaction = redact(
            "(https://discord.com/api/v10/interactions/1/aW50ZXJ/callback)",
            &[],
        );
        assert_eq!(
            interaction,
            format!("(https://discord.com/api/v10/interactions/{MASK})")
        );
    }

    #[test]
    fn known_secrets_are_masked_without_a_form() {
        let clean = redact("signing hunter2hunter2 failed", &["hunter2hunter2", ""]);
        assert_eq!(clean, format!("signing {MASK} failed"));
    }

    #[test]
    fn ordinary_text_stays() {
        for text in [
            "",
            "GET /robots.txt took 12:34:56",
            "see https://x.io/bot/commands and a.b.c",
            "Größe 10:00 — «ok»",
        ] {
            assert_eq!(redact(text, &[]), text);
        }
    }
}
