//! Writes one layer as a tar stream. The same calls write the same bytes.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
};

use super::{
    header::{BLOCK, Flag, Head, Meta, encode},
    sparse::{self, Pieces},
};

/// How much of a file is read at once.
const READ: usize = 256 << 10;

/// A user's extended attributes, by name.
pub(super) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// A file's content.
pub(super) struct Body<'a> {
    pub(super) from: &'a File,
    pub(super) length: u64,
    /// Only these are stored.
    pub(super) pieces: Option<&'a Pieces>,
}

pub(super) struct Writer<W> {
    out: W,
    buffer: Vec<u8>,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(out: W) -> Self {
        Writer {
            out,
            buffer: vec![0; READ],
        }
    }

    /// `path` ends in `/`.
    pub(super) fn folder(&mut self, path: &[u8], meta: Meta, xattrs: &Xattrs) -> io::Result<()> {
        let head = head(path, Flag::Folder, meta);
        self.head(&Head { xattrs, ..head })
    }

    /// `same` is the name in an older layer whose inode this is.
    pub(super) fn symlink(
        &mut self,
        path: &[u8],
        meta: Meta,
        target: &[u8],
        same: Option<&[u8]>,
    ) -> io::Result<()> {
        let head = head(path, Flag::Symlink, meta);
        self.head(&Head {
            target,
            same,
            ..head
        })
    }

    /// One more name of what an entry before has as `target`.
    pub(super) fn link(&mut self, path: &[u8], meta: Meta, target: &[u8]) -> io::Result<()> {
        let head = head(path, Flag::Link, meta);
        self.head(&Head { target, ..head })
    }

    /// An empty file whose name says everything.
    pub(super) fn mark(&mut self, path: &[u8]) -> io::Result<()> {
        self.head(&head(path, Flag::File, Meta::plain(0)))
    }

    /// A file from memory.
    pub(super) fn bytes(&mut self, path: &[u8], meta: Meta, content: &[u8]) -> io::Result<()> {
        let stored = content.len() as u64;
        let head = head(path, Flag::File, meta);
        self.head(&Head { stored, ..head })?;
        self.out.write_all(content)?;
        self.pad(stored)
    }

    /// A file from disk; `same` is the name in an older layer whose inode it is.
    pub(super) fn file(
        &mut self,
        path: &[u8],
        meta: Meta,
        xattrs: &Xattrs,
        body: &Body<'_>,
        same: Option<&[u8]>,
    ) -> io::Result<()> {
        let length = body.length;
        let head = Head {
            xattrs,
            same,
            ..head(path, Flag::File, meta)
        };
        let Some(pieces) = body.pieces else {
            self.head(&Head {
                stored: length,
                ..head
            })?;
            self.copy(body.from, 0, length)?;
            return self.pad(length);
        };
        let map = sparse::encode(pieces, length);
        let data: u64 = pieces.iter().map(|(_, len)| len).sum();
        let stored = map.len() as u64 + data;
        let sparse = Some(length);
        self.head(&Head {
            stored,
            sparse,
            ..head
        })?;
        self.out.write_all(&map)?;
        for (at, len) in pieces {
            self.copy(body.from, *at, *len)?;
        }
        self.pad(data)
    }

    /// Two empty blocks end the stream.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        Ok(self.out)
    }

    fn head(&mut self, head: &Head<'_>) -> io::Result<()> {
        self.out.write_all(&encode(head))
    }

    fn copy(&mut self, from: &File, mut at: u64, mut left: u64) -> io::Result<()> {
        while left > 0 {
            let want = READ.min(usize::try_from(left).unwrap_or(READ));
            let len = from.read_at(&mut self.buffer[..want], at)?;
            if len == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.out.write_all(&self.buffer[..len])?;
            (at, left) = (at + len as u64, left - len as u64);
        }
        Ok(())
    }

    fn pad(&mut self, length: u64) -> io::Result<()> {
        let over = (length % BLOCK as u64) as usize;
        match over {
            0 => Ok(()),
            over => self.out.write_all(&[0; BLOCK][over..]),
        }
    }
}

/// The head of a file of Mayfly's own, of so many bytes.
pub(super) fn plain_file(path: &[u8], stored: u64) -> Head<'_> {
    Head {
        stored,
        ..head(path, Flag::File, Meta::plain(0o644))
    }
}

fn head(path: &[u8], flag: Flag, meta: Meta) -> Head<'_> {
    Head {
        path,
        flag,
        meta,
        stored: 0,
        target: b"",
        sparse: None,
        same: None,
        xattrs: &[],
    }
}
