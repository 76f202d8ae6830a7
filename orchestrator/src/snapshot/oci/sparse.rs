//! Where a file has data and where holes: found on disk, written as GNU's sparse map 1.0, read back.

use std::{fs::File, io};

use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};

use super::header::BLOCK;

/// More pieces than this are not kept apart, nor taken from an archive: the map is held in memory.
const PIECES_MAX: usize = 1 << 22;

/// Of one number; endless zeros in front of it are none.
const DIGITS_MAX: usize = 20;

/// Data of a file: `(offset, length)`, in order, without overlap.
pub(super) type Pieces = Vec<(u64, u64)>;

/// None where the file has no hole, or too many to tell.
pub(super) fn pieces(file: &File, length: u64) -> rustix::io::Result<Option<Pieces>> {
    let mut found = Pieces::new();
    let mut at = 0;
    while at < length {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error),
        };
        let hole = seek(file, SeekFrom::Hole(data))?.min(length);
        if found.len() == PIECES_MAX || hole <= data {
            return Ok(None);
        }
        found.push((data, hole - data));
        at = hole;
    }
    let whole = matches!(found[..], [(0, all)] if all == length) || length == 0;
    Ok((!whole).then_some(found))
}

/// Decimal lines, padded to a block. Readers learn a file's end from the last piece.
pub(super) fn encode(pieces: &Pieces, length: u64) -> Vec<u8> {
    let ends = pieces.last().is_some_and(|(at, len)| at + len == length);
    let last = (!ends).then_some((length, 0));
    let count = pieces.len() + usize::from(!ends);
    let mut out = format!("{count}\n").into_bytes();
    for (at, len) in pieces.iter().copied().chain(last) {
        out.extend_from_slice(format!("{at}\n{len}\n").as_bytes());
    }
    out.resize(out.len().next_multiple_of(BLOCK), 0);
    out
}

/// Reads a map and nothing behind it. `stored` is how much follows in all: map and data.
pub(super) fn decode(
    content: &mut impl io::Read,
    stored: u64,
    length: u64,
) -> io::Result<Result<Pieces, &'static str>> {
    let mut lines = Lines {
        content,
        block: [0; BLOCK],
        at: BLOCK,
        taken: 0,
    };
    let Some(count) = lines.number()? else {
        return Ok(Err("a sparse map without a count"));
    };
    if count > PIECES_MAX as u64 || count > stored / 4 + 1 {
        return Ok(Err("a sparse map with too many pieces"));
    }
    let mut pieces = Pieces::new();
    let (mut end, mut data) = (0, 0_u64);
    for _ in 0..count {
        let (Some(at), Some(len)) = (lines.number()?, lines.number()?) else {
            return Ok(Err("a sparse map that ends early"));
        };
        let stop = at.checked_add(len);
        match stop {
            Some(stop) if at >= end && stop <= length => end = stop,
            _ => return Ok(Err("a sparse map out of order")),
        }
        data += len;
        if len > 0 {
            pieces.push((at, len));
        }
    }
    Ok(match lines.taken + data == stored {
        true => Ok(pieces),
        false => Err("a sparse map of another length than its content"),
    })
}

struct Lines<'a, R> {
    content: &'a mut R,
    block: [u8; BLOCK],
    at: usize,
    taken: u64,
}

impl<R: io::Read> Lines<'_, R> {
    fn number(&mut self) -> io::Result<Option<u64>> {
        let mut value: Option<u64> = None;
        for _ in 0..=DIGITS_MAX {
            if self.at == BLOCK {
                self.content.read_exact(&mut self.block)?;
                (self.at, self.taken) = (0, self.taken + BLOCK as u64);
            }
            let byte = self.block[self.at];
            self.at += 1;
            if byte == b'\n' {
                return Ok(value);
            }
            if !byte.is_ascii_digit() {
                return Ok(None);
            }
            let digit = u64::from(byte - b'0');
            let tens = value.unwrap_or(0).checked_mul(10);
            value = tens.and_then(|tens| tens.checked_add(digit));
            if value.is_none_or(|value| value > i64::MAX as u64) {
                return Ok(None);
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn back(map: &[u8], stored: u64, length: u64) -> Result<Pieces, &'static str> {
        decode(&mut &map[..], stored, length).unwrap()
    }

    #[test]
    fn a_map_comes_back() {
        for (pieces, length) in [
            (vec![], 5_u64),
            (vec![(4096, 10)], 4106),
            (vec![(0, 4096), (8192, 1)], 1 << 40),
        ] {
            let map = encode(&pieces, length);
            let data: u64 = pieces.iter().map(|(_, len)| len).sum();
            assert_eq!(back(&map, map.len() as u64 + data, length), Ok(pieces));
        }
    }

    #[test]
    fn maps_that_lie_are_refused() {
        let map = |text: &str| {
            let mut map = text.as_bytes().to_vec();
            map.resize(BLOCK, 0);
            map
        };
        for text in [
            "",
            "9999999\n",
            "1\n0\n",
            "2\n8\n1\n4\n1\n",
            "1\n0\n99\n",
            "1\n0\n5\n",
            "x\n",
        ] {
            assert!(back(&map(text), 512 + 4, 50).is_err(), "{text:?}");
        }
        assert!(back(&map("1\n18446744073709551615\n5\n"), 517, 50).is_err());
        let mut endless = io::repeat(b'0').take(1 << 40);
        assert!(decode(&mut endless, 1 << 40, 50).unwrap().is_err());
        assert!((1 << 40) - endless.limit() <= BLOCK as u64);
    }
}
