//! Files that travel: by the SHA-256 of their content, durable when stored.
//!
//! Content goes in and comes out piece by piece. What is on its way in lies below `incoming/` and
//! counts for nothing: it gets its name when it is whole, and what a dead process left there is taken
//! away at the next start.

use std::{fs::File, io, path::Path, sync::Arc};

use futures_util::{Stream, StreamExt as _};
use mayfly_domain::BlobHash;
use object_store::{
    MultipartUpload, ObjectStore, ObjectStoreExt as _, local::LocalFileSystem, path::Path as Key,
};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;
use tokio_util::bytes::Bytes;

use crate::clock::unix_ms;

/// Bytes held of each blob on its way in: the smallest part that object stores take.
const PART: usize = 5 << 20;
/// Bytes read of a file at once.
const CHUNK: usize = 256 << 10;
const INCOMING: &str = "incoming";

/// Why a blob could not be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The store said no.
    #[error("blob store: {0}")]
    Store(#[from] object_store::Error),
    /// The source could not be read.
    #[error("a file to be stored could not be read")]
    Source(#[from] io::Error),
}

impl BlobError {
    /// Whether it works again once there is room on the disk.
    pub fn is_full(&self) -> bool {
        let mut error: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(cause) = error {
            if let Some(cause) = cause.downcast_ref::<io::Error>()
                && cause.kind() == io::ErrorKind::StorageFull
            {
                return true;
            }
            error = cause.source();
        }
        false
    }
}

/// A content-addressed store; cheap to clone.
#[derive(Debug, Clone)]
pub struct Blobs {
    store: Arc<dyn ObjectStore>,
}

/// A blob on its way in; dropped, it leaves nothing.
#[derive(Debug)]
pub struct Incoming {
    store: Arc<dyn ObjectStore>,
    aside: Key,
    upload: Box<dyn MultipartUpload>,
    hasher: Sha256,
    part: Vec<u8>,
    size: u64,
}

/// A blob whose content is being read.
pub struct Outgoing {
    /// Bytes.
    pub size: u64,
    content: futures_util::stream::BoxStream<'static, object_store::Result<Bytes>>,
}

impl Outgoing {
    /// The content, piece by piece.
    pub fn content(self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        self.content.map(|piece| piece.map_err(io::Error::other))
    }
}

impl Blobs {
    /// The store below the data dir, which no other process uses.
    pub fn open(folder: &Path) -> Result<Blobs, BlobError> {
        match std::fs::remove_dir_all(folder.join(INCOMING)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        std::fs::create_dir_all(folder)?;
        let store = LocalFileSystem::new_with_prefix(folder)?.with_fsync(true);
        Ok(Blobs {
            store: Arc::new(store),
        })
    }

    /// Begins a blob whose content comes piece by piece.
    pub async fn begin(&self) -> Result<Incoming, BlobError> {
        let aside = Key::from(format!("{INCOMING}/{}", uuid::Uuid::now_v7()));
        Ok(Incoming {
            store: self.store.clone(),
            upload: self.store.put_multipart(&aside).await?,
            aside,
            hasher: Sha256::new(),
            part: Vec::new(),
            size: 0,
        })
    }

    /// Stores a file's content, at most `cap` bytes of it, and returns its hash and size.
    pub async fn put_file(&self, file: File, cap: u64) -> Result<(BlobHash, u64), BlobError> {
        let mut incoming = self.begin().await?;
        let mut file = tokio::fs::File::from_std(file).take(cap);
        let mut chunk = Vec::with_capacity(CHUNK);
        while file.read_buf(&mut chunk).await? > 0 {
            incoming.push(&chunk).await?;
            chunk.clear();
        }
        incoming.finish().await
    }

    /// Stores bytes; equal bytes are stored once.
    pub async fn put(&self, bytes: Vec<u8>) -> Result<BlobHash, BlobError> {
        let mut incoming = self.begin().await?;
        incoming.push(&bytes).await?;
        Ok(incoming.finish().await?.0)
    }

    /// Reads a blob whole.
    pub async fn get(&self, hash: &BlobHash) -> Result<Vec<u8>, BlobError> {
        Ok(self.store.get(&key(hash)).await?.bytes().await?.to_vec())
    }

    /// Reads a blob piece by piece.
    pub async fn read(&self, hash: &BlobHash) -> Result<Outgoing, BlobError> {
        let found = self.store.get(&key(hash)).await?;
        Ok(Outgoing {
            size: found.meta.size,
            content: found.into_stream(),
        })
    }

    /// Blobs written before this time (unix ms), with their sizes.
    pub async fn older_than(&self, before: i64) -> Result<Vec<(BlobHash, u64)>, BlobError> {
        let mut listed = self.store.list(None);
        let mut found = Vec::new();
        while let Some(meta) = listed.next().await {
            let meta = meta?;
            let hash = meta.location.filename().and_then(|name| name.parse().ok());
            if let Some(hash) = hash
                && meta.last_modified.timestamp_millis() < before
            {
                found.push((hash, meta.size));
            }
        }
        Ok(found)
    }

    /// Legal when no row names it and it is old; repeatable.
    pub async fn remove(&self, hash: &BlobHash) -> Result<(), BlobError> {
        match self.store.delete(&key(hash)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Incoming {
    /// More of its content.
    pub async fn push(&mut self, mut bytes: &[u8]) -> Result<(), BlobError> {
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PART - self.part.len()));
            if self.part.capacity() == 0 {
                self.part.reserve_exact(PART);
            }
            self.part.extend_from_slice(now);
            bytes = later;
            if self.part.len() == PART {
                self.send().await?;
            }
        }
        Ok(())
    }

    /// Bytes so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// It is whole: durable under its hash when this returns. Equal content is stored once.
    pub async fn finish(mut self) -> Result<(BlobHash, u64), BlobError> {
        if !self.part.is_empty() {
            self.send().await?;
        }
        let hash: BlobHash = hex::encode(self.hasher.finalize())
            .parse()
            .expect("SHA-256 in hexadecimal");
        let key = key(&hash);
        match self.store.head(&key).await {
            // An old one is written anew: one that no row names yet is removed by its age.
            Ok(found) if found.size == self.size && is_new(&found) => self.upload.abort().await?,
            _ => {
                self.upload.complete().await?;
                crate::faults::point("blob.whole");
                self.store.rename(&self.aside, &key).await?;
            }
        }
        Ok((hash, self.size))
    }

    async fn send(&mut self) -> Result<(), BlobError> {
        let part = std::mem::take(&mut self.part);
        Ok(self.upload.put_part(part.into()).await?)
    }
}

/// Far from the age at which an unnamed blob is removed.
fn is_new(found: &object_store::ObjectMeta) -> bool {
    unix_ms() - found.last_modified.timestamp_millis() < 10 * 60 * 1000
}

fn key(hash: &BlobHash) -> Key {
    let text = hash.as_str();
    Key::from(format!("{}/{}", &text[..2], text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path) -> usize {
        let below = |path: &Path| std::fs::read_dir(path).unwrap().flatten();
        below(folder)
            .filter(|entry| entry.path().is_dir())
            .map(|entry| below(&entry.path()).count())
            .sum()
    }

    #[tokio::test]
    async fn equal_content_is_one_blob() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(folder.path()).unwrap();
        let first = blobs.put(b"hello".to_vec()).await.unwrap();
        assert_eq!(blobs.put(b"hello".to_vec()).await.unwrap(), first);
        assert_eq!(blobs.get(&first).await.unwrap(), b"hello");
        assert_eq!(files(folder.path()), 1);
        assert_ne!(blobs.put(b"other".to_vec()).await.unwrap(), first);
        let empty = blobs.put(Vec::new()).await.unwrap();
        assert_eq!(blobs.read(&empty).await.unwrap().size, 0);
    }

    #[tokio::test]
    async fn content_of_many_parts_comes_out_as_it_went_in() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(folder.path()).unwrap();
        let content: Vec<u8> = (0..2 * PART + 7).map(|n| (n % 251) as u8).collect();
        let mut incoming = blobs.begin().await.unwrap();
        for piece in content.chunks(PART - 3) {
            incoming.push(piece).await.unwrap();
        }
        let (hash, size) = incoming.finish().await.unwrap();
        assert_eq!(size, content.len() as u64);
        assert_eq!(hash, blobs.put(content.clone()).await.unwrap());
        let pieces = blobs.read(&hash).await.unwrap().content();
        let pieces: Vec<Bytes> = pieces.map(Result::unwrap).collect().await;
        assert!(pieces.len() > 1 && pieces.concat() == content);
    }

    #[tokio::test]
    async fn what_never_became_whole_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(folder.path()).unwrap();
        let mut dropped = blobs.begin().await.unwrap();
        dropped.push(&vec![1; PART + 1]).await.unwrap();
        drop(dropped);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while files(folder.path()) > 0 {
            assert!(std::time::Instant::now() < deadline, "it stays");
            tokio::task::yield_now().await;
        }
        let mut dead = blobs.begin().await.unwrap();
        dead.push(&vec![1; PART + 1]).await.unwrap();
        std::mem::forget(dead);
        assert_eq!(files(folder.path()), 1);
        Blobs::open(folder.path()).unwrap();
        assert_eq!(files(folder.path()), 0);
    }
}
