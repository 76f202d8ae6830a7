//! Compression and digests on the way out and back. Out: one thread reads and digests the plain
//! stream, others compress it, one more digests and stores the result. Back: no more memory than a small
//! window and one piece, whatever a stream says of itself.

use std::{
    fs::File,
    io::{self, BufReader, Read, Write},
    sync::mpsc::{Receiver, SyncSender, channel, sync_channel},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

/// How layers are stored. The distribution's own tools read `gzip` and `none`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compress {
    /// Read by everybody.
    #[default]
    Gzip,
    /// Faster and smaller.
    Zstd,
    /// As large as the files.
    None,
}

/// Levels that keep up with a disk; higher ones win little.
const GZIP_LEVEL: u32 = 1;
const ZSTD_LEVEL: i32 = 1;
/// Compressing threads of one layer. More or less of them make the same bytes, none makes others.
const ZSTD_THREADS: u32 = 2;
/// What passes from thread to thread.
const CHUNK: usize = 1 << 20;
const CHUNKS: usize = 4;
/// What is unpacked ahead of who reads it.
const AHEAD: usize = 256 << 10;
/// The largest window that is taken: 8 MiB; ours are smaller.
const WINDOW_LOG_MAX: u32 = 23;

const TAR: &str = "application/vnd.oci.image.layer.v1.tar";

impl Compress {
    pub(super) fn media_type(self) -> String {
        match self {
            Compress::None => TAR.to_owned(),
            Compress::Gzip => format!("{TAR}+gzip"),
            Compress::Zstd => format!("{TAR}+zstd"),
        }
    }

    pub(super) fn of_media_type(text: &str) -> Option<Compress> {
        [Compress::Gzip, Compress::Zstd, Compress::None]
            .into_iter()
            .find(|compress| compress.media_type() == text)
    }
}

impl std::str::FromStr for Compress {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "gzip" => Ok(Compress::Gzip),
            "zstd" => Ok(Compress::Zstd),
            "none" => Ok(Compress::None),
            _ => Err("gzip, zstd or none is wanted"),
        }
    }
}

/// What a stream became.
pub(super) struct Squeezed {
    /// Of what is stored, hexadecimal.
    pub(super) digest: String,
    /// Of the plain stream.
    pub(super) diff_id: String,
    /// Bytes stored.
    pub(super) size: u64,
}

/// Stores what `fill` writes. An error of the other thread shows as a broken pipe in `fill`; it is
/// the one that is told.
pub(super) fn squeeze<E>(
    compress: Compress,
    into: &File,
    fill: impl FnOnce(Feeder) -> Result<Feeder, E>,
) -> Result<Result<Squeezed, E>, io::Error> {
    let (full, filled) = sync_channel(CHUNKS);
    let (empty, emptied) = channel();
    std::thread::scope(|scope| {
        let storing = scope.spawn(move || store(compress, into, &filled, |used| empty.send(used)));
        let fed = fill(Feeder {
            chunk: Vec::with_capacity(CHUNK),
            plain: Sha256::new(),
            full,
            emptied,
        });
        let fed = fed.map(|feeder| feeder.end());
        let stored = storing.join();
        let (digest, size) = stored.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(match fed {
            Err(error) => Err(error),
            Ok(diff_id) => {
                let diff_id = diff_id?;
                Ok(Squeezed {
                    digest: digest.unwrap_or_else(|| diff_id.clone()),
                    diff_id,
                    size,
                })
            }
        })
    })
}

/// The plain end; gathers small writes.
pub(super) struct Feeder {
    chunk: Vec<u8>,
    plain: Sha256,
    full: SyncSender<Vec<u8>>,
    emptied: Receiver<Vec<u8>>,
}

impl Feeder {
    fn pass(&mut self) -> io::Result<()> {
        self.plain.update(&self.chunk);
        let next = self.emptied.try_recv();
        let next = next.unwrap_or_else(|_| Vec::with_capacity(CHUNK));
        let chunk = std::mem::replace(&mut self.chunk, next);
        let passed = self.full.send(chunk);
        passed.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn end(mut self) -> io::Result<String> {
        self.pass()?;
        Ok(hex::encode(self.plain.finalize()))
    }
}

impl Write for Feeder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(CHUNK - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..taken]);
        if self.chunk.len() == CHUNK {
            self.pass()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Answers the digest of what is stored, where that is not the plain stream, and its length.
fn store<T>(
    compress: Compress,
    mut into: &File,
    filled: &Receiver<Vec<u8>>,
    used: impl Fn(Vec<u8>) -> T,
) -> io::Result<(Option<String>, u64)> {
    if compress != Compress::None {
        return std::thread::scope(|scope| {
            let (done, kept) = sync_channel(CHUNKS);
            let keeping = scope.spawn(move || keep(into, &kept));
            let pressed = press(compress, Passed::new(done), filled, used);
            let kept = keeping.join();
            let kept = kept.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            pressed.map(|()| kept)
        });
    }
    let mut size = 0;
    for mut chunk in filled.iter().filter(|chunk| !chunk.is_empty()) {
        into.write_all(&chunk)?;
        size += chunk.len() as u64;
        chunk.clear();
        used(chunk);
    }
    Ok((None, size))
}

fn press<T>(
    compress: Compress,
    mut into: Passed,
    filled: &Receiver<Vec<u8>>,
    used: impl Fn(Vec<u8>) -> T,
) -> io::Result<()> {
    let chunks = filled.iter().filter(|chunk| !chunk.is_empty());
    let pass = |chunk: Vec<u8>, out: &mut dyn Write| -> io::Result<()> {
        out.write_all(&chunk)?;
        let mut chunk = chunk;
        chunk.clear();
        used(chunk);
        Ok(())
    };
    match compress {
        Compress::None => {}
        Compress::Gzip => {
            let level = flate2::Compression::new(GZIP_LEVEL);
            let mut out = flate2::write::GzEncoder::new(&mut into, level);
            for chunk in chunks {
                pass(chunk, &mut out)?;
            }
            out.finish()?;
        }
        Compress::Zstd => {
            let mut out = zstd::Encoder::new(&mut into, ZSTD_LEVEL)?;
            out.multithread(ZSTD_THREADS)?;
            for chunk in chunks {
                pass(chunk, &mut out)?;
            }
            out.finish()?;
        }
    }
    into.pass()
}

/// To the thread that keeps what is stored; an error of it shows as a broken pipe here. Small writes
/// are gathered: to wake a thread costs more than they do.
struct Passed {
    piece: Vec<u8>,
    to: SyncSender<Vec<u8>>,
}

impl Passed {
    fn new(to: SyncSender<Vec<u8>>) -> Passed {
        Passed {
            piece: Vec::with_capacity(CHUNK),
            to,
        }
    }

    fn pass(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(CHUNK));
        let sent = self.to.send(piece);
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Passed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(CHUNK - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() == CHUNK {
            self.pass()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn keep(mut into: &File, pieces: &Receiver<Vec<u8>>) -> io::Result<(Option<String>, u64)> {
    let (mut digest, mut size) = (Sha256::new(), 0);
    for piece in pieces {
        digest.update(&piece);
        into.write_all(&piece)?;
        size += piece.len() as u64;
    }
    Ok((Some(hex::encode(digest.finalize())), size))
}

/// The plain stream of what is stored.
pub(super) fn unsqueeze(compress: Compress, from: File) -> io::Result<Digested> {
    let from: Box<dyn Read> = match compress {
        Compress::None => Box::new(BufReader::with_capacity(CHUNK, from)),
        Compress::Gzip => {
            let from = BufReader::with_capacity(CHUNK, from);
            Box::new(flate2::bufread::MultiGzDecoder::new(from))
        }
        Compress::Zstd => {
            let mut from = zstd::Decoder::new(from)?;
            from.window_log_max(WINDOW_LOG_MAX)?;
            Box::new(from)
        }
    };
    Ok(Digested {
        from,
        digest: Sha256::new(),
        ahead: vec![0; AHEAD],
        at: 0,
        end: 0,
    })
}

/// A stream that is digested as it is read: in large pieces, since headers are read in small ones.
pub(super) struct Digested {
    from: Box<dyn Read>,
    digest: Sha256,
    ahead: Vec<u8>,
    at: usize,
    end: usize,
}

impl Digested {
    /// Of all that was read; it has to be read to its end.
    pub(super) fn diff_id(self) -> String {
        hex::encode(self.digest.finalize())
    }
}

impl Read for Digested {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.end {
            self.end = self.from.read(&mut self.ahead)?;
            self.at = 0;
            self.digest.update(&self.ahead[..self.end]);
        }
        let taken = into.len().min(self.end - self.at);
        into[..taken].copy_from_slice(&self.ahead[self.at..self.at + taken]);
        self.at += taken;
        Ok(taken)
    }
}

/// The digest and length of a whole file.
pub(crate) fn digest(mut from: impl Read) -> io::Result<(String, u64)> {
    let (mut digest, mut size) = (Sha256::new(), 0);
    let mut chunk = vec![0; CHUNK];
    loop {
        match from.read(&mut chunk)? {
            0 => return Ok((hex::encode(digest.finalize()), size)),
            len => {
                digest.update(&chunk[..len]);
                size += len as u64;
            }
        }
    }
}
