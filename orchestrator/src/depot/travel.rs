//! The way of layers and bases into the layer store, and back onto the disk of a worker that lacks them.
//!
//! A sealed layer of up to [`SMALL`] is put before its tick commits; all others are owed, and [`keep`]
//! puts them after the reply. A base is owed too. A merged layer gets its row when it is in the store,
//! so whatever a row names is there for everybody, or is named by its holder.
//!
//! [`keep`]: super::keep

use std::{
    collections::HashMap,
    fs::File,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use mayfly_domain::{BaseId, BlobHash, LayerId};
use tokio::sync::{RwLock, RwLockReadGuard};
use tokio_util::sync::CancellationToken;

use super::{DepotError, Object, Objects, blocking, sweep::Swept};
use crate::{
    db::{Db, agents::Base, depot::Whereabouts, doomed::Kind},
    faults, observe,
    snapshot::{
        Slot, Store, StoreError,
        oci::{Budget, Parcel},
    },
    worker::host_disk::HostDisk,
};

/// Layers of at most so many bytes are in the store before their tick commits.
pub const SMALL: u64 = 8 << 20;

pub(crate) type Turn = tokio::sync::Mutex<()>;

/// See the module; cheap to clone.
#[derive(Debug, Clone)]
pub struct Travel {
    pub(super) db: Db,
    pub(super) store: Arc<Store>,
    pub(super) objects: Option<Objects>,
    /// This worker.
    pub(super) worker: String,
    pub(super) data_dir: PathBuf,
    pub(super) host_disk: HostDisk,
    making: Arc<RwLock<()>>,
    /// Shared by whoever looks whether a layer is here, held alone by who takes one out of the cache.
    pub(super) cache: Arc<RwLock<()>>,
    /// One at a time for each object.
    turns: Arc<Mutex<HashMap<String, Weak<Turn>>>>,
    hurry: CancellationToken,
    pub(super) swept: Arc<Swept>,
    /// Held by who puts what is owed.
    pub(super) owed: Arc<tokio::sync::Mutex<()>>,
}

impl Travel {
    /// Between these folders and that store.
    pub fn new(
        db: Db,
        store: Arc<Store>,
        objects: Option<Objects>,
        worker: String,
        data_dir: PathBuf,
        host_disk: HostDisk,
        making: Arc<RwLock<()>>,
    ) -> Travel {
        Travel {
            db,
            store,
            objects,
            worker,
            data_dir,
            host_disk,
            making,
            cache: Arc::default(),
            turns: Arc::default(),
            hurry: CancellationToken::new(),
            swept: Arc::default(),
            owed: Arc::default(),
        }
    }

    /// The store, if there is one.
    pub fn objects(&self) -> Option<&Objects> {
        self.objects.as_ref()
    }

    /// Cancelled when ticks must not wait for the store any more.
    pub fn hurry(&self) -> &CancellationToken {
        &self.hurry
    }

    /// This worker.
    pub fn worker(&self) -> &str {
        &self.worker
    }

    /// Why nothing can be put or fetched now; none without a store.
    pub fn away(&self) -> Option<String> {
        self.objects.as_ref()?.away()
    }

    /// Puts a layer that was just sealed, if it is small. None: it is owed, or there is no store.
    pub async fn put_small(&self, layer: &LayerId) -> Result<Option<Parcel>, DepotError> {
        if self.objects.is_none() {
            return Ok(None);
        }
        let (store, id) = (self.store.clone(), layer.clone());
        let bytes = blocking(move || Ok(store.whole_bytes(&id)?)).await?;
        match bytes <= SMALL {
            true => self.put_layer(layer).await,
            false => Ok(None),
        }
    }

    /// Packs a layer and puts it. None without a store.
    pub async fn put_layer(&self, layer: &LayerId) -> Result<Option<Parcel>, DepotError> {
        let (store, id) = (self.store.clone(), layer.clone());
        let pack = move |into| Ok(store.pack_layer(&id, &Slot::defaults(), into)?);
        let name = |digest: &str| layer_name(layer, digest);
        self.put(pack, name).await
    }

    /// Packs a base and puts it. None without a store.
    pub(super) async fn put_base(&self, base: &BaseId) -> Result<Option<Parcel>, DepotError> {
        let (store, id) = (self.store.clone(), base.clone());
        let pack = move |into| Ok(store.pack_base(&id, &Slot::defaults(), into)?);
        let name = |digest: &str| base_name(base, digest);
        self.put(pack, name).await
    }

    /// Refuses while the store is known to be away, for what can wait until it is back.
    pub(crate) fn is_there(&self) -> Result<(), DepotError> {
        let Some(objects) = self
            .objects
            .as_ref()
            .filter(|objects| objects.away().is_some())
        else {
            return Ok(());
        };
        objects.is_open()?;
        let (store, reason) = (
            objects.shown().to_owned(),
            "has not answered again yet".to_owned(),
        );
        Err(DepotError::Away { store, reason })
    }

    async fn put(
        &self,
        pack: impl FnOnce(File) -> Result<Parcel, DepotError> + Send + 'static,
        name: impl Fn(&str) -> String,
    ) -> Result<Option<Parcel>, DepotError> {
        let Some(objects) = &self.objects else {
            return Ok(None);
        };
        objects.is_open()?;
        let store = self.store.clone();
        let staging = blocking(move || Ok(store.stage()?)).await?;
        let path = staging.path().join("parcel");
        let into = path.clone();
        let parcel = blocking(move || {
            let file = File::create_new(&into);
            pack(file.map_err(|source| DepotError::File { path: into, source })?)
        })
        .await?;
        faults::point("depot.packed");
        let object = Object {
            name: name(&parcel.digest),
            parcel,
        };
        match Kind::of(&object.name) {
            Some(Kind::Base(..)) => {
                self.spare(&object).await?;
                // Owed again where what is there is wrong, which no size tells.
                objects.put_over(&object, &path).await?;
            }
            _ => objects.put(&object, &path).await?,
        }
        faults::point("depot.put");
        blocking(move || Ok(staging.end()?)).await?;
        Ok(Some(object.parcel))
    }

    /// Brings layers here that are not, oldest first. What is here when this returns stays for whoever
    /// has named it in a row, or pinned it, before.
    pub async fn fetch(&self, layers: &[LayerId]) -> Result<(), DepotError> {
        for layer in layers {
            if !self.is_here(layer).await {
                self.fetch_layer(layer).await?;
            }
        }
        Ok(())
    }

    async fn is_here(&self, layer: &LayerId) -> bool {
        let _shared = self.in_cache().await;
        let here = self.store.present(layer);
        if here && self.objects.is_some() {
            self.store.touch(layer);
        }
        here
    }

    async fn in_cache(&self) -> RwLockReadGuard<'_, ()> {
        self.cache.read().await
    }

    async fn fetch_layer(&self, layer: &LayerId) -> Result<(), DepotError> {
        let turn = self.turn(layer.as_str());
        let _turn = turn.lock().await;
        if self.is_here(layer).await {
            return Ok(());
        }
        let missing = || {
            let layer = layer.clone();
            DepotError::Store(StoreError::Missing { layer })
        };
        let found = self.db.layer_is(layer).await?.ok_or_else(missing)?;
        let Some(parcel) = found.parcel.clone() else {
            return Err(self.only_copy(layer, &found, missing()).await?);
        };
        let object = Object {
            name: layer_name(layer, &parcel.digest),
            parcel,
        };
        let (store, id, disk) = (self.store.clone(), layer.clone(), self.host_disk.clone());
        self.bring(&object, found.bytes, move |from| {
            let room = |bytes| disk.has_room_for(bytes);
            let mut budget = Budget::new(u64::MAX, u64::MAX, &room);
            store.unpack_layer(&id, &Slot::defaults(), from, &mut budget)?;
            Ok(())
        })
        .await?;
        tracing::info!(%layer, bytes = object.parcel.size, "fetched from the layer store");
        Ok(())
    }

    /// What to say where the store has nothing.
    async fn only_copy(
        &self,
        layer: &LayerId,
        found: &Whereabouts,
        missing: DepotError,
    ) -> Result<DepotError, DepotError> {
        Ok(match &found.holder {
            // Without a store nobody hands anything over: it is lost.
            Some(worker) if *worker != self.worker && self.objects.is_some() => {
                DepotError::Elsewhere {
                    layer: layer.clone(),
                    worker: worker.clone(),
                    silence: self.db.silence(worker).await?,
                }
            }
            _ => missing,
        })
    }

    /// Brings a base here that is not. False: nobody has stored it, so it is extracted from its image.
    pub async fn fetch_base(&self, base: &Base) -> Result<bool, DepotError> {
        let turn = self.turn(base.id.as_str());
        let _turn = turn.lock().await;
        self.fetch_base_in_turn(base).await
    }

    /// The same for whoever has its [`Travel::turn`], and extracts it in that if need be.
    pub(crate) async fn fetch_base_in_turn(&self, base: &Base) -> Result<bool, DepotError> {
        if self.store.base_dir(&base.id).is_dir() {
            return Ok(true);
        }
        let found = self.db.base_is(&base.id).await?;
        let Some((parcel, bytes)) = found.and_then(|found| Some((found.parcel?, found.bytes)))
        else {
            return Ok(false);
        };
        let object = Object {
            name: base_name(&base.id, &parcel.digest),
            parcel,
        };
        let (store, id, disk) = (self.store.clone(), base.id.clone(), self.host_disk.clone());
        let making = self.making.clone();
        self.bring(&object, bytes, move |from| {
            // No row tells a base in the making from what a crash has left.
            let _making = making.blocking_read();
            let room = |bytes| disk.has_room_for(bytes);
            let mut budget = Budget::new(u64::MAX, u64::MAX, &room);
            Ok(store.unpack_base(&id, &Slot::defaults(), from, &mut budget)?)
        })
        .await?;
        Ok(true)
    }

    /// See [`Db::wall_clock`].
    pub(crate) async fn wall_clock(&self) -> Result<i64, DepotError> {
        Ok(self.db.wall_clock().await?)
    }

    /// Puts content under its hash.
    pub(crate) async fn put_blob(
        &self,
        hash: &BlobHash,
        size: u64,
        path: &Path,
    ) -> Result<(), DepotError> {
        let Some(objects) = &self.objects else {
            return Ok(());
        };
        let mut object = blob(hash, size);
        if !self.db.spare(&object.name).await? {
            // That removal may come at any time: this name is nobody else's, and is never put again.
            object.name = format!("{}/{}", anew(hash), uuid::Uuid::now_v7());
        }
        objects.put(&object, path).await
    }

    /// Only a base is ever put again under the same name: not while somebody may be removing it.
    async fn spare(&self, object: &Object) -> Result<(), DepotError> {
        if self.db.spare(&object.name).await? {
            return Ok(());
        }
        let object = object.name.clone();
        Err(DepotError::NotStored { object })
    }

    /// The object that content lies in, with its bytes.
    pub(super) async fn found_blob(
        &self,
        hash: &BlobHash,
    ) -> Result<Option<(String, u64)>, DepotError> {
        let Some(objects) = &self.objects else {
            return Ok(None);
        };
        let usual = blob(hash, 0).name;
        Ok(match objects.size(&usual).await? {
            Some(size) => Some((usual, size)),
            None => objects.first(&anew(hash)).await?,
        })
    }

    /// Writes content into a new file. False where the store has none.
    pub(crate) async fn get_blob(&self, hash: &BlobHash, into: &Path) -> Result<bool, DepotError> {
        let (Some(objects), Some((name, size))) = (&self.objects, self.found_blob(hash).await?)
        else {
            return Ok(false);
        };
        if !self.host_disk.has_room_for(size) {
            return Err(DepotError::NoRoom(self.host_disk.sentence()));
        }
        let object = Object {
            name,
            ..blob(hash, size)
        };
        objects.get(&object, into).await?;
        objects.was_good(&object);
        Ok(true)
    }

    /// Content that no row names any more leaves the store after a time of grace.
    pub(crate) async fn doom_blob(&self, hash: &BlobHash) -> Result<(), DepotError> {
        match self.objects {
            Some(_) => Ok(self.db.doom(&[blob(hash, 0).name]).await?),
            None => Ok(()),
        }
    }

    /// Fetches an object into a folder of its own and hands it over when it is whole and compared.
    async fn bring(
        &self,
        object: &Object,
        bytes: u64,
        unpack: impl FnOnce(File) -> Result<(), DepotError> + Send + 'static,
    ) -> Result<(), DepotError> {
        let Some(objects) = &self.objects else {
            let object = object.name.clone();
            return Err(DepotError::NotConfigured { object });
        };
        if !self.host_disk.has_room_for(object.parcel.size + bytes) {
            return Err(DepotError::NoRoom(self.host_disk.sentence()));
        }
        let store = self.store.clone();
        let staging = blocking(move || Ok(store.stage()?)).await?;
        let path = staging.path().join("parcel");
        objects.get(object, &path).await?;
        faults::point("depot.got");
        let unpacked = blocking(move || {
            unpack(opened(path)?)?;
            Ok(staging.end()?)
        });
        match unpacked.await {
            Ok(()) => objects.was_good(object),
            Err(DepotError::Oci(error)) if error.is_of_content() => {
                return Err(objects.is_unusable(object, observe::chain(&error)));
            }
            Err(error) => return Err(error),
        }
        faults::point("depot.unpacked");
        Ok(())
    }

    /// To be locked by whoever makes this layer or base here.
    pub(crate) fn turn(&self, of: &str) -> Arc<Turn> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = turns.get(of).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::new(Turn::default());
        turns.insert(of.to_owned(), Arc::downgrade(&turn));
        turn
    }
}

fn opened(path: PathBuf) -> Result<File, DepotError> {
    File::open(&path).map_err(|source| DepotError::File { path, source })
}

/// The object of content.
fn blob(hash: &BlobHash, size: u64) -> Object {
    let digest = hash.as_str().to_owned();
    Object {
        name: format!("blobs/{}/{digest}", &digest[..2]),
        parcel: Parcel { digest, size },
    }
}

/// Where content lies that could not have its usual name.
fn anew(hash: &BlobHash) -> String {
    format!("anew/{hash}")
}

/// A layer's object.
pub(super) fn layer_name(layer: &LayerId, digest: &str) -> String {
    format!("layers/{layer}.{digest}")
}

/// A base's object.
pub(super) fn base_name(base: &BaseId, digest: &str) -> String {
    format!("bases/{base}.{digest}")
}
