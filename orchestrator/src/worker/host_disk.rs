//! The host's free space: a floor below which no tick starts, and a ballast file that is given up
//! so that the database can still write outcomes.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use crate::sandbox::disk;

/// Bytes that a start is content with.
const TO_START: u64 = 16 << 20;

/// Limits on the host's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskConfig {
    /// Mebibytes that stay free: below it no tick starts and running ones are ended.
    pub floor_mib: u64,
    /// Mebibytes of the ballast file.
    pub ballast_mib: u64,
}

impl Default for DiskConfig {
    fn default() -> Self {
        DiskConfig {
            floor_mib: 1024,
            ballast_mib: 64,
        }
    }
}

/// The file system the data dir lies on.
#[derive(Debug, Clone)]
pub struct HostDisk {
    data_dir: PathBuf,
    config: DiskConfig,
}

impl HostDisk {
    /// Of this data dir.
    pub fn new(data_dir: PathBuf, config: DiskConfig) -> Self {
        HostDisk { data_dir, config }
    }

    /// Whether the floor is reached. A disk that cannot be asked is not full.
    pub fn below_floor(&self) -> bool {
        let floor = self.config.floor_mib << 20;
        disk::free(&self.data_dir).is_ok_and(|(bytes, _)| bytes < floor)
    }

    /// What is wrong below the floor, for a thread: paths of the host are the operator's.
    pub fn told(&self) -> &'static str {
        "the host's disk is nearly full: it goes on by itself once whoever runs this server has freed some space"
    }

    /// What is wrong below the floor, and the way out, for the operator.
    pub fn sentence(&self) -> String {
        format!(
            "the host's disk is nearly full: free some space on the file system of {}, ticks start \
             from {} MiB (disk.floor_mib) on",
            self.data_dir.display(),
            self.config.floor_mib
        )
    }

    /// Bytes that are free above the floor. A disk that cannot be asked is not full.
    pub fn above_floor(&self) -> u64 {
        let free = disk::free(&self.data_dir).map_or(u64::MAX, |(bytes, _)| bytes);
        free.saturating_sub(self.config.floor_mib << 20)
    }

    /// Bytes that stay free, with those of the ballast.
    pub fn floor(&self) -> u64 {
        (self.config.floor_mib + self.config.ballast_mib) << 20
    }

    /// Whether so many bytes more would leave the floor. A disk that cannot be asked has none.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        let needed = bytes.saturating_add(self.floor());
        disk::free(&self.data_dir).is_ok_and(|(free, _)| free > needed)
    }

    /// Writes the ballast file if it is missing and there is room for it above the floor.
    pub fn make_ballast(&self) -> io::Result<()> {
        let bytes = self.config.ballast_mib << 20;
        let (room, _) = disk::free(&self.data_dir)?;
        if self.path().exists() || room < bytes + (self.config.floor_mib << 20) {
            return Ok(());
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.path())?;
        let done = fill(&file, bytes);
        if done.is_err() {
            self.free_ballast();
        }
        done
    }

    /// Gives the ballast up where hardly anything else is left: a start has to write before it can
    /// say what is wrong.
    pub fn make_room(&self) {
        let least = (self.config.ballast_mib << 20).min(TO_START);
        if disk::free(&self.data_dir).is_ok_and(|(free, _)| free < least) {
            self.free_ballast();
        }
    }

    /// Gives the ballast up.
    pub fn free_ballast(&self) {
        if std::fs::remove_file(self.path()).is_ok() {
            tracing::warn!("the disk is full: ballast given up so that outcomes can be written");
        }
    }

    fn path(&self) -> PathBuf {
        self.data_dir.join("ballast")
    }
}

fn fill(mut file: &File, bytes: u64) -> io::Result<()> {
    let chunk = vec![0u8; 1 << 20];
    for _ in 0..bytes >> 20 {
        file.write_all(&chunk)?;
    }
    file.sync_all()
}
