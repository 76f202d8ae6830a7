//! Whether an HTTP request was sent by the platform. Compared in constant time.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// How far a request's time may be from ours, either way, in seconds. What is older may be replayed.
pub const SLACK_WINDOW_S: i64 = 300;

/// Why a request is refused. Says nothing about the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A header is not there.
    #[error("the request has no {0} header")]
    Missing(&'static str),
    /// Two of one header: which one a proxy in front looked at is not known.
    #[error("the request has more than one {0} header")]
    Twice(&'static str),
    /// A header is no timestamp or signature.
    #[error("the request's {0} header is malformed")]
    Malformed(&'static str),
    /// Recorded earlier, or a clock is wrong.
    #[error("the request's time is {0} s away from ours, at most 300 are taken: check both clocks")]
    Stale(i64),
    /// Another secret, or another body.
    #[error("the request's signature does not fit: check the signing secret")]
    Wrong,
}

const SIGNATURE: &str = "X-Slack-Signature";
const TIMESTAMP: &str = "X-Slack-Request-Timestamp";
const TELEGRAM: &str = "X-Telegram-Bot-Api-Secret-Token";

/// Checks a request of Slack (scheme v0). `signatures` and `timestamps` are all values of these two
/// headers, `body` the bytes as they came, `now` unix seconds.
pub fn slack<'a>(
    secret: &[u8],
    signatures: impl IntoIterator<Item = &'a [u8]>,
    timestamps: impl IntoIterator<Item = &'a [u8]>,
    body: &[u8],
    now: i64,
) -> Result<(), Refused> {
    let (given, timestamp) = slack_head(signatures, timestamps, now)?;
    if secret.is_empty() {
        return Err(Refused::Wrong);
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).map_err(|_| Refused::Wrong)?;
    for part in [b"v0:".as_slice(), timestamp, b":", body] {
        mac.update(part);
    }
    mac.verify_slice(&given).map_err(|_| Refused::Wrong)
}

/// What can be said of a request of Slack before its body is there: signature and time that it names.
pub fn slack_head<'a>(
    signatures: impl IntoIterator<Item = &'a [u8]>,
    timestamps: impl IntoIterator<Item = &'a [u8]>,
    now: i64,
) -> Result<(Vec<u8>, &'a [u8]), Refused> {
    let signature = only(signatures, SIGNATURE)?;
    let timestamp = only(timestamps, TIMESTAMP)?;
    let at: i64 = std::str::from_utf8(timestamp)
        .ok()
        .filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .ok_or(Refused::Malformed(TIMESTAMP))?;
    let away = now.saturating_sub(at);
    if away.saturating_abs() > SLACK_WINDOW_S {
        return Err(Refused::Stale(away));
    }
    let given = signature
        .strip_prefix(b"v0=")
        .and_then(|digits| hex::decode(digits).ok())
        .filter(|given| given.len() == 32)
        .ok_or(Refused::Malformed(SIGNATURE))?;
    Ok((given, timestamp))
}

/// Checks a request of Telegram: `tokens` are all values of its secret header.
pub fn telegram<'a>(
    secret: &[u8],
    tokens: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(), Refused> {
    let token = only(tokens, TELEGRAM)?;
    if secret.is_empty() || !bool::from(token.ct_eq(secret)) {
        return Err(Refused::Wrong);
    }
    Ok(())
}

fn only<'a>(
    values: impl IntoIterator<Item = &'a [u8]>,
    name: &'static str,
) -> Result<&'a [u8], Refused> {
    let mut values = values.into_iter();
    let value = values.next().ok_or(Refused::Missing(name))?;
    match values.next() {
        Some(_) => Err(Refused::Twice(name)),
        None => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Slack's documentation.
    const SECRET: &[u8] = b"8f742231b10e8888abcd99yyyzzz85a5";
    const BODY: &[u8] = b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
    const GOOD: &[u8] = b"v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
    const AT: i64 = 1_531_420_618;

    fn check(signature: &[u8], at: &[u8], body: &[u8], now: i64) -> Result<(), Refused> {
        slack(SECRET, [signature], [at], body, now)
    }

    #[test]
    fn the_documented_example_is_taken_within_its_window() {
        for now in [AT - 300, AT, AT + 300] {
            assert_eq!(check(GOOD, b"1531420618", BODY, now), Ok(()));
        }
        assert_eq!(
            check(GOOD, b"1531420618", BODY, AT + 301),
            Err(Refused::Stale(301))
        );
        assert_eq!(
            check(GOOD, b"1531420618", BODY, AT - 301),
            Err(Refused::Stale(-301))
        );
    }

    #[test]
    fn what_was_changed_is_refused() {
        let other = b"v0=b2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
        assert_eq!(check(other, b"1531420618", BODY, AT), Err(Refused::Wrong));
        assert_eq!(
            check(GOOD, b"1531420618", &BODY[1..], AT),
            Err(Refused::Wrong)
        );
        // A recorded request with a fresh time.
        assert_eq!(check(GOOD, b"1531420619", BODY, AT), Err(Refused::Wrong));
        // No secret is set: nothing is taken, not what everybody could sign.
        let mut mac = Hmac::<Sha256>::new_from_slice(b"").unwrap();
        mac.update(b"v0:1531420618:");
        mac.update(BODY);
        let signed = format!("v0={}", hex::encode(mac.finalize().into_bytes()));
        let unset = slack(
            b"",
            [signed.as_bytes()],
            [b"1531420618".as_slice()],
            BODY,
            AT,
        );
        assert_eq!(unset, Err(Refused::Wrong));
        assert_eq!(
            slack(b"other", [GOOD], [b"1531420618".as_slice()], BODY, AT),
            Err(Refused::Wrong)
        );
    }

    #[test]
    fn malformed_missing_and_double_headers_are_refused() {
        let at = b"1531420618".as_slice();
        for bad in [
            &GOOD[3..],
            b"v0=",
            b"v0=zz",
            b"v1=00",
            &GOOD[..65],
            b"\xff",
            b"",
        ] {
            assert_eq!(check(bad, at, BODY, AT), Err(Refused::Malformed(SIGNATURE)));
        }
        for bad in [
            b"".as_slice(),
            b"-1",
            b"+1531420618",
            b"1e9",
            b"99999999999999999999",
            b" 1531420618",
        ] {
            assert_eq!(
                check(GOOD, bad, BODY, AT),
                Err(Refused::Malformed(TIMESTAMP))
            );
        }
        assert_eq!(
            slack(SECRET, [], [at], BODY, AT),
            Err(Refused::Missing(SIGNATURE))
        );
        assert_eq!(
            slack(SECRET, [GOOD], [], BODY, AT),
            Err(Refused::Missing(TIMESTAMP))
        );
        assert_eq!(
            slack(SECRET, [GOOD, GOOD], [at], BODY, AT),
            Err(Refused::Twice(SIGNATURE))
        );
        assert_eq!(
            slack(SECRET, [GOOD], [at, at], BODY, AT),
            Err(Refused::Twice(TIMESTAMP))
        );
    }

    #[test]
    fn telegrams_token_is_compared_whole() {
        let check = |tokens: &[&'static [u8]]| telegram(b"s3cret", tokens.iter().copied());
        assert_eq!(check(&[b"s3cret"]), Ok(()));
        for bad in [b"s3cre".as_slice(), b"s3cret ", b"S3cret", b""] {
            assert_eq!(check(&[bad]), Err(Refused::Wrong));
        }
        assert_eq!(check(&[]), Err(Refused::Missing(TELEGRAM)));
        assert_eq!(
            check(&[b"s3cret", b"s3cret"]),
            Err(Refused::Twice(TELEGRAM))
        );
        // No secret is set: nothing is taken, not everything.
        assert_eq!(telegram(b"", [b"".as_slice()]), Err(Refused::Wrong));
    }
}
