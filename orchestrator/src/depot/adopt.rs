//! A store that is given to an installation gets all that is here and not in it: one that is configured later, or
//! given to a copy, or after a restore.
//!
//! Rows say of layers, bases and transcripts what a store has, and are corrected when its mark is first seen. Of files
//! they do not: those that lie here are compared with the store's once per start.

use std::{collections::HashSet, fs, io, path::Path};

use mayfly_domain::BlobHash;

use super::{DepotError, Found, Travel, blocking, keep::kept};

impl Travel {
    /// The store's mark is seen for the first time: what it lacks is owed.
    pub(super) async fn adopt(&self, found: Found) -> Result<(), DepotError> {
        let Some(objects) = &self.objects else {
            return Ok(());
        };
        if found == Found::New {
            return Ok(self.db.owe_new_store().await?);
        }
        // Somebody has moved it here, or the process died after the mark.
        for object in self.db.objects_stored().await? {
            if objects.size(&object).await?.is_none() {
                self.db.owe(&object).await?;
            }
        }
        Ok(self.db.store_seen().await?)
    }

    /// Puts files that lie here, are named by rows and are not in the store.
    pub(super) async fn put_files(&self) -> Result<(), DepotError> {
        let Some(objects) = &self.objects else {
            return Ok(());
        };
        let mut last = Ok(());
        for byte in 0..=u8::MAX {
            let folder = format!("blobs/{byte:02x}");
            let path = self.data_dir.join(&folder);
            let here = blocking(move || blobs_in(&path)).await?;
            if here.is_empty() {
                continue;
            }
            let (mut there, mut pages) = (HashSet::new(), objects.list(&folder));
            while let Some(page) = pages.next().await? {
                there.extend(page.into_iter().map(|(name, _)| name));
            }
            for (hash, size) in here {
                if !there.contains(&format!("{folder}/{hash}")) {
                    last = kept(last, self.put_lacking(&hash, size).await)?;
                }
            }
        }
        last
    }

    async fn put_lacking(&self, hash: &BlobHash, size: u64) -> Result<(), DepotError> {
        if !self.db.names_blob(hash).await? || self.found_blob(hash).await?.is_some() {
            return Ok(());
        }
        let name = hash.as_str();
        let path = self.data_dir.join("blobs").join(&name[..2]).join(name);
        self.put_blob(hash, size, &path).await
    }
}

/// Files of a folder by their content, with their bytes.
fn blobs_in(folder: &Path) -> Result<Vec<(BlobHash, u64)>, DepotError> {
    let file = |source| DepotError::File {
        path: folder.to_owned(),
        source,
    };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(file)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(file)?;
        let hash = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        // One that is gone by now was needed by nobody.
        if let (Some(hash), Ok(meta)) = (hash, entry.metadata()) {
            found.push((hash, meta.len()));
        }
    }
    Ok(found)
}
