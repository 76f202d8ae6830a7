//! Updates that Telegram sends to a URL, as the second way beside polling.

use mayfly_domain::Incoming;
use reqwest::header::HeaderMap;

use super::parse::{Me, parse};
use crate::signature::{self, Refused};

/// The header that carries the secret which `setWebhook` was given.
pub const SECRET: &str = "x-telegram-bot-api-secret-token";

/// One request, if it came from Telegram. It may be answered with 200 when the inbox has what is
/// returned; before that Telegram sends it again.
pub fn webhook(
    headers: &HeaderMap,
    body: &[u8],
    secret: &str,
    me: &Me,
) -> Result<Incoming, Refused> {
    let given = headers.get_all(SECRET).iter();
    signature::telegram(secret.as_bytes(), given.map(|value| value.as_bytes()))?;
    Ok(Incoming {
        platform: "telegram".to_owned(),
        raw: body.to_vec(),
        event: Ok(parse(body, me)),
    })
}
