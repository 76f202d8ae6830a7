//! Reads a tar stream that anybody may have made: ustar entries and PAX records. What is not
//! understood is refused, not guessed. Memory is bounded by the caps here, whatever sizes are told;
//! nothing is written.

use std::{
    collections::HashSet,
    io::{self, Read},
};

use super::{
    header::{self, BLOCK, Meta, RECORDS_MAX, SAME, SPARSE_LENGTH, XATTR, XATTR_HEX, read_time},
    sparse::{self, Pieces},
};

/// The longest path: deeper folders than a seal takes do not fit.
const PATH_MAX: usize = 1 << 20;
/// The most records of one entry: more attributes than a file system lists (64 KiB of names).
const RECORD_COUNT_MAX: usize = 1 << 14;
/// What may follow the end mark.
const TAIL_MAX: u64 = 1 << 20;

const USTAR: &[u8] = b"ustar\x0000";
/// What `tar` writes unless told otherwise; the same where names are short.
const GNU: &[u8] = b"ustar  \0";

/// Why a stream is not read on.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// It could not be read, or ends early.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is no archive that we take.
    #[error("{0}")]
    Bad(&'static str),
}

type Result<T> = std::result::Result<T, TarError>;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Link,
    Symlink,
    Folder,
    /// Device or fifo.
    Node,
}

#[derive(Debug)]
pub(super) struct Entry {
    /// Neither empty nor absolute; may still be anything else.
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) meta: Meta,
    pub(super) target: Vec<u8>,
    /// A file's length.
    pub(super) length: u64,
    /// Its data, where it has holes.
    pub(super) pieces: Option<Pieces>,
    /// The name in an older layer whose inode it was.
    pub(super) same: Option<Vec<u8>>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

pub(super) struct Reader<R> {
    from: R,
    /// Of the current entry's content.
    left: u64,
    padding: u64,
}

/// What the records in front of an entry said.
#[derive(Default)]
struct Records {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u32>,
    gid: Option<u32>,
    mtime: Option<rustix::fs::Timespec>,
    same: Option<Vec<u8>>,
    sparse_name: Option<Vec<u8>>,
    sparse_length: Option<u64>,
    sparse_version: (Option<u64>, Option<u64>),
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    seen: HashSet<Vec<u8>>,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(from: R) -> Self {
        Reader {
            from,
            left: 0,
            padding: 0,
        }
    }

    /// The next entry; what was left of the last one is skipped. None at the end.
    pub(super) fn next(&mut self) -> Result<Option<Entry>> {
        self.skip()?;
        let Some(mut block) = self.block()? else {
            return Ok(None);
        };
        let mut records = Records::default();
        if block[156] == b'x' {
            records = self.records(&block)?;
            block = self.block()?.ok_or(TarError::Bad("records of no entry"))?;
        }
        self.entry(&block, records).map(Some)
    }

    /// Bytes of the current entry's content; 0 at its end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let want = into
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if want == 0 {
            return Ok(0);
        }
        match self.from.read(&mut into[..want])? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            len => {
                self.left -= len as u64;
                Ok(len)
            }
        }
    }

    /// All of a small entry.
    pub(super) fn bytes(&mut self, most: u64) -> Result<Vec<u8>> {
        if self.left > most {
            return Err(TarError::Bad("a file larger than it may be"));
        }
        let mut content = Vec::new();
        let read = (&mut self.from).take(self.left).read_to_end(&mut content)?;
        if read as u64 != self.left {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.left = 0;
        Ok(content)
    }

    /// Reads to the end of the stream; nothing but zeros may follow, and not many.
    pub(super) fn finish(mut self) -> Result<R> {
        let mut rest = [0; 8192];
        let mut seen = 0;
        loop {
            let len = self.from.read(&mut rest)?;
            seen += len as u64;
            if len == 0 {
                return Ok(self.from);
            }
            if seen > TAIL_MAX || rest[..len].iter().any(|byte| *byte != 0) {
                return Err(TarError::Bad("content behind its end"));
            }
        }
    }

    fn skip(&mut self) -> Result<()> {
        let total = self.left + self.padding;
        let skipped = io::copy(&mut (&mut self.from).take(total), &mut io::sink())?;
        if skipped != total {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        (self.left, self.padding) = (0, 0);
        Ok(())
    }

    /// A header with a right checksum; none where the two empty blocks are.
    fn block(&mut self) -> Result<Option<[u8; BLOCK]>> {
        let mut block = [0; BLOCK];
        self.from.read_exact(&mut block)?;
        if block == [0; BLOCK] {
            self.from.read_exact(&mut block)?;
            return match block == [0; BLOCK] {
                true => Ok(None),
                false => Err(TarError::Bad("an empty header")),
            };
        }
        if octal(&block[148..156]) != Some(header::checksum(&block)) {
            return Err(TarError::Bad("a header with a wrong checksum"));
        }
        if ![USTAR, GNU].contains(&&block[257..265]) {
            return Err(TarError::Bad("a header that is not ustar"));
        }
        Ok(Some(block))
    }

    fn expect(&mut self, stored: u64) -> Result<()> {
        // Sums of it must not overflow.
        if stored > i64::MAX as u64 {
            return Err(TarError::Bad("an impossible size"));
        }
        self.left = stored;
        self.padding = stored.next_multiple_of(BLOCK as u64) - stored;
        Ok(())
    }

    fn records(&mut self, block: &[u8; BLOCK]) -> Result<Records> {
        let stored = octal(&block[124..136]).ok_or(TarError::Bad("a size that is no number"))?;
        self.expect(stored)?;
        let text = match stored > RECORDS_MAX {
            true => return Err(TarError::Bad("records larger than they may be")),
            false => self.bytes(RECORDS_MAX)?,
        };
        self.skip()?;
        let mut records = Records::default();
        let mut rest = &text[..];
        while !rest.is_empty() {
            rest = records
                .take(rest)
                .ok_or(TarError::Bad("a malformed record"))?;
        }
        records.check()
    }

    fn entry(&mut self, block: &[u8; BLOCK], records: Records) -> Result<Entry> {
        let number = |from: usize, to: usize| {
            octal(&block[from..to]).ok_or(TarError::Bad("a field that is no number"))
        };
        let id = |record: Option<u32>, from, to| match record {
            Some(id) => Ok(id),
            None => u32::try_from(number(from, to)?).map_err(|_| TarError::Bad("an impossible id")),
        };
        let kind = match block[156] {
            b'0' | 0 => Kind::File,
            b'1' => Kind::Link,
            b'2' => Kind::Symlink,
            b'5' => Kind::Folder,
            b'3' | b'4' | b'6' => Kind::Node,
            _ => return Err(TarError::Bad("an entry of unknown kind")),
        };
        let sparse = records.sparse_length.zip(records.sparse_name);
        let mut path = match (&sparse, records.path) {
            (Some((_, name)), _) => name.clone(),
            (None, Some(path)) => path,
            (None, None) => name(block),
        };
        if path.len() > PATH_MAX || path.contains(&0) {
            return Err(TarError::Bad("an impossible path"));
        }
        if kind == Kind::Folder && path.last() == Some(&b'/') {
            path.pop();
        }
        let meta = Meta {
            mode: (number(100, 108)? & 0o7777) as u32,
            uid: id(records.uid, 108, 116)?,
            gid: id(records.gid, 116, 124)?,
            mtime: match records.mtime {
                Some(mtime) => mtime,
                None => rustix::fs::Timespec {
                    tv_sec: number(136, 148)? as i64,
                    tv_nsec: 0,
                },
            },
        };
        if meta.uid == u32::MAX || meta.gid == u32::MAX {
            return Err(TarError::Bad("an impossible id"));
        }
        let stored = match records.size {
            Some(size) => size,
            None => number(124, 136)?,
        };
        if kind != Kind::File && (stored != 0 || sparse.is_some()) {
            return Err(TarError::Bad("content of what has none"));
        }
        self.expect(stored)?;
        let (length, pieces) = match sparse {
            None => (stored, None),
            Some((length, _)) => (length, Some(self.map(length)?)),
        };
        let target = records.target.unwrap_or_else(|| cut(&block[157..257]));
        Ok(Entry {
            path,
            kind,
            meta,
            target,
            length,
            pieces,
            same: records.same,
            xattrs: records.xattrs,
        })
    }

    fn map(&mut self, length: u64) -> Result<Pieces> {
        let stored = self.left;
        let mut content = (&mut self.from).take(stored);
        let pieces = sparse::decode(&mut content, stored, length)?.map_err(TarError::Bad)?;
        self.left = content.limit();
        Ok(pieces)
    }
}

impl Records {
    /// Takes one record off the front; none where it is malformed.
    fn take<'a>(&mut self, text: &'a [u8]) -> Option<&'a [u8]> {
        let space = text.iter().take(20).position(|byte| *byte == b' ')?;
        let length = usize::try_from(decimal(&text[..space])?).ok()?;
        let record = text.get(space + 1..length)?;
        let record = record.strip_suffix(b"\n")?;
        let equals = record.iter().position(|byte| *byte == b'=')?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        let new = !key.is_empty() && !key.contains(&0) && self.seen.insert(key.to_vec());
        if !new || self.seen.len() > RECORD_COUNT_MAX {
            return None;
        }
        self.put(key, value)?;
        text.get(length..)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let id = |value| u32::try_from(decimal(value)?).ok();
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.target = Some(value.to_vec()),
            b"size" => self.size = Some(decimal(value)?),
            b"uid" => self.uid = Some(id(value)?),
            b"gid" => self.gid = Some(id(value)?),
            b"mtime" => self.mtime = Some(read_time(value)?),
            b"GNU.sparse.major" => self.sparse_version.0 = Some(decimal(value)?),
            b"GNU.sparse.minor" => self.sparse_version.1 = Some(decimal(value)?),
            b"GNU.sparse.name" => self.sparse_name = Some(value.to_vec()),
            SAME => self.same = Some(value.to_vec()),
            SPARSE_LENGTH => self.sparse_length = Some(decimal(value)?),
            // A name under which nobody else's reader finds the data.
            _ if key.starts_with(b"GNU.") => return None,
            _ => self.put_xattr(key, value)?,
        }
        Some(())
    }

    /// Records that say nothing of what we keep are passed over.
    fn put_xattr(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let name = match (key.strip_prefix(XATTR), key.strip_prefix(XATTR_HEX)) {
            (Some(name), _) => name.to_vec(),
            (None, Some(text)) => hex::decode(text).ok()?,
            (None, None) => return Some(()),
        };
        let users = name.starts_with(b"user.") && !name.starts_with(b"user.overlay.");
        let lists = name == b"system.posix_acl_access" || name == b"system.posix_acl_default";
        if users || lists {
            let sane = name.len() <= 255 && !name.contains(&0) && value.len() <= 65536;
            sane.then(|| self.xattrs.push((name, value.to_vec())))?;
        }
        Some(())
    }

    fn check(self) -> Result<Records> {
        let sparse = match (&self.sparse_name, self.sparse_length, self.sparse_version) {
            (None, None, (None, None)) => true,
            (Some(_), Some(length), (Some(1), Some(0))) => length <= i64::MAX as u64,
            _ => false,
        };
        match sparse {
            true => Ok(self),
            false => Err(TarError::Bad("a sparse file of another form than 1.0")),
        }
    }
}

fn name(block: &[u8; BLOCK]) -> Vec<u8> {
    let (name, prefix) = (cut(&block[..100]), cut(&block[345..500]));
    match prefix.is_empty() || &block[257..265] == GNU {
        true => name,
        false => [prefix, name].join(&b'/'),
    }
}

fn cut(field: &[u8]) -> Vec<u8> {
    let end = field.iter().position(|byte| *byte == 0);
    field[..end.unwrap_or(field.len())].to_vec()
}

/// Digits with blanks or zeros around them; an empty field is 0.
fn octal(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?;
    let text = text.trim_matches([' ', '\0']);
    if text.is_empty() {
        return Some(0);
    }
    let plain = text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    plain.then(|| u64::from_str_radix(text, 8).ok()).flatten()
}

fn decimal(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let value: u64 = plain.then(|| text.parse().ok()).flatten()?;
    (value <= i64::MAX as u64).then_some(value)
}
