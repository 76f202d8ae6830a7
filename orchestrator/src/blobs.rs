//! Files that travel: by the SHA-256 of their content, durable when stored.

use std::{fs::File, io::Read as _, path::Path, sync::Arc};

use mayfly_domain::BlobHash;
use object_store::{ObjectStore, ObjectStoreExt as _, local::LocalFileSystem, path::Path as Key};
use sha2::{Digest as _, Sha256};

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
            Ok(found) if found.size == bytes.len() as u64 => {}
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
