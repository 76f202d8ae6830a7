//! Files that travel: by the SHA-256 of their content, durable when stored.
//!
//! Content goes in and comes out piece by piece. What is on its way in lies below `incoming/` and
//! counts for nothing: it gets its name when it is whole, and what a dead process left there is taken
//! away at the next start.
//!
//! Storing makes a blob young, also one that was there; only an old one is ever removed. The two do not
//! happen at once, so whoever stored content has the whole grace period to name it in a row. Ages go by the
//! database's clock, which is the one that whoever removes goes by.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use futures_util::{Stream, StreamExt as _};
use mayfly_domain::BlobHash;
use object_store::{
    MultipartUpload, ObjectStore, ObjectStoreExt as _, local::LocalFileSystem, path::Path as Key,
};
use sha2::{Digest as _, Sha256};
use tokio::{io::AsyncReadExt as _, sync::RwLock, task::spawn_blocking};
use tokio_util::bytes::Bytes;

use crate::{
    clock::unix_ms,
    depot::{DepotError, Travel},
};

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
    /// An old one could not be removed.
    #[error("an old blob could not be removed")]
    Remove(#[source] io::Error),
    /// The layer store, which several workers share.
    #[error(transparent)]
    Depot(Box<DepotError>),
    /// The source could not be read.
    #[error("a file to be stored could not be read")]
    Source(#[from] io::Error),
}

impl From<DepotError> for BlobError {
    fn from(error: DepotError) -> Self {
        BlobError::Depot(Box::new(error))
    }
}

impl BlobError {
    /// Whether the layer store is at fault, so that waiting may help.
    pub fn is_away(&self) -> bool {
        matches!(self, BlobError::Depot(error) if error.is_away())
    }

    /// Whether asking again does not bring it.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            BlobError::Store(object_store::Error::NotFound { .. }) => true,
            BlobError::Depot(error) => error.is_lost(),
            _ => false,
        }
    }

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
    folder: PathBuf,
    /// Shared by those who give a blob its name, held alone by who takes one away.
    names: Arc<RwLock<()>>,
    /// Where they go beside, so that other workers have them too; and what tells the time.
    shared: Option<Travel>,
}

/// A blob on its way in; dropped, it leaves nothing.
#[derive(Debug)]
pub struct Incoming {
    blobs: Blobs,
    aside: Aside,
    upload: Box<dyn MultipartUpload>,
    hasher: Sha256,
    part: Vec<u8>,
    size: u64,
}

/// Where content lies until it has its name; what lies there when this is dropped goes.
#[derive(Debug)]
struct Aside {
    key: Key,
    path: PathBuf,
}

impl Drop for Aside {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            let path = self.path.display();
            tracing::warn!(%path, %error, "stays until the next start");
        }
    }
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
            folder: folder.to_owned(),
            names: Arc::default(),
            shared: None,
        })
    }

    /// These, put into the layer store too, if there is one, and read from there where they lack.
    pub fn shared_by(self, travel: Travel) -> Blobs {
        Blobs {
            shared: Some(travel),
            ..self
        }
    }

    /// A database that has never answered is none that could be asked what to remove.
    async fn now(&self) -> i64 {
        match &self.shared {
            Some(travel) => travel.wall_clock().await.unwrap_or_else(|_| unix_ms()),
            None => unix_ms(),
        }
    }

    /// Begins a blob whose content comes piece by piece.
    pub async fn begin(&self) -> Result<Incoming, BlobError> {
        let key = Key::from(format!("{INCOMING}/{}", uuid::Uuid::now_v7()));
        let path = self.folder.join(key.as_ref());
        Ok(Incoming {
            blobs: self.clone(),
            upload: self.store.put_multipart(&key).await?,
            aside: Aside { key, path },
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
        self.bring(hash).await?;
        Ok(self.store.get(&key(hash)).await?.bytes().await?.to_vec())
    }

    /// Reads a blob piece by piece.
    pub async fn read(&self, hash: &BlobHash) -> Result<Outgoing, BlobError> {
        self.bring(hash).await?;
        let found = self.store.get(&key(hash)).await?;
        Ok(Outgoing {
            size: found.meta.size,
            content: found.into_stream(),
        })
    }

    /// Whether its content lies on this disk.
    pub(crate) fn is_here(&self, hash: &BlobHash) -> bool {
        self.folder.join(key(hash).as_ref()).exists()
    }

    /// Brings one here that another worker has stored; one that nobody has stays missing.
    pub(crate) async fn bring(&self, hash: &BlobHash) -> Result<(), BlobError> {
        let Some(travel) = self
            .shared
            .as_ref()
            .filter(|travel| travel.objects().is_some())
        else {
            return Ok(());
        };
        let place = self.folder.join(key(hash).as_ref());
        if tokio::fs::try_exists(&place).await? {
            return Ok(());
        }
        let path = self
            .folder
            .join(INCOMING)
            .join(uuid::Uuid::now_v7().to_string());
        tokio::fs::create_dir_all(self.folder.join(INCOMING)).await?;
        let aside = Aside {
            key: Key::from(INCOMING),
            path,
        };
        if travel.get_blob(hash, &aside.path).await? {
            make_young(aside.path.clone(), self.now().await).await?;
            let parent = place.parent().unwrap_or(&self.folder);
            tokio::fs::create_dir_all(parent).await?;
            tokio::fs::rename(&aside.path, &place).await?;
        }
        Ok(())
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

    /// It was removed here as no row names it: it leaves the layer store too, after a time of grace.
    pub async fn doom(&self, hash: &BlobHash) -> Result<(), BlobError> {
        if let Some(travel) = &self.shared {
            travel.doom_blob(hash).await?;
        }
        Ok(())
    }

    /// Removes what was last stored before this time (unix ms); false if it was stored anew since.
    /// Legal when no row names it; repeatable.
    pub async fn remove_older(&self, hash: &BlobHash, before: i64) -> Result<bool, BlobError> {
        let path = self.folder.join(key(hash).as_ref());
        let alone = self.names.clone().write_owned().await;
        // Whoever asked may go away; the lock is held until the file system is done.
        let removed = spawn_blocking(move || {
            let _alone = alone;
            let before = UNIX_EPOCH + Duration::from_millis(before.max(0).unsigned_abs());
            match std::fs::metadata(&path)?.modified()? < before {
                true => std::fs::remove_file(&path).map(|()| true),
                false => Ok(false),
            }
        });
        match removed.await.map_err(io::Error::other)? {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            removed => Ok(removed.map_err(BlobError::Remove)?),
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

    /// It is whole: durable under its hash when this returns, and young. Equal content is stored once.
    pub async fn finish(mut self) -> Result<(BlobHash, u64), BlobError> {
        if !self.part.is_empty() {
            self.send().await?;
        }
        let hash: BlobHash = hex::encode(self.hasher.finalize())
            .parse()
            .expect("SHA-256 in hexadecimal");
        self.upload.complete().await?;
        crate::faults::point("blob.whole");
        make_young(self.aside.path.clone(), self.blobs.now().await).await?;
        {
            // Over an equal one too: nobody knows whether its name is on the disk yet.
            let _naming = self.blobs.names.read().await;
            let store = &self.blobs.store;
            store.rename(&self.aside.key, &key(&hash)).await?;
            sync(self.blobs.folder.clone()).await?;
        }
        // It is young: nobody removes it while the layer store takes its time.
        if let Some(travel) = &self.blobs.shared {
            let place = self.blobs.folder.join(key(&hash).as_ref());
            travel.put_blob(&hash, self.size, &place).await?;
        }
        Ok((hash, self.size))
    }

    async fn send(&mut self) -> Result<(), BlobError> {
        let part = std::mem::take(&mut self.part);
        Ok(self.upload.put_part(part.into()).await?)
    }
}

/// Content may have waited for its end since its last byte.
async fn make_young(path: PathBuf, now: i64) -> io::Result<()> {
    let now = UNIX_EPOCH + Duration::from_millis(now.unsigned_abs());
    let opened = move || File::options().write(true).open(path)?.set_modified(now);
    spawn_blocking(opened).await.map_err(io::Error::other)?
}

/// The store syncs the folder that a blob lies in, but that folder's own name only if it made it.
async fn sync(folder: PathBuf) -> io::Result<()> {
    let synced = spawn_blocking(move || File::open(folder)?.sync_all());
    synced.await.map_err(io::Error::other)?
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

    /// Of the file a blob lies in.
    fn place(folder: &Path, hash: &BlobHash) -> PathBuf {
        folder.join(key(hash).as_ref())
    }

    #[tokio::test]
    async fn equal_content_is_made_durable_again() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(folder.path()).unwrap();
        let hash = blobs.put(b"hello".to_vec()).await.unwrap();
        // Held open, its number is not given to another.
        let first = File::open(place(folder.path(), &hash)).unwrap();
        blobs.put(b"hello".to_vec()).await.unwrap();
        let second = File::open(place(folder.path(), &hash)).unwrap();
        let number = |file: &File| file.metadata().unwrap().ino();
        assert_ne!(number(&first), number(&second));
    }

    #[tokio::test]
    async fn what_cannot_get_its_name_does_not_stay() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(folder.path()).unwrap();
        let hash = blobs.put(b"hello".to_vec()).await.unwrap();
        let parent = place(folder.path(), &hash).parent().unwrap().to_owned();
        std::fs::remove_dir_all(&parent).unwrap();
        std::fs::write(&parent, "in the way").unwrap();
        blobs.put(b"hello".to_vec()).await.unwrap_err();
        assert_eq!(files(folder.path()), 0);
        std::fs::remove_file(&parent).unwrap();
        assert_eq!(blobs.put(b"hello".to_vec()).await.unwrap(), hash);
    }

    /// Makes it an hour old.
    fn age(path: &Path) {
        let hour_ago = UNIX_EPOCH + Duration::from_millis(unix_ms().unsigned_abs() - 3_600_000);
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(hour_ago).unwrap();
    }

    #[tokio::test]
    async fn content_that_waited_for_its_end_is_young() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(folder.path()).unwrap();
        let mut waiting = blobs.begin().await.unwrap();
        waiting.push(&vec![1; PART]).await.unwrap();
        let incoming = std::fs::read_dir(folder.path().join(INCOMING)).unwrap();
        incoming.for_each(|part| age(&part.unwrap().path()));
        waiting.finish().await.unwrap();
        let found = blobs.older_than(unix_ms() - 60 * 1000).await.unwrap();
        assert!(found.is_empty(), "{found:?}");
    }

    #[tokio::test]
    async fn only_what_is_old_by_now_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(folder.path()).unwrap();
        let hash = blobs.put(b"hello".to_vec()).await.unwrap();
        age(&place(folder.path(), &hash));
        let before = unix_ms() - 60 * 1000;
        assert_eq!(blobs.older_than(before).await.unwrap().len(), 1);
        blobs.put(b"hello".to_vec()).await.unwrap();
        assert!(!blobs.remove_older(&hash, before).await.unwrap());
        assert_eq!(blobs.get(&hash).await.unwrap(), b"hello");

        // Not while somebody gives a name.
        let later = unix_ms() + 60 * 1000;
        let naming = blobs.names.read().await;
        let mut removing = std::pin::pin!(blobs.remove_older(&hash, later));
        assert!(futures_util::poll!(&mut removing).is_pending());
        assert_eq!(blobs.get(&hash).await.unwrap(), b"hello");
        drop(naming);
        assert!(removing.await.unwrap());
        assert!(blobs.get(&hash).await.is_err());
        assert!(blobs.remove_older(&hash, later).await.unwrap());
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
