//! The 512 bytes in front of each entry, and PAX records: what ustar has no room for
//! (POSIX.1-2017, pax). One state has one form: numbers in octal where they fit, records else, in a
//! fixed order.

use rustix::fs::Timespec;

pub(super) const BLOCK: usize = 512;
/// The most that all records of one entry may take: extended attributes of one file.
pub(super) const RECORDS_MAX: u64 = 16 << 20;
/// The name of the entry that carries records.
const RECORDS_NAME: &[u8] = b"././@PaxHeader";
const NAME_MAX: usize = 100;
const OCTAL_7: u64 = 0o777_7777;
const OCTAL_11: u64 = 0o777_7777_7777;

/// Attributes that every entry has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: Timespec,
}

impl Meta {
    /// Of marks, and of folders that belong to no slot.
    pub(super) fn plain(mode: u32) -> Meta {
        Meta {
            mode,
            uid: 0,
            gid: 0,
            mtime: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
        }
    }
}

/// Type flags that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flag {
    File = b'0' as isize,
    Link = b'1' as isize,
    Symlink = b'2' as isize,
    Folder = b'5' as isize,
}

/// An entry to be written.
pub(super) struct Head<'a> {
    pub(super) path: &'a [u8],
    pub(super) flag: Flag,
    pub(super) meta: Meta,
    /// Bytes that follow.
    pub(super) stored: u64,
    /// Where a link goes.
    pub(super) target: &'a [u8],
    /// The length of a file that is stored with a map of its data.
    pub(super) sparse: Option<u64>,
    /// The name in an older layer whose inode this is.
    pub(super) same: Option<&'a [u8]>,
    pub(super) xattrs: &'a [(Vec<u8>, Vec<u8>)],
}

/// The blocks in front of an entry's content.
pub(super) fn encode(head: &Head<'_>) -> Vec<u8> {
    let records = records(head);
    let mut out = Vec::with_capacity(3 * BLOCK + records.len());
    if !records.is_empty() {
        let meta = Meta::plain(0o644);
        let size = records.len() as u64;
        out.extend_from_slice(&block(RECORDS_NAME, b'x', &meta, size, b""));
        out.extend_from_slice(&records);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    let flag = head.flag as u8;
    out.extend_from_slice(&block(
        head.path,
        flag,
        &head.meta,
        head.stored,
        head.target,
    ));
    out
}

fn records(head: &Head<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let long = |text: &[u8]| text.len() > NAME_MAX || !text.is_ascii();
    if head.sparse.is_none() && long(head.path) {
        record(&mut out, b"path", head.path);
    }
    if long(head.target) {
        record(&mut out, b"linkpath", head.target);
    }
    for (key, value, most) in [
        ("size", head.stored, OCTAL_11),
        ("uid", head.meta.uid.into(), OCTAL_7),
        ("gid", head.meta.gid.into(), OCTAL_7),
    ] {
        if value > most {
            record(&mut out, key.as_bytes(), value.to_string().as_bytes());
        }
    }
    let mtime = head.meta.mtime;
    if mtime.tv_nsec != 0 || !(0..=OCTAL_11 as i64).contains(&mtime.tv_sec) {
        record(&mut out, b"mtime", show_time(mtime).as_bytes());
    }
    if let Some(length) = head.sparse {
        record(&mut out, b"GNU.sparse.major", b"1");
        record(&mut out, b"GNU.sparse.minor", b"0");
        record(&mut out, b"GNU.sparse.name", head.path);
        record(&mut out, SPARSE_LENGTH, length.to_string().as_bytes());
    }
    if let Some(same) = head.same {
        record(&mut out, SAME, same);
    }
    for (name, value) in head.xattrs {
        // A key ends at its first `=`.
        let key = match name.contains(&b'=') {
            false => [XATTR, name].concat(),
            true => [XATTR_HEX, hex::encode(name).as_bytes()].concat(),
        };
        record(&mut out, &key, value);
    }
    out
}

pub(super) const XATTR: &[u8] = b"SCHILY.xattr.";
pub(super) const XATTR_HEX: &[u8] = b"MAYFLY.xattr.";
/// A link to an older layer cannot be one in the archive: the engine unpacks each layer alone.
pub(super) const SAME: &[u8] = b"MAYFLY.link";
pub(super) const SPARSE_LENGTH: &[u8] = b"GNU.sparse.realsize";

/// `length key=value\n`, where the length counts itself.
fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    out.extend_from_slice(length.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn block(path: &[u8], flag: u8, meta: &Meta, stored: u64, target: &[u8]) -> [u8; BLOCK] {
    let mut out = [0; BLOCK];
    let fits = |value: u64, most: u64| if value > most { 0 } else { value };
    let seconds = u64::try_from(meta.mtime.tv_sec).unwrap_or(0);
    put(&mut out, 0, &path[..path.len().min(NAME_MAX)]);
    octal(&mut out, 100, 7, u64::from(meta.mode & 0o7777));
    octal(&mut out, 108, 7, fits(meta.uid.into(), OCTAL_7));
    octal(&mut out, 116, 7, fits(meta.gid.into(), OCTAL_7));
    octal(&mut out, 124, 11, fits(stored, OCTAL_11));
    octal(&mut out, 136, 11, fits(seconds, OCTAL_11));
    out[156] = flag;
    put(&mut out, 157, &target[..target.len().min(NAME_MAX)]);
    put(&mut out, 257, b"ustar\x0000");
    octal(&mut out, 329, 7, 0);
    octal(&mut out, 337, 7, 0);
    let sum = checksum(&out);
    octal(&mut out, 148, 6, sum);
    out[155] = b' ';
    out
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

fn octal(out: &mut [u8], at: usize, digits: usize, value: u64) {
    put(out, at, format!("{value:0digits$o}").as_bytes());
}

/// With the field of the sum itself taken as blanks.
pub(super) fn checksum(block: &[u8; BLOCK]) -> u64 {
    let all: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    let own: u64 = block[148..156].iter().map(|byte| u64::from(*byte)).sum();
    all - own + 8 * u64::from(b' ')
}

/// Decimal seconds with up to nine digits behind the point.
fn show_time(time: Timespec) -> String {
    let (mut seconds, mut nanos) = (i128::from(time.tv_sec), i128::from(time.tv_nsec));
    let sign = match seconds < 0 {
        true => {
            let total = -(seconds * 1_000_000_000 + nanos);
            (seconds, nanos) = (total / 1_000_000_000, total % 1_000_000_000);
            "-"
        }
        false => "",
    };
    let text = format!("{sign}{seconds}.{nanos:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The way back; none where it is no such number.
pub(super) fn read_time(text: &[u8]) -> Option<Timespec> {
    let text = std::str::from_utf8(text).ok()?;
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (seconds, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !plain(seconds) || !plain(fraction) || fraction.len() > 9 || seconds.len() > 19 {
        return None;
    }
    let nanos: i128 = format!("{fraction:0<9}").parse().ok()?;
    let mut total = seconds.parse::<i128>().ok()? * 1_000_000_000 + nanos;
    if negative {
        total = -total;
    }
    Some(Timespec {
        tv_sec: i64::try_from(total.div_euclid(1_000_000_000)).ok()?,
        tv_nsec: total.rem_euclid(1_000_000_000) as _,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn times_come_back(tv_sec in any::<i64>(), tv_nsec in 0..1_000_000_000_i64) {
            let time = Timespec { tv_sec, tv_nsec: tv_nsec as _ };
            prop_assert_eq!(read_time(show_time(time).as_bytes()), Some(time));
        }
    }

    #[test]
    fn times_are_plain_decimals() {
        let time = |tv_sec, tv_nsec| show_time(Timespec { tv_sec, tv_nsec });
        assert_eq!(time(12, 0), "12");
        assert_eq!(time(12, 500_000_000), "12.5");
        assert_eq!(time(-2, 500_000_000), "-1.5");
        assert_eq!(time(-1, 999_999_999), "-0.000000001");
    }

    #[test]
    fn a_records_length_counts_its_own_digits() {
        for len in 0..300 {
            let mut out = Vec::new();
            record(&mut out, b"k", &vec![b'v'; len]);
            let told = out.split(|byte| *byte == b' ').next().unwrap();
            let told: usize = std::str::from_utf8(told).unwrap().parse().unwrap();
            assert_eq!(told, out.len());
        }
    }
}
