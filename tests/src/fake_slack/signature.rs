//! The signature of requests, made by other hands than the adapter's: RFC 2104.

use sha2::{Digest as _, Sha256};

use super::SIGNING_SECRET;

fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

/// The header `X-Slack-Signature` of a body that is sent at this time, unix seconds.
pub fn signed(at: i64, body: &[u8]) -> String {
    let mut key = [0u8; 64];
    key[..SIGNING_SECRET.len()].copy_from_slice(SIGNING_SECRET.as_bytes());
    let inner = key.map(|byte| byte ^ 0x36);
    let outer = key.map(|byte| byte ^ 0x5c);
    let text = format!("v0:{at}:");
    let inner = hash(&[&inner, text.as_bytes(), body]);
    format!("v0={}", hex::encode(hash(&[&outer, &inner])))
}
