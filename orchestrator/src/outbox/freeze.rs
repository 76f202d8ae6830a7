//! A reply becomes parts, once: what is stored here is never rendered again.

use mayfly_domain::{ReplyFile, chat::Platform, free_name};

use crate::{
    blobs::{BlobError, Blobs},
    db::{deliveries::Owed, parts::What},
};

/// A reply that waited longer says so.
const OLD_MS: i64 = 15 * 60 * 1000;
const MINUTE_MS: i64 = 60 * 1000;

/// The parts of a reply: texts first, so that no file holds them up.
pub(super) async fn parts(
    platform: &dyn Platform,
    blobs: &Blobs,
    owed: &Owed,
    age_ms: i64,
) -> Result<Vec<What>, BlobError> {
    if !owed.buttons.is_empty() {
        let line = platform.line(&owed.reply.text, &owed.buttons);
        return Ok(vec![What::Text(line)]);
    }
    let text = aged(&owed.reply.text, age_ms);
    let rendered = platform.render(&text);
    let mut files = owed.reply.files.clone();
    if let Some((name, content)) = rendered.whole {
        let size = content.len() as u64;
        let taken = |name: &str| files.iter().any(|file| file.name == name);
        let name = free_name(&name, taken);
        let blob = blobs.put(content.into_bytes()).await?;
        files.insert(0, ReplyFile { name, blob, size });
    }
    let mut texts = rendered.parts;
    if texts.is_empty() && files.is_empty() {
        texts.push(platform.line("(The reply is empty.)", &[]));
    }
    let texts = texts.into_iter().map(What::Text);
    Ok(texts.chain(files.into_iter().map(What::File)).collect())
}

fn aged(text: &str, age_ms: i64) -> String {
    if age_ms < OLD_MS {
        return text.to_owned();
    }
    let minutes = age_ms / MINUTE_MS;
    let age = match minutes {
        0..120 => format!("{minutes} minutes"),
        120..2880 => format!("{} hours", minutes / 60),
        _ => format!("{} days", minutes / 60 / 24),
    };
    format!("*(This reply is {age} old; it could not be delivered earlier.)*\n\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_reply_says_its_age() {
        assert_eq!(aged("hi", OLD_MS - 1), "hi");
        for (age, told) in [(20, "20 minutes"), (300, "5 hours"), (2880, "2 days")] {
            let text = aged("hi", age * MINUTE_MS);
            assert!(text.contains(told) && text.ends_with("\n\nhi"), "{text}");
        }
    }
}
