//! What a backup says about itself. The format is refused, not guessed; its size is capped first.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use mayfly_domain::{AgentId, BaseId, InstallationId, LayerId};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::{ImageLeft, place::UNFINISHED};

/// The only format this version writes and reads.
const FORMAT: u32 = 1;
/// A manifest of a million layers is smaller.
const MAX: u64 = 256 << 20;
pub(super) const NAME: &str = "manifest.json";
pub(super) const DATABASE: &str = "mayfly.db";

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Which layout this is.
    pub format: u32,
    /// The program that wrote it.
    pub program: String,
    /// Whose it is.
    pub installation: InstallationId,
    /// Unix milliseconds of the database's copy.
    pub taken_at: i64,
    /// SHA-256 of `mayfly.db`.
    pub database: String,
    /// Folders by path, with the digest of `snapshot::Replicator`.
    pub trees: Vec<Item>,
    /// Image archives by path, with their SHA-256.
    pub archives: Vec<Item>,
    /// Folders that were damaged before the backup and are not in it.
    pub damaged: Vec<String>,
    /// Images that are not in it.
    pub images: Vec<ImageLeft>,
}

/// One thing in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// Below the backup's folder.
    pub path: String,
    /// Lower-case hexadecimal SHA-256.
    pub sha256: String,
}

/// Why a folder is no backup that can be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Not there.
    #[error("there is no folder {}: name the folder of a backup", .0.display())]
    Absent(PathBuf),
    /// It has no manifest, or the mark of an unfinished one.
    #[error("{} is no whole backup ({reason}): name another", path.display())]
    Unfinished {
        /// The folder.
        path: PathBuf,
        /// Why.
        reason: &'static str,
    },
    /// Of another version.
    #[error("{} has format {found}, this mayfly {} reads {FORMAT}: use the version that wrote it", path.display(), env!("CARGO_PKG_VERSION"))]
    Format {
        /// The folder.
        path: PathBuf,
        /// The stored number.
        found: u32,
    },
    /// Cannot be understood.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The manifest.
        path: PathBuf,
        /// How.
        reason: String,
    },
}

#[derive(Deserialize)]
struct Version {
    format: u32,
}

impl Manifest {
    pub(super) fn new(installation: InstallationId, taken_at: i64) -> Manifest {
        Manifest {
            format: FORMAT,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            installation,
            taken_at,
            database: String::new(),
            trees: Vec::new(),
            archives: Vec::new(),
            damaged: Vec::new(),
            images: Vec::new(),
        }
    }

    /// Durable when it returns; the folder's entries are not.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let (path, fresh) = (folder.join(NAME), folder.join("manifest.new"));
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)?;
        file.write_all(&serde_json::to_vec_pretty(self).expect("plain data"))?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        std::fs::rename(fresh, path)
    }

    /// Reads the manifest of a backup; nothing else in it is looked at.
    pub fn read(folder: &Path) -> Result<Manifest, ManifestError> {
        let unfinished = |reason| ManifestError::Unfinished {
            path: folder.to_owned(),
            reason,
        };
        if !folder.is_dir() {
            return Err(ManifestError::Absent(folder.to_owned()));
        }
        if folder.join(UNFINISHED).symlink_metadata().is_ok() {
            return Err(unfinished("its writing was interrupted"));
        }
        let path = folder.join(NAME);
        let damaged = |reason: String| ManifestError::Damaged {
            path: path.clone(),
            reason,
        };
        let mut text = Vec::new();
        match open_plain(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(unfinished("it has no manifest.json"));
            }
            opened => opened.and_then(|file| file.take(MAX + 1).read_to_end(&mut text)),
        }
        .map_err(|error| damaged(error.to_string()))?;
        if text.len() as u64 > MAX {
            return Err(damaged("it is larger than any manifest".to_owned()));
        }
        let version: Version =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if version.format != FORMAT {
            return Err(ManifestError::Format {
                path: folder.to_owned(),
                found: version.format,
            });
        }
        let manifest: Manifest =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        manifest.check().map_err(damaged)?;
        Ok(manifest)
    }

    /// No path leads anywhere but to where its kind lies, and none comes twice.
    fn check(&self) -> Result<(), String> {
        let mut seen = HashSet::new();
        let trees = self
            .trees
            .iter()
            .map(|item| (&item.path, is_tree(&item.path)));
        let archives = self.archives.iter();
        let archives = archives.map(|item| (&item.path, is_archive(&item.path)));
        for (path, right) in trees.chain(archives) {
            if !right || !seen.insert(path) {
                let shown: String = path.chars().take(80).collect();
                return Err(format!("\"{shown}\" does not belong there"));
            }
        }
        Ok(())
    }
}

/// A regular file and no link.
pub(super) fn open_plain(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no file")),
    }
}

fn is_tree(path: &str) -> bool {
    match path.split_once('/') {
        Some(("l", id)) => id.parse::<LayerId>().is_ok(),
        Some(("b", id)) => id.parse::<BaseId>().is_ok(),
        Some(("transcripts", id)) => id
            .parse::<AgentId>()
            .is_ok_and(|agent| agent.to_string() == id),
        Some(("blobs", start)) => start.len() == 2 && is_hex(start),
        _ => false,
    }
}

fn is_archive(path: &str) -> bool {
    let id = path
        .strip_prefix("images/")
        .and_then(|name| name.strip_suffix(".tar"));
    id.is_some_and(|id| id.len() == 12 && is_hex(id))
}

fn is_hex(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(tree: &str) -> Result<(), String> {
        let mut manifest = Manifest::new(InstallationId::new(), 0);
        manifest.trees.push(Item {
            path: tree.to_owned(),
            sha256: String::new(),
        });
        manifest.check()
    }

    #[test]
    fn a_path_out_of_place_is_refused() {
        assert!(with("l/0123456789ab").is_ok());
        let escapes = [
            "l/..",
            "../l/0123456789ab",
            "/etc",
            "l/0123456789ab/..",
            "u/0123456789ab",
        ];
        for path in escapes {
            assert!(with(path).is_err(), "{path}");
        }
        assert!(is_archive("images/0123456789ab.tar"));
        assert!(!is_archive("images/../etc/x.tar"));
    }

    #[test]
    fn a_folder_that_is_no_whole_backup_is_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let read = || Manifest::read(folder.path()).unwrap_err();
        assert!(matches!(read(), ManifestError::Unfinished { .. }));
        std::fs::write(folder.path().join(NAME), "{\"format\": 2, \"x\": 1}").unwrap();
        assert!(matches!(read(), ManifestError::Format { found: 2, .. }));
        std::fs::write(folder.path().join(NAME), "{\"format\": 1, \"x\": 1}").unwrap();
        assert!(matches!(read(), ManifestError::Damaged { .. }));
        std::fs::write(folder.path().join(UNFINISHED), "").unwrap();
        assert!(matches!(read(), ManifestError::Unfinished { .. }));
    }
}
