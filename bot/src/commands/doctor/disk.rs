//! The data dir: its path, its file system, its room.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{Check, State, overlay};
use crate::{
    config::Config,
    data_dir::{self, DataDirError, Purpose},
};

pub(super) fn checks(config: &Config) -> Vec<Check> {
    let path = &config.data_dir;
    let mut checks = vec![place(path)];
    let Some(there) = existing(path) else {
        return checks;
    };
    checks.push(file_system(&there));
    checks.push(free(&there, config.disk.floor_mib));
    checks.extend(room(&there, config));
    checks.push(quota(&there));
    if path.is_dir() && checks[0].state == State::Ok {
        checks.push(apart(path));
        checks.push(overlay::check(path));
    }
    checks
}

fn place(path: &Path) -> Check {
    let fail = |error: DataDirError| {
        let sentence = error.to_string();
        let (found, mend) = sentence
            .split_once(": ")
            .unwrap_or((&sentence, "choose another path"));
        Check::not(State::Fail, "data dir", found, mend)
    };
    if let Err(error) = data_dir::check_path(path) {
        return fail(error);
    }
    match DataDirHeld::of(path) {
        Ok(DataDirHeld::Free) => Check::ok("data dir", path.display().to_string()),
        Ok(DataDirHeld::Server) => Check::ok("data dir", format!("{}, in use", path.display())),
        Err(error) => fail(error),
    }
}

/// Whether somebody holds it now; if nobody does it is made and let go of again.
enum DataDirHeld {
    Free,
    Server,
}

impl DataDirHeld {
    fn of(path: &Path) -> Result<Self, DataDirError> {
        match data_dir::DataDir::hold(path, Purpose::Command) {
            Ok(_) => Ok(DataDirHeld::Free),
            Err(DataDirError::InUse { .. }) => Ok(DataDirHeld::Server),
            Err(error) => Err(error),
        }
    }
}

fn existing(path: &Path) -> Option<PathBuf> {
    path.ancestors()
        .find(|path| path.is_dir())
        .map(Path::to_owned)
}

fn file_system(path: &Path) -> Check {
    let mount = Mount::of(path);
    let kind = mount
        .as_ref()
        .map_or("unknown", |mount| mount.kind.as_str());
    judge_file_system(kind)
}

fn judge_file_system(kind: &str) -> Check {
    let found = format!("data dir on {kind}");
    match kind {
        "ext4" | "xfs" | "btrfs" | "zfs" | "f2fs" => Check::ok("file system", found),
        "tmpfs" | "ramfs" => Check::not(
            State::Warn,
            "file system",
            format!("{found}: everything is gone after a restart of the host"),
            "set data_dir to a path on a disk",
        ),
        "overlay" | "nfs" | "nfs4" | "cifs" | "9p" | "vboxsf" | "vfat" | "exfat" => Check::not(
            State::Fail,
            "file system",
            format!("{found}, which cannot hold the agents' layers"),
            "set data_dir to a path on ext4, xfs or btrfs",
        ),
        _ => Check::not(
            State::Warn,
            "file system",
            format!("{found}, which was not tried"),
            "prefer ext4, xfs or btrfs for data_dir",
        ),
    }
}

fn free(path: &Path, floor_mib: u64) -> Check {
    let Ok(stat) = rustix::fs::statvfs(path) else {
        let found = format!("{} does not tell its room", path.display());
        return Check::not(State::Warn, "free space", found, "look at it with df");
    };
    let mib = stat.f_bavail.saturating_mul(stat.f_frsize) >> 20;
    let inodes = stat.f_favail;
    judge_free(mib, inodes, floor_mib)
}

fn judge_free(mib: u64, inodes: u64, floor_mib: u64) -> Check {
    let found = format!("{mib} MiB and {inodes} inodes free");
    let fail = |mend: String| Check::not(State::Fail, "free space", found.clone(), mend);
    match () {
        () if mib < floor_mib => fail(format!(
            "free some: below {floor_mib} MiB (disk.floor_mib) no tick starts"
        )),
        // Some file systems have no fixed number and tell 0.
        () if (1..10_000).contains(&inodes) => {
            fail("free some inodes: each changed file takes one".to_owned())
        }
        () if mib < floor_mib.saturating_mul(2) => Check::not(
            State::Warn,
            "free space",
            found,
            format!("free some soon: below {floor_mib} MiB (disk.floor_mib) no tick starts"),
        ),
        () => Check::ok("free space", found),
    }
}

/// Whether the profile that may write most has room above the floor; silent where it has.
fn room(path: &Path, config: &Config) -> Option<Check> {
    let stat = rustix::fs::statvfs(path).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize) >> 20;
    let profiles = config.profiles.0.iter();
    let largest = profiles.map(|(name, profile)| (profile.limits.state_mib, name.as_str()));
    judge_room(free.saturating_sub(config.disk.floor_mib), largest.max()?)
}

fn judge_room(free: u64, (wants, profile): (u64, &str)) -> Option<Check> {
    (wants > free).then(|| {
        Check::not(
            State::Warn,
            "room",
            format!(
                "{free} MiB free above disk.floor_mib, and a tick of profile {profile} may write {wants} MiB"
            ),
            format!(
                "free some space, or lower profiles.{profile}.limits.state_mib: until then such a tick runs alone, and is ended at the floor"
            ),
        )
    })
}

fn quota(path: &Path) -> Check {
    let options = Mount::of(path)
        .map(|mount| mount.options)
        .unwrap_or_default();
    let has = |wanted: &[&str]| options.split(',').any(|option| wanted.contains(&option));
    match has(&["prjquota", "pquota"]) {
        true => Check::ok("quotas", "project quotas are on"),
        false => Check::not(
            State::Advice,
            "quotas",
            "no hard cap here: a tick over its disk limit is ended within a second, not refused",
            "mount the data dir's file system (xfs or ext4) with prjquota for a hard cap",
        ),
    }
}

/// Layers lie in `l/`.
fn apart(path: &Path) -> Check {
    let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev()).ok();
    let layers = device(&path.join("l"));
    match layers.is_some() && layers != device(path) {
        true => Check::ok("layers", "on a file system apart from the database"),
        false => Check::not(
            State::Advice,
            "layers",
            "on the same file system as the database",
            format!(
                "mount a file system of its own at {}/l, so that agents cannot fill up the database's",
                path.display()
            ),
        ),
    }
}

/// The mount that holds a path.
struct Mount {
    kind: String,
    /// Of the mount and of the file system.
    options: String,
}

impl Mount {
    fn of(path: &Path) -> Option<Mount> {
        let path = path.canonicalize().ok()?;
        let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        Mount::find(&table, &path)
    }

    /// The longest prefix, of several the last: it lies on top. See `proc_pid_mountinfo(5)`.
    fn find(table: &str, path: &Path) -> Option<Mount> {
        let holds = |line: &&str| {
            let point = line.split(' ').nth(4).unwrap_or_default();
            path.starts_with(point.replace("\\040", " "))
        };
        let depth = |line: &&str| line.split(' ').nth(4).map_or(0, str::len);
        let line = table.lines().filter(holds).max_by_key(depth)?;
        let (mount, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        Some(Mount {
            kind: system.next()?.to_owned(),
            options: format!("{},{}", mount.split(' ').nth(5)?, system.nth(1)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 22 8:2 / /var/lib rw - xfs /dev/sdb1 rw,prjquota
31 22 0:5 / /var/library rw - tmpfs tmpfs rw
";

    #[test]
    fn the_mount_of_a_path_is_its_longest_prefix() {
        let find = |path: &str| Mount::find(TABLE, Path::new(path)).unwrap();
        assert_eq!(find("/var/lib/mayfly").kind, "xfs");
        assert!(find("/var/lib/mayfly").options.contains("prjquota"));
        assert_eq!(find("/var/library/x").kind, "tmpfs");
        assert_eq!(find("/var/libx").kind, "ext4");
    }

    #[test]
    fn room_is_judged_by_the_floor() {
        let state = |mib, inodes| judge_free(mib, inodes, 1024).state;
        assert_eq!(state(1000, 1 << 20), State::Fail);
        assert_eq!(state(1500, 1 << 20), State::Warn);
        assert_eq!(state(5000, 100), State::Fail);
        assert_eq!(state(5000, 0), State::Ok);
    }

    #[test]
    fn a_profile_that_may_write_more_than_is_free_is_told_with_both_figures() {
        let check = judge_room(900, (2048, "big")).unwrap();
        assert_eq!(check.state, State::Warn);
        assert!(check.found.contains("900 MiB") && check.found.contains("2048 MiB"));
        assert_eq!(judge_room(2048, (2048, "big")), None);
    }

    #[test]
    fn a_file_system_without_layers_is_refused() {
        assert_eq!(judge_file_system("ext4").state, State::Ok);
        assert_eq!(judge_file_system("overlay").state, State::Fail);
        assert_eq!(judge_file_system("tmpfs").state, State::Warn);
    }
}
