//! Pairing: somebody at the host makes a code, a person says it to the bot, and may speak from then on.
//!
//! The code is good once, for ten minutes, for a thousand wrong tries, and in a direct conversation only. It is
//! stored as a hash, and what was said with one in it is not kept.

use std::time::Duration;

use rand::Rng as _;
use sha2::{Digest as _, Sha256};

/// How long a code is good.
pub const GOOD_FOR: Duration = Duration::from_secs(10 * 60);
/// Wrong codes after which the open one is void. Anybody can write to a bot: five would let a stranger keep
/// people out, and a thousand guess one of 58 bits once in 10^14 codes.
pub const TRIES: i64 = 1_000;

/// Without letters and digits that look alike.
const LETTERS: &[u8] = b"23456789ABCDEFGHJKMNPQRSTVWXYZ";
/// 58 bits.
const LENGTH: usize = 12;

/// A fresh code, as it is shown: `ABCD-EFGH-JKMN`.
pub fn new_code() -> String {
    let mut random = rand::rng();
    let letters = (0..LENGTH).map(|_| LETTERS[random.random_range(0..LETTERS.len())]);
    let letters: Vec<u8> = letters.collect();
    let groups = letters.chunks(4).map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join("-")
}

/// What is stored of a code.
pub fn hash(code: &str) -> String {
    hex::encode(Sha256::digest(plain(code)))
}

/// The code in `/pair CODE`, or in `/start CODE`, which a link sends.
pub fn code_in(text: &str) -> Option<&str> {
    let mut words = text.split_whitespace();
    let first = words.next()?.to_lowercase();
    let command = first.strip_prefix(['/', '!'])?;
    let code = words.next()?;
    match command.split('@').next() {
        Some("pair") => Some(code),
        // Links for something else begin so too.
        Some("start") if looks_like_one(code) => Some(code),
        _ => None,
    }
}

/// Whether it has the form of a code.
pub fn looks_like_one(code: &str) -> bool {
    let code = plain(code);
    code.len() == LENGTH && code.bytes().all(|letter| LETTERS.contains(&letter))
}

/// However it was typed.
fn plain(code: &str) -> String {
    code.replace('-', "").to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_found_however_it_is_typed_and_fits_into_a_link() {
        let code = new_code();
        assert_eq!(code.len(), LENGTH + 2);
        assert_ne!(code, new_code());
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
        assert!(code.chars().all(fits), "{code}");
        for text in [
            format!("/pair {code}"),
            format!(" /Pair@mayfly_bot {} ", code.to_lowercase()),
            format!("!pair {}", code.replace('-', "")),
            format!("/start {code}"),
        ] {
            let found = code_in(&text).expect("a code");
            assert_eq!(hash(found), hash(&code), "{text}");
        }
        for text in [
            "/pair",
            "/start",
            "/start page-7",
            "pair ABCD",
            "say /pair X",
            "",
        ] {
            assert_eq!(code_in(text), None, "{text}");
        }
        assert_eq!(code_in("/pair x"), Some("x"));
    }
}
