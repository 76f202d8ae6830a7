//! A layout's files: received from a tar file, read from a folder with every digest checked. How they are written
//! stands in [`super::sink`].

use std::{
    fs::{self, File},
    io::{self, Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use super::{
    super::StoreError,
    OciError,
    image::{self, Descriptor},
    read::{Kind, Reader},
    squeeze,
    unpack::Budget,
};

pub(super) const LAYOUT: &str = "oci-layout";
pub(super) const INDEX: &str = "index.json";
pub(super) const BLOBS: &str = "blobs/sha256";

/// Unpacks a layout's tar file into the empty folder `into`: known names only.
pub fn receive(from: impl Read, into: &Path, budget: &mut Budget<'_>) -> Result<(), OciError> {
    let made = fs::create_dir_all(into.join(BLOBS));
    made.map_err(|error| StoreError::io(into, error))?;
    let mut reader = Reader::new(from);
    let mut entries = 0;
    while let Some(entry) = reader.next().map_err(OciError::Tar)? {
        entries += 1;
        if entries > 2 * image::LAYERS_MAX {
            return Err(OciError::Limit("it holds too many blobs".to_owned()));
        }
        budget.take_entry(&entry)?;
        let path = entry.path.strip_prefix(b"./").unwrap_or(&entry.path);
        let name = std::str::from_utf8(path).unwrap_or_default();
        let folder = [".", "", "blobs", BLOBS].contains(&name.trim_end_matches('/'));
        match entry.kind {
            Kind::Folder if folder => continue,
            Kind::File if is_layout_file(name) && entry.pieces.is_none() => {}
            _ => {
                return Err(OciError::entry(
                    &entry.path,
                    "does not belong into a layout",
                ));
            }
        }
        keep(&mut reader, &entry.path, &into.join(name), budget)?;
    }
    reader.finish().map_err(OciError::Tar)?;
    Ok(())
}

/// Copies the content of the entry `path`, itself taken from the budget, into the new file `to`.
pub(super) fn keep<R: Read>(
    reader: &mut Reader<R>,
    path: &[u8],
    to: &Path,
    budget: &mut Budget<'_>,
) -> Result<(), OciError> {
    let file = File::create_new(to);
    let mut file = file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => OciError::entry(path, "is there twice"),
        _ => StoreError::io(to, error).into(),
    })?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        let len = reader.read(&mut buffer).map_err(OciError::Tar)?;
        if len == 0 {
            return Ok(());
        }
        budget.take(len as u64)?;
        let written = file.write_all(&buffer[..len]);
        written.map_err(|error| StoreError::io(to, error))?;
    }
}

fn is_layout_file(name: &str) -> bool {
    let blob = name
        .strip_prefix(BLOBS)
        .and_then(|name| name.strip_prefix('/'));
    let blob = blob.is_some_and(|name| image::bare(&format!("sha256:{name}")).is_ok());
    blob || name == LAYOUT || name == INDEX
}

/// A layout in a folder.
pub(super) struct Source<'a>(pub(super) &'a Path);

impl Source<'_> {
    pub(super) fn layout(&self) -> Result<Vec<u8>, OciError> {
        self.small(LAYOUT)
    }

    pub(super) fn index(&self) -> Result<Vec<u8>, OciError> {
        self.small(INDEX)
    }

    /// A document, by its digest.
    pub(super) fn document(&self, of: &Descriptor) -> Result<Vec<u8>, OciError> {
        let bare = image::bare(&of.digest)?;
        let content = self.small(&format!("{BLOBS}/{bare}"))?;
        let told = (bare.to_owned(), of.size);
        match squeeze::digest(&content[..]) {
            Ok(found) if found == told => Ok(content),
            _ => Err(OciError::bad(&of.digest, "its content is another")),
        }
    }

    /// A layer, read once to see that it is what its digest says; open at its start.
    pub(super) fn blob(&self, of: &Descriptor) -> Result<File, OciError> {
        let bare = image::bare(&of.digest)?;
        let (mut file, path) = self.open(&format!("{BLOBS}/{bare}"))?;
        let fault = |error| OciError::from(StoreError::io(&path, error));
        let size = file.metadata().map_err(fault)?.len();
        if size != of.size {
            return Err(OciError::bad(&of.digest, "it is of another size"));
        }
        let (found, _) = squeeze::digest(&mut file).map_err(fault)?;
        if found != bare {
            return Err(OciError::bad(&of.digest, "its content is another"));
        }
        file.rewind().map_err(fault)?;
        Ok(file)
    }

    /// Removes a layer; that it lacks is fine.
    pub(super) fn remove(&self, of: &Descriptor) -> Result<(), OciError> {
        let path = self.0.join(BLOBS).join(image::bare(&of.digest)?);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io(path, error).into())
            }
            _ => Ok(()),
        }
    }

    fn small(&self, name: &str) -> Result<Vec<u8>, OciError> {
        let (file, path) = self.open(name)?;
        let mut content = Vec::new();
        let read = file.take(image::DOCUMENT_MAX + 1).read_to_end(&mut content);
        read.map_err(|error| StoreError::io(&path, error))?;
        match content.len() as u64 > image::DOCUMENT_MAX {
            true => Err(OciError::Limit(format!("{name} is larger than 4 MiB"))),
            false => Ok(content),
        }
    }

    fn open(&self, name: &str) -> Result<(File, PathBuf), OciError> {
        let path = self.0.join(name);
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let opened = File::options()
            .read(true)
            .custom_flags(flags.bits() as i32)
            .open(&path);
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => OciError::bad(name, "it is missing"),
            _ => StoreError::io(&path, error).into(),
        })?;
        match file.metadata() {
            Ok(meta) if meta.is_file() => Ok((file, path)),
            _ => Err(OciError::bad(name, "it is no file")),
        }
    }
}
