//! Changes of bytes that readers of text, numbers and blocks are sensitive to.

use rand::{Rng, rngs::StdRng, seq::IndexedRandom};

const LONGEST: usize = 1 << 18;
const BLOCK: usize = 512;
/// What parsers stumble over.
const WORDS: [&[u8]; 24] = [
    b"0",
    b"-1",
    b"9223372036854775807",
    b"18446744073709551615",
    b"77777777777",
    b"\0",
    b"\xff\xff\xff\xff",
    b"\n",
    b"..",
    b"/",
    b".wh.",
    b".wh..wh..opq",
    b"%",
    b"work/",
    b"<next>",
    b"null",
    b"{}",
    b"[",
    b"\"\\u0000\"",
    b"ustar\x0000",
    b"sha256:",
    b"SCHILY.xattr.trusted.overlay.redirect=/",
    b"1\n0\n1\n",
    b"\x1f\x8b",
];

/// One change; `other` gives what is spliced in.
pub(crate) fn mutate(random: &mut StdRng, bytes: &mut Vec<u8>, other: &[u8]) {
    if bytes.is_empty() {
        bytes.extend_from_slice(other);
        return;
    }
    let at = random.random_range(0..bytes.len());
    let length = random.random_range(1..=(bytes.len() - at).min(2 * BLOCK));
    match random.random_range(0..9) {
        0 => bytes[at] ^= 1 << random.random_range(0..8),
        1 => bytes[at] = random.random(),
        2 => drop(bytes.drain(at..at + length)),
        3 => bytes.truncate(at),
        4 => {
            let word = WORDS.choose(random).expect("words");
            bytes.splice(at..at, word.iter().copied());
        }
        5 => {
            let word = WORDS.choose(random).expect("words");
            let end = (at + word.len()).min(bytes.len());
            bytes.splice(at..end, word.iter().copied());
        }
        6 => {
            let part = bytes[at..at + length].to_vec();
            let to = random.random_range(0..=bytes.len());
            bytes.splice(to..to, part);
        }
        7 => {
            // Whole blocks: entries change places, or are there twice.
            let blocks = bytes.len() / BLOCK + 1;
            let (from, to) = (
                random.random_range(0..blocks),
                random.random_range(0..blocks),
            );
            let end = ((from + 2) * BLOCK).min(bytes.len());
            let part = bytes[(from * BLOCK).min(end)..end].to_vec();
            let to = (to * BLOCK).min(bytes.len());
            bytes.splice(to..to, part);
        }
        _ if !other.is_empty() => {
            let from = random.random_range(0..other.len());
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        _ => {}
    }
    bytes.truncate(LONGEST);
}
