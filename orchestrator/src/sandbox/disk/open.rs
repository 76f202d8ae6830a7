//! Deleted files that processes of one sandbox hold open or mapped.
//!
//! Files are looked at by `stat` through `/proc`, never opened, so a fifo cannot make this wait.
//! A descriptor may also be in no process, only in a unix socket's queue: how many are there is
//! told, what they hold nobody can know.

use std::{
    collections::HashSet,
    fs, io,
    os::unix::fs::{FileTypeExt as _, MetadataExt},
    path::{Path, PathBuf},
};

/// What deleted files still take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeletedUse {
    /// Bytes of blocks.
    pub bytes: u64,
    /// How many there are.
    pub files: u64,
    /// Descriptors in the queues of unix sockets: sent, and not yet received by anybody.
    pub in_transit: u64,
}

/// Adds up the deleted files that processes in the pid namespace of `init_pid` hold. `device` is
/// the uppers' file system (`st_dev`); through a slot's mount the same files show the mount's own
/// device, which is found here. Gone processes are passed over.
pub fn deleted_open(init_pid: u32, device: u64) -> io::Result<DeletedUse> {
    let init = PathBuf::from(format!("/proc/{init_pid}"));
    let namespace = fs::read_link(init.join("ns/pid"))?;
    let mut search = Search {
        devices: overlays(&fs::read(init.join("mountinfo"))?),
        seen: HashSet::new(),
        total: DeletedUse::default(),
    };
    search.devices.insert(device);
    for process in numbered(Path::new("/proc")) {
        if fs::read_link(process.join("ns/pid")).is_ok_and(|found| found == namespace) {
            search.process(&process);
        }
    }
    Ok(search.total)
}

struct Search {
    devices: HashSet<u64>,
    seen: HashSet<u64>,
    total: DeletedUse,
}

impl Search {
    fn process(&mut self, process: &Path) {
        let mut mapped = false;
        // A thread may have a table of descriptors of its own.
        for thread in numbered(&process.join("task")) {
            for descriptor in numbered(&thread.join("fd")) {
                self.descriptor(&thread, &descriptor);
            }
            // All threads share one memory, but a leader that has ended shows none of it.
            mapped = mapped || self.maps(&thread);
        }
    }

    fn descriptor(&mut self, thread: &Path, descriptor: &Path) {
        let Ok(found) = fs::metadata(descriptor) else {
            return;
        };
        if !found.file_type().is_socket() {
            return self.look(&found);
        }
        let Some(number) = descriptor.file_name() else {
            return;
        };
        let info = fs::read_to_string(thread.join("fdinfo").join(number)).unwrap_or_default();
        let queued = info
            .lines()
            .find_map(|line| line.strip_prefix("scm_fds:")?.trim().parse::<u64>().ok());
        self.total.in_transit = self.total.in_transit.saturating_add(queued.unwrap_or(0));
    }

    /// Looks at what a thread has mapped; false if it has no memory.
    fn maps(&mut self, thread: &Path) -> bool {
        let maps = fs::read(thread.join("maps")).unwrap_or_default();
        // Only below its own number, which is not listed, has a thread these.
        let Some(number) = thread.file_name() else {
            return false;
        };
        let files = Path::new("/proc").join(number).join("map_files");
        for line in maps.split(|byte| *byte == b'\n') {
            if line.ends_with(b" (deleted)")
                && let Some(range) = line.split(|byte| *byte == b' ').next()
                && let Ok(range) = std::str::from_utf8(range)
                && let Ok(found) = fs::metadata(files.join(map_file(range)))
            {
                self.look(&found);
            }
        }
        !maps.is_empty()
    }

    fn look(&mut self, found: &fs::Metadata) {
        let held = found.is_file() && found.nlink() == 0 && self.devices.contains(&found.dev());
        // Through the mount and beneath it a file has two devices and one inode number.
        if held && self.seen.insert(found.ino()) {
            self.total.bytes = self.total.bytes.saturating_add(found.blocks() * 512);
            self.total.files += 1;
        }
    }
}

/// `maps` pads addresses with zeros, `map_files` does not.
fn map_file(range: &str) -> String {
    let plain = |text: &str| match text.trim_start_matches('0') {
        "" => "0".to_owned(),
        rest => rest.to_owned(),
    };
    match range.split_once('-') {
        Some((from, to)) => format!("{}-{}", plain(from), plain(to)),
        None => range.to_owned(),
    }
}

fn numbered(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let digits = |name: &[u8]| name.iter().all(u8::is_ascii_digit);
    entries
        .filter(move |entry| digits(entry.file_name().as_encoded_bytes()))
        .map(|entry| entry.path())
}

/// Devices of the overlays mounted in a sandbox, its root's excepted: that one is read-only.
fn overlays(mountinfo: &[u8]) -> HashSet<u64> {
    let text = String::from_utf8_lossy(mountinfo);
    let device = |line: &str| {
        let (mount, kind) = line.split_once(" - ")?;
        let fields: Vec<&str> = mount.split(' ').collect();
        let (device, point) = (fields.get(2)?, fields.get(4)?);
        if !kind.starts_with("overlay ") || *point == "/" {
            return None;
        }
        let (major, minor) = device.split_once(':')?;
        Some(rustix::fs::makedev(
            major.parse().ok()?,
            minor.parse().ok()?,
        ))
    };
    text.lines().filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_deleted_files_are_seen_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gone");
        fs::write(&path, vec![1; 300_000]).unwrap();
        let file = fs::File::open(&path).unwrap();
        let _twin = file.try_clone().unwrap();
        let device = file.metadata().unwrap().dev();
        fs::remove_file(&path).unwrap();
        let with = deleted_open(std::process::id(), device).unwrap();
        assert!(with.bytes >= 300_000 && with.files >= 1, "{with:?}");
    }

    #[test]
    fn slots_are_overlays_below_the_root() {
        let mountinfo = b"1 0 0:50 / / ro - overlay overlay ro\n\
            2 1 0:61 / /work rw shared:1 - overlay overlay rw,upperdir=/x\n\
            3 1 0:62 / /tmp rw - tmpfs tmpfs rw\n";
        assert_eq!(
            overlays(mountinfo),
            HashSet::from([rustix::fs::makedev(0, 61)])
        );
    }
}
