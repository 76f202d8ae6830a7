//! Files that travel: by the SHA-256 of their content, durable when stored.

use std::{fs::File, io::Read as _, path::Path, sync::Arc};

use futures_util::StreamExt as _;
use mayfly_domain::BlobHash;
use object_store::{ObjectStore, ObjectStoreExt as _, local::LocalFileSystem, path::Path as Key};
use sha2::{Digest as _, Sha256};

use crate::clock::unix_ms;

/// Why a blob could not be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The store said no.
    #[error("blob store: {0}")]
    Store(#[from] object_store::Error),
    /// The source could not be read.
    #[error("a file to be stored could not be read")]
    Source(#[from] std::io::Error),
}

/// A content-addressed store; cheap to clone.
#[derive(Debug, Clone)]
pub struct Blobs {
    store: Arc<dyn ObjectStore>,
}

impl Blobs {
    /// The store below the data dir.
    pub fn open(folder: &Path) -> Result<Blobs, BlobError> {
        std::fs::create_dir_all(folder)?;
        let store = LocalFileSystem::new_with_prefix(folder)?.with_fsync(true);
        Ok(Blobs {
            store: Arc::new(store),
        })
    }

    /// Stores a file's content, at most `cap` bytes of it, and returns its hash and size.
    pub async fn put_file(&self, mut file: File, cap: u64) -> Result<(BlobHash, u64), BlobError> {
        let bytes = read_capped(&mut file, cap)?;
        let size = bytes.len() as u64;
        Ok((self.put(bytes).await?, size))
    }

    /// Stores bytes; equal bytes are stored once.
    pub async fn put(&self, bytes: Vec<u8>) -> Result<BlobHash, BlobError> {
        let hash = hash(&bytes);
        let key = key(&hash);
        match self.store.head(&key).await {
            // An old one is written anew: one that no delivery names yet is removed by its age.
            Ok(found) if found.size == bytes.len() as u64 && is_new(&found) => {}
            _ => {
                self.store.put(&key, bytes.into()).await?;
            }
        }
        Ok(hash)
    }

    /// Reads a blob.
    pub async fn get(&self, hash: &BlobHash) -> Result<Vec<u8>, BlobError> {
        Ok(self.store.get(&key(hash)).await?.bytes().await?.to_vec())
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

    /// Legal when no delivery names it and it is old; repeatable.
    pub async fn remove(&self, hash: &BlobHash) -> Result<(), BlobError> {
        match self.store.delete(&key(hash)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Far from the age at which an unnamed blob is removed.
fn is_new(found: &object_store::ObjectMeta) -> bool {
    unix_ms() - found.last_modified.timestamp_millis() < 10 * 60 * 1000
}

fn read_capped(file: &mut File, cap: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(cap).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn hash(bytes: &[u8]) -> BlobHash {
    hex::encode(Sha256::digest(bytes))
        .parse()
        .expect("SHA-256 in hexadecimal")
}

fn key(hash: &BlobHash) -> Key {
    let text = hash.as_str();
    Key::from(format!("{}/{}", &text[..2], text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn equal_content_is_one_blob() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(folder.path()).unwrap();
        let first = blobs.put(b"hello".to_vec()).await.unwrap();
        assert_eq!(blobs.put(b"hello".to_vec()).await.unwrap(), first);
        assert_eq!(blobs.get(&first).await.unwrap(), b"hello");
        assert_ne!(blobs.put(b"other".to_vec()).await.unwrap(), first);
    }
}
