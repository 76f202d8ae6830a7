//! Where an export's files go, one after the other: into a folder, into a tar file, or as a tar stream. A blob is made
//! where it stays, as far as that can be: only a stream needs its digest before its content.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::{
    super::StoreError,
    OciError,
    header::{BLOCK, Meta, encode},
    image::{self, Descriptor, Index},
    layout::{BLOBS, INDEX, LAYOUT},
    squeeze,
    write::{Body, Writer, plain_file},
};

/// Bytes that are moved at once.
const MOVED: usize = 1 << 20;

/// Where an export goes.
pub enum Output<'a> {
    /// A folder that does not exist yet.
    Folder(&'a Path),
    /// An empty tar file, and what it is called.
    File(&'a File, &'a Path),
    /// A tar file, in one pass; each layer waits in the folder `aside` until its digest is known.
    Stream {
        /// Takes the bytes.
        to: &'a mut dyn Write,
        /// Exists, and is the caller's to remove.
        aside: &'a Path,
    },
}

pub(super) struct Sink<'a> {
    output: Output<'a>,
    kept: HashSet<String>,
    next: u32,
}

/// A blob in the making; what is written to `file` is its content.
pub(super) struct Making {
    pub(super) file: File,
    /// In which it is.
    pub(super) path: PathBuf,
    /// Where it begins in that.
    at: u64,
}

impl<'a> Sink<'a> {
    pub(super) fn open(output: Output<'a>) -> Result<Self, OciError> {
        if let Output::Folder(path) = output {
            let mut folder = fs::DirBuilder::new();
            folder.mode(0o700);
            let made = folder
                .create(path)
                .and_then(|()| fs::create_dir_all(path.join(BLOBS)));
            made.map_err(|error| StoreError::io(path, error))?;
        }
        let mut sink = Sink {
            output,
            kept: HashSet::new(),
            next: 0,
        };
        sink.named(LAYOUT, image::LAYOUT.as_bytes())?;
        Ok(sink)
    }

    /// Begins a blob. Legal when the one before is kept.
    pub(super) fn begin(&mut self) -> Result<Making, OciError> {
        self.next += 1;
        let part = format!(".part-{}", self.next);
        let path = match &self.output {
            Output::File(file, path) => {
                let begun = begin_in(file).map(|(file, at)| Making {
                    file,
                    path: path.to_path_buf(),
                    at,
                });
                return Ok(begun.map_err(|error| StoreError::io(path, error))?);
            }
            Output::Folder(path) => path.join(BLOBS).join(part),
            Output::Stream { aside, .. } => aside.join(part),
        };
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        let file = file.map_err(|error| StoreError::io(&path, error))?;
        Ok(Making { file, path, at: 0 })
    }

    /// The blob is whole.
    pub(super) fn keep(&mut self, blob: &Making, digest: &str, size: u64) -> Result<(), OciError> {
        let new = self.kept.insert(digest.to_owned());
        let path = &blob.path;
        let name = format!("{BLOBS}/{digest}");
        let done = match &mut self.output {
            Output::File(file, _) if new => keep_in(file, blob.at, name.as_bytes(), size),
            Output::File(file, _) => forget_in(file, blob.at),
            Output::Folder(folder) if new => fs::rename(path, folder.join(name)),
            Output::Stream { to, .. } if new => {
                pass(to, path, name.as_bytes(), size).and_then(|()| fs::remove_file(path))
            }
            _ => fs::remove_file(path),
        };
        Ok(done.map_err(|error| StoreError::io(path, error))?)
    }

    /// A small blob.
    pub(super) fn blob(
        &mut self,
        media_type: &str,
        content: &[u8],
    ) -> Result<Descriptor, OciError> {
        let (digest, size) = squeeze::digest(content).map_err(|error| self.fault(error))?;
        if self.kept.insert(digest.clone()) {
            self.named(&format!("{BLOBS}/{digest}"), content)?;
        }
        Ok(Descriptor {
            media_type: media_type.to_owned(),
            digest: format!("sha256:{digest}"),
            size,
            annotations: Default::default(),
        })
    }

    /// The index comes last: a layout without one is none.
    pub(super) fn finish(mut self, index: &Index) -> Result<(), OciError> {
        let index = serde_json::to_vec(index).expect("documents are plain");
        self.named(INDEX, &index)?;
        let ended = match &mut self.output {
            Output::Folder(_) => Ok(()),
            Output::File(file, _) => Writer::new(*file).finish().map(drop),
            Output::Stream { to, .. } => Writer::new(to).finish().and_then(|to| to.flush()),
        };
        ended.map_err(|error| self.fault(error))
    }

    fn named(&mut self, name: &str, content: &[u8]) -> Result<(), OciError> {
        let (shown, meta) = (name.as_bytes(), Meta::plain(0o644));
        let written = match &mut self.output {
            Output::Folder(folder) => fs::write(folder.join(name), content),
            Output::File(file, _) => Writer::new(*file).bytes(shown, meta, content),
            Output::Stream { to, .. } => Writer::new(to).bytes(shown, meta, content),
        };
        written.map_err(|error| self.fault(error))
    }

    fn fault(&self, error: io::Error) -> OciError {
        let (Output::Folder(path) | Output::File(_, path) | Output::Stream { aside: path, .. }) =
            &self.output;
        StoreError::io(*path, error).into()
    }
}

/// Leaves room for the head that is known last.
fn begin_in(mut file: &File) -> io::Result<(File, u64)> {
    let at = file.stream_position()?;
    file.seek(SeekFrom::Current(BLOCK as i64))?;
    // It shares its position with the original.
    Ok((file.try_clone()?, at))
}

fn keep_in(file: &File, at: u64, name: &[u8], size: u64) -> io::Result<()> {
    settle_in(file, at, &encode(&plain_file(name, size)), size)
}

fn settle_in(mut file: &File, at: u64, head: &[u8], size: u64) -> io::Result<()> {
    let (room, content) = (BLOCK as u64, head.len() as u64);
    if content != room {
        // From 8 GiB on a head has more than one block.
        move_up(file, at + room..at + room + size, content - room)?;
    }
    file.write_all_at(head, at)?;
    let end = (content + size).next_multiple_of(room);
    file.set_len(at + end)?;
    file.seek(SeekFrom::Start(at + end)).map(drop)
}

/// It is there already.
fn forget_in(mut file: &File, at: u64) -> io::Result<()> {
    file.set_len(at)?;
    file.seek(SeekFrom::Start(at)).map(drop)
}

/// The last first: both places overlap.
fn move_up(file: &File, what: std::ops::Range<u64>, by: u64) -> io::Result<()> {
    let mut buffer = vec![0; MOVED];
    let mut end = what.end;
    while end > what.start {
        let begin = what.start.max(end.saturating_sub(MOVED as u64));
        let piece = &mut buffer[..(end - begin) as usize];
        file.read_exact_at(piece, begin)?;
        file.write_all_at(piece, begin + by)?;
        end = begin;
    }
    Ok(())
}

fn pass(to: &mut dyn Write, path: &Path, name: &[u8], size: u64) -> io::Result<()> {
    let file = File::open(path)?;
    let body = Body {
        from: &file,
        length: size,
        pieces: None,
    };
    Writer::new(to).file(name, Meta::plain(0o644), &Vec::new(), &body, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As that of a blob from 8 GiB on.
    #[test]
    fn a_head_of_several_blocks_stands_before_all_of_its_content() {
        let at = 2 * BLOCK as u64;
        let content: Vec<u8> = (0..3 * MOVED + 77).map(|at| (at % 251) as u8).collect();
        let head = [b'h'; 3 * BLOCK];
        let file = tempfile::tempfile().unwrap();
        (&file).seek(SeekFrom::Start(at)).unwrap();
        let (mut making, begun) = begin_in(&file).unwrap();
        assert_eq!(begun, at);
        making.write_all(&content).unwrap();
        settle_in(&file, at, &head, content.len() as u64).unwrap();
        let end = (&file).stream_position().unwrap();
        assert_eq!((end - at) % BLOCK as u64, 0);
        let mut found = vec![0; (end - at) as usize];
        file.read_exact_at(&mut found, at).unwrap();
        let wanted = [&head[..], &content].concat();
        assert!(found[..wanted.len()] == wanted);
        assert!(found[wanted.len()..].iter().all(|byte| *byte == 0));
    }
}
