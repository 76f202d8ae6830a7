//! Objects in, out and away, each whole or not at all: what comes is compared with its digest, what takes
//! too long is given up, and no object is ever held in memory whole.

use std::{
    future::Future,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{
    StreamExt as _, TryStreamExt as _,
    stream::{BoxStream, TryChunksError},
};
use object_store::{
    BackoffConfig, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, RetryConfig,
    WriteMultipart, aws::AmazonS3Builder, local::LocalFileSystem, path::Path as Key,
    prefix::PrefixStore,
};
use sha2::{Digest as _, Sha256};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::bytes::Bytes;

use super::{DepotError, StoreConfig, config::Place, gate::Gate, http::Connector};
use crate::{
    observe,
    snapshot::oci::Parcel,
    trouble::{Source, Trouble},
};

/// Up to here one request puts an object.
const AT_ONCE: u64 = 8 << 20;
/// Bytes of each part of a larger one, and how many are on their way.
const PART: usize = 8 << 20;
const PARTS_AT_ONCE: usize = 2;
/// S3 takes 10,000 parts of an object.
const PARTS_MOST: u64 = 9_000;
/// An object may take so long, and a second more for each of so many bytes.
const PATIENCE: Duration = Duration::from_secs(30);
const SLOWEST: u64 = 256 << 10;
/// Objects of a page of a list.
const PAGE: usize = 500;
/// Of what a store says about a failure.
const SAID_MOST: usize = 300;
/// Whose store it is.
const MARK: &str = "mayfly-store";
const NOT_YET: &str = "has not answered yet";

/// An object's name and what its bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Below the store's prefix.
    pub name: String,
    /// Its bytes.
    pub parcel: Parcel,
}

/// A store that is configured; cheap to clone.
#[derive(Debug, Clone)]
pub struct Objects(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn ObjectStore>,
    /// Where it is one.
    folder: Option<PathBuf>,
    shown: String,
    /// It was found to be ours.
    ours: AtomicBool,
    gate: Gate,
    trouble: Trouble,
}

impl Objects {
    /// As configured; nothing is asked yet. None where no store is configured. The error is one
    /// sentence without a secret.
    pub fn open(config: &StoreConfig, trouble: &Trouble) -> Result<Option<Objects>, String> {
        if !config.is_on() {
            return Ok(None);
        }
        let (store, folder): (Arc<dyn ObjectStore>, _) = match config.place()? {
            Place::Bucket { bucket, prefix } => (bucket_of(config, &bucket, &prefix)?, None),
            Place::Folder(path) => {
                let store = LocalFileSystem::new_with_prefix(&path);
                let store = store
                    .map_err(|error| format!("{}: {}", path.display(), observe::chain(&error)))?;
                (Arc::new(store.with_fsync(true)), Some(path))
            }
        };
        Ok(Some(Objects(Arc::new(Inner {
            store,
            folder,
            shown: config.url.clone(),
            ours: AtomicBool::new(false),
            gate: Gate::default(),
            trouble: trouble.clone(),
        }))))
    }

    /// Its address.
    pub fn shown(&self) -> &str {
        &self.0.shown
    }

    /// Puts a file's bytes under their name. Repeatable: what is there with this name and size stays.
    pub async fn put(&self, object: &Object, path: &Path) -> Result<(), DepotError> {
        match self.size(&object.name).await? {
            Some(size) if size == object.parcel.size => Ok(()),
            _ => self.put_over(object, path).await,
        }
    }

    /// The same, over whatever is there.
    pub async fn put_over(&self, object: &Object, path: &Path) -> Result<(), DepotError> {
        let key = Key::from(object.name.as_str());
        let size = object.parcel.size;
        self.asked(size, async {
            self.is_mounted().await?;
            match size <= AT_ONCE {
                true => {
                    let bytes = tokio::fs::read(path).await;
                    let bytes = bytes.map_err(|error| Failure::file(path, error))?;
                    self.0.store.put(&key, bytes.into()).await?;
                }
                false => self.put_in_parts(&key, size, path).await?,
            }
            self.is_mounted().await
        })
        .await?;
        self.was_good(object);
        Ok(())
    }

    /// What is written below a folder that is not mounted would be nobody else's.
    async fn is_mounted(&self) -> Result<(), Failure> {
        if let Some(folder) = &self.0.folder {
            tokio::fs::metadata(folder.join(MARK)).await?;
        }
        Ok(())
    }

    /// A folder that is not mounted has nothing, and lacks nothing.
    async fn lacks<T>(&self) -> Result<Option<T>, Failure> {
        self.is_mounted().await?;
        Ok(None)
    }

    async fn put_in_parts(&self, key: &Key, size: u64, path: &Path) -> Result<(), Failure> {
        let ours = |error| Failure::file(path, error);
        let mut file = tokio::fs::File::open(path).await.map_err(ours)?;
        let part = PART.max(usize::try_from(size / PARTS_MOST).unwrap_or(PART));
        let upload = self.0.store.put_multipart(key).await?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, part);
        let mut piece = vec![0; 1 << 20];
        let fill = async {
            loop {
                let len = file.read(&mut piece).await.map_err(ours)?;
                if len == 0 {
                    return Ok::<_, Failure>(());
                }
                upload.wait_for_capacity(PARTS_AT_ONCE).await?;
                upload.write(&piece[..len]);
            }
        };
        match fill.await {
            Ok(()) => {
                upload.finish().await?;
                Ok(())
            }
            Err(error) => {
                // What is left of it the store's own rules take away.
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }

    /// Writes an object's bytes into a new file, which is whole and compared when this returns. Whoever can use
    /// them says so: [`Objects::was_good`], or [`Objects::is_unusable`].
    pub async fn get(&self, object: &Object, into: &Path) -> Result<(), DepotError> {
        if let Some(reason) = self.0.gate.reason(Some(&object.name)) {
            return Err(self.wrong(&object.name, reason));
        }
        let key = Key::from(object.name.as_str());
        let got = self
            .asked(object.parcel.size, async {
                match self.0.store.get(&key).await {
                    Ok(found) => Ok(Some(compared(found.into_stream(), object, into).await?)),
                    Err(object_store::Error::NotFound { .. }) => self.lacks().await,
                    Err(error) => Err(error.into()),
                }
            })
            .await?;
        match got {
            None => Err(DepotError::Lacks {
                store: self.0.shown.clone(),
                object: object.name.clone(),
            }),
            Some(Some(reason)) => {
                self.0.gate.failed(Some(&object.name), &reason);
                Err(self.wrong(&object.name, reason))
            }
            Some(None) => Ok(()),
        }
    }

    /// What is there is as it should be.
    pub(super) fn was_good(&self, object: &Object) {
        self.0.gate.works(Some(&object.name));
    }

    /// What was fetched has the right bytes, and is nothing that could be used: it is left alone for a while.
    pub(super) fn is_unusable(&self, object: &Object, reason: String) -> DepotError {
        let name = Some(object.name.as_str());
        self.0.gate.failed(name, &reason);
        DepotError::Unusable {
            store: self.0.shown.clone(),
            object: object.name.clone(),
            tries: self.0.gate.times(name),
            reason,
        }
    }

    /// Refuses where it is not to be asked now, before anybody packs something for it.
    pub(super) fn is_open(&self) -> Result<(), DepotError> {
        match self.0.gate.reason(None) {
            None => Ok(()),
            Some(reason) => Err(DepotError::Away {
                store: self.0.shown.clone(),
                reason,
            }),
        }
    }

    /// An object's bytes; none where there is none.
    pub async fn size(&self, name: &str) -> Result<Option<u64>, DepotError> {
        let key = Key::from(name);
        self.asked(0, async {
            match self.0.store.head(&key).await {
                Ok(found) => Ok(Some(found.size)),
                Err(object_store::Error::NotFound { .. }) => self.lacks().await,
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    /// Removes an object; that it is not there is fine.
    pub async fn remove(&self, name: &str) -> Result<(), DepotError> {
        let key = Key::from(name);
        self.asked(0, async {
            match self.0.store.delete(&key).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                // It answers, and whoever may not remove can go on to read and write.
                Err(
                    error @ (object_store::Error::PermissionDenied { .. }
                    | object_store::Error::Unauthenticated { .. }),
                ) => Err(Failure::Ours(DepotError::NotRemoved {
                    store: self.0.shown.clone(),
                    object: name.to_owned(),
                    reason: said(&error),
                })),
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    /// All objects below a folder, page by page: there may be millions.
    pub fn list(&self, below: &str) -> Pages {
        let told = |meta: ObjectMeta| {
            let at = meta.last_modified.timestamp_millis();
            (meta.location.to_string(), at)
        };
        let listed = self.0.store.list(Some(&Key::from(below)));
        Pages {
            objects: self.clone(),
            listed: listed.map_ok(told).try_chunks(PAGE).boxed(),
        }
    }

    /// The first object below a folder, with its bytes.
    pub async fn first(&self, below: &str) -> Result<Option<(String, u64)>, DepotError> {
        let mut listed = self.0.store.list(Some(&Key::from(below)));
        self.asked(0, async {
            let found = listed.next().await.transpose()?;
            Ok(found.map(|meta| (meta.location.to_string(), meta.size)))
        })
        .await
    }

    /// Looks whether it is there and ours: `id` is what our rows call it. Where it has no mark it
    /// gets one, unless something of ours is said to be in it already.
    pub async fn look(&self, id: &str, in_use: bool) -> Result<(), DepotError> {
        let key = Key::from(MARK);
        let found = self
            .asked_anyway(0, async {
                if let Some(folder) = &self.0.folder {
                    tokio::fs::metadata(folder).await?;
                }
                match self.0.store.get(&key).await {
                    Ok(found) => Ok(Some(found.bytes().await?)),
                    Err(object_store::Error::NotFound { .. }) => Ok(None),
                    Err(error) => Err(error.into()),
                }
            })
            .await?;
        let refuse = |reason: &str| {
            self.0.ours.store(false, Ordering::Release);
            self.shut(reason.to_owned());
            Err(DepotError::Away {
                store: self.0.shown.clone(),
                reason: reason.to_owned(),
            })
        };
        match found {
            Some(found) if found.trim_ascii() == id.as_bytes() => {
                self.0.ours.store(true, Ordering::Release);
                self.0.trouble.clear(Source::Store);
                Ok(())
            }
            Some(_) => refuse(&format!(
                "belongs to another installation: name another bucket, prefix or folder in store.url; if that one has \
                 moved here for good, write {id} into the store's object {MARK}"
            )),
            None if in_use => refuse(
                "is empty, and layers were put there: it is another bucket or prefix, or a folder \
                 that is not mounted",
            ),
            None => {
                let mark = format!("{id}\n");
                let once = PutOptions::from(PutMode::Create);
                let put = async {
                    match self.0.store.put_opts(&key, mark.into(), once).await {
                        Ok(_) | Err(object_store::Error::AlreadyExists { .. }) => Ok(()),
                        Err(error) => Err(error.into()),
                    }
                };
                self.asked_anyway(0, put).await?;
                // Somebody else may have been faster: now there is one.
                Box::pin(self.look(id, true)).await
            }
        }
    }

    /// Why nothing is asked of it now; none if all is well as far as is known.
    pub fn away(&self) -> Option<String> {
        let known = self.0.ours.load(Ordering::Acquire);
        let unknown = || format!("the layer store {} {NOT_YET}", self.0.shown);
        let told = self.0.trouble.of(Source::Store);
        told.or_else(|| (!known).then(unknown))
    }

    /// Asks it something about so many bytes, in a time that fits them, if it is known to be ours.
    async fn asked<T>(
        &self,
        bytes: u64,
        ask: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, DepotError> {
        if !self.0.ours.load(Ordering::Acquire) {
            let reason = self.0.gate.reason(None);
            return Err(DepotError::Away {
                store: self.0.shown.clone(),
                reason: reason.unwrap_or_else(|| NOT_YET.to_owned()),
            });
        }
        let answer = self.asked_anyway(bytes, ask).await?;
        self.0.trouble.clear(Source::Store);
        Ok(answer)
    }

    async fn asked_anyway<T>(
        &self,
        bytes: u64,
        ask: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, DepotError> {
        let away = |reason| DepotError::Away {
            store: self.0.shown.clone(),
            reason,
        };
        if let Some(reason) = self.0.gate.reason(None) {
            return Err(away(reason));
        }
        let patience = PATIENCE + Duration::from_secs(bytes / SLOWEST);
        let reason = match tokio::time::timeout(patience, ask).await {
            Ok(Ok(answer)) => {
                self.0.gate.works(None);
                return Ok(answer);
            }
            Ok(Err(Failure::Ours(error))) => return Err(error),
            Ok(Err(Failure::Theirs(error))) => said(&error),
            Err(_) => format!("is too slow: no end after {} s", patience.as_secs()),
        };
        self.shut(reason.clone());
        Err(away(reason))
    }

    fn shut(&self, reason: String) {
        self.0.gate.failed(None, &reason);
        let sentence = format!("the layer store {} {reason}", self.0.shown);
        self.0.trouble.raise(Source::Store, sentence);
    }

    fn wrong(&self, object: &str, reason: String) -> DepotError {
        DepotError::Wrong {
            store: self.0.shown.clone(),
            object: object.to_owned(),
            tries: self.0.gate.times(Some(object)),
            reason,
        }
    }
}

/// See [`Objects::list`].
pub struct Pages {
    objects: Objects,
    listed: BoxStream<'static, Result<Page, TryChunksError<Listed, object_store::Error>>>,
}

/// An object's name, and the time of its last change in unix ms.
type Listed = (String, i64);
type Page = Vec<Listed>;

impl Pages {
    /// The next page; none after the last.
    pub async fn next(&mut self) -> Result<Option<Page>, DepotError> {
        let next = async {
            let page = self.listed.next().await.transpose();
            page.map_err(|error| Failure::Theirs(error.1))
        };
        self.objects.asked(0, next).await
    }
}

/// Whose fault it is.
enum Failure {
    Theirs(object_store::Error),
    Ours(DepotError),
}

impl Failure {
    fn file(path: &Path, source: std::io::Error) -> Failure {
        let path = path.to_owned();
        Failure::Ours(DepotError::File { path, source })
    }
}

impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Self {
        Failure::Theirs(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(source: std::io::Error) -> Self {
        Failure::Theirs(object_store::Error::Generic {
            store: "the file",
            source: Box::new(source),
        })
    }
}

fn bucket_of(
    config: &StoreConfig,
    bucket: &str,
    prefix: &str,
) -> Result<Arc<dyn ObjectStore>, String> {
    let mut builder = AmazonS3Builder::new()
        .with_http_connector(Connector)
        .with_bucket_name(bucket)
        .with_region(&config.region)
        .with_retry(RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(100),
                max_backoff: Duration::from_secs(1),
                base: 2.0,
            },
            // The rest is our own, for all requests together.
            max_retries: 2,
            retry_timeout: Duration::from_secs(10),
        });
    if !config.endpoint.is_empty() {
        let open = config.endpoint.starts_with("http://");
        builder = builder.with_endpoint(config.endpoint.trim_end_matches('/'));
        builder = builder.with_allow_http(open);
    }
    if !config.access_key_id.is_empty() {
        builder = builder
            .with_access_key_id(&config.access_key_id)
            .with_secret_access_key(config.secret()?);
    }
    let store = builder.build().map_err(|error| observe::chain(&error))?;
    Ok(match prefix {
        "" => Arc::new(store),
        prefix => Arc::new(PrefixStore::new(store, prefix)),
    })
}

/// Writes and digests; answers what is wrong with it, if anything.
async fn compared(
    mut content: BoxStream<'static, object_store::Result<Bytes>>,
    object: &Object,
    into: &Path,
) -> Result<Option<String>, Failure> {
    let ours = |error| Failure::file(into, error);
    let (wanted, size) = (&object.parcel.digest, object.parcel.size);
    let mut file = tokio::fs::File::create(into).await.map_err(ours)?;
    let (mut digest, mut came) = (Sha256::new(), 0);
    while let Some(piece) = content.next().await {
        let piece = piece?;
        came += piece.len() as u64;
        if came > size {
            return Ok(Some(format!("more than {size} bytes")));
        }
        digest.update(&piece);
        file.write_all(&piece).await.map_err(ours)?;
    }
    file.flush().await.map_err(ours)?;
    if came < size {
        return Ok(Some(format!("it ends after {came} of {size} bytes")));
    }
    Ok(match hex::encode(digest.finalize()) == *wanted {
        true => None,
        false => Some("their SHA-256 is another".to_owned()),
    })
}

/// What the store said, in one line of bounded length.
fn said(error: &object_store::Error) -> String {
    let refused = matches!(
        error,
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. }
    );
    let text = observe::chain(error).replace(['\n', '\r'], " ");
    let mut shown: String = text.chars().take(SAID_MOST).collect();
    if text.chars().count() > SAID_MOST {
        shown.push('…');
    }
    match refused {
        true => format!("refuses us, look at its keys and rights: {shown}"),
        false => format!("does not answer as it should: {shown}"),
    }
}
