//! What other programs take for the same work on the same tree: the engine's own commit and save,
//! tar with zstd, restic. Each answer is milliseconds until the result is as durable as that program
//! makes it; where it leaves that to the system, a second answer has the sync in it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use tempfile::TempDir;

use super::points::ms;

/// A small image with `cp`, so that the engine does not save a distribution each time.
const IMAGE: &str = "mayfly/tiny";

/// A folder on the same file system, and names of this bench's own on the engine.
#[derive(Debug)]
pub struct Others {
    dir: TempDir,
    prefix: String,
    engine_root: String,
}

/// Without the sync, and with it.
#[derive(Debug, Clone, Copy)]
pub struct Took {
    /// Until the program ended.
    pub plain: f64,
    /// Until its files are on the disk too.
    pub durable: f64,
}

impl Others {
    /// `prefix` begins the names of what is made on the engine.
    pub fn new(parent: &Path, prefix: &str) -> Others {
        let dir = tempfile::Builder::new().prefix("mo").tempdir_in(parent);
        Others {
            dir: dir.expect("a temporary folder"),
            prefix: format!("{prefix}bench"),
            engine_root: shell("docker info --format '{{.DockerRootDir}}'"),
        }
    }

    /// A place for files; goes with this.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `tar | zstd -1` of a tree into a file.
    pub fn tar(&self, tree: &Path) -> Took {
        let (tree, to) = (tree.display(), self.path("tree.tar.zst"));
        let to = to.display();
        self.took(
            &format!("tar -C {tree} -cf - . | zstd -q -1 -f -o {to}"),
            &format!("sync {to}"),
        )
    }

    /// The way back of [`Others::tar`], into a new folder.
    pub fn untar(&self) -> Took {
        let (from, to) = (self.path("tree.tar.zst"), self.path("untar"));
        let (from, to) = (from.display(), to.display());
        let took = self.took(
            &format!("mkdir {to}; zstd -q -dc {from} | tar -C {to} -xpf -"),
            &format!("sync -f {to}"),
        );
        remove(&self.path("untar"));
        took
    }

    /// A new repository of restic.
    pub fn restic_init(&self, repository: &str) {
        remove(&self.path(repository));
        self.restic(repository, "init -q");
    }

    /// restic's backup of a tree; it syncs by itself.
    pub fn restic_backup(&self, repository: &str, tree: &Path) -> f64 {
        settle(self.dir.path());
        self.restic(repository, &format!("backup -q {}", tree.display()))
    }

    /// The newest one comes back into a new folder.
    pub fn restic_restore(&self, repository: &str) -> Took {
        let to = self.path("restored");
        settle(self.dir.path());
        let plain = self.restic(
            repository,
            &format!("restore -q latest --target {}", to.display()),
        );
        let durable = plain + timed(&format!("sync -f {}", to.display()));
        remove(&to);
        Took { plain, durable }
    }

    fn restic(&self, repository: &str, command: &str) -> f64 {
        let (repository, cache) = (self.path(repository), self.path("restic-cache"));
        timed(&format!(
            "RESTIC_PASSWORD=bench RESTIC_CACHE_DIR={} restic -r {} {command} >/dev/null",
            cache.display(),
            repository.display(),
        ))
    }

    /// A stopped container whose only change is a copy of the tree, at `/state`.
    pub fn filled(&self, name: &str, tree: &Path) {
        self.stopped(
            name,
            IMAGE,
            &format!("-v {}:/tree:ro", tree.display()),
            "cp -a /tree /state",
        );
    }

    /// A stopped container that changed one small file of an image.
    pub fn changed(&self, name: &str, image: &str) {
        let image = self.name(image);
        self.stopped(name, &image, "", "date +%N > /state/note");
    }

    fn stopped(&self, name: &str, image: &str, options: &str, script: &str) {
        let name = self.name(name);
        shell(&format!(
            "docker run --name {name} --network none --user 0 {options} --entrypoint sh {image} -c '{script}'"
        ));
    }

    /// `docker commit` of a stopped container. Its result is not durable by itself.
    pub fn commit(&self, name: &str) -> Took {
        let name = self.name(name);
        let root = &self.engine_root;
        // No sync before: what the container wrote is as unwritten as a tick's files at its seal.
        let plain = timed(&format!("docker commit -p=false {name} {name} >/dev/null"));
        let durable = plain + timed(&format!("sync -f {root}"));
        Took { plain, durable }
    }

    /// `docker save` of a committed image into a file.
    pub fn save(&self, name: &str) -> Took {
        let (name, to) = (self.name(name), self.path("image.tar"));
        let to = to.display();
        self.took(
            &format!("docker save -o {to} {name}"),
            &format!("sync {to}"),
        )
    }

    /// `docker load` of what was saved, onto an engine without it.
    pub fn load(&self, name: &str) -> Took {
        self.forget(name);
        let (from, root) = (self.path("image.tar"), &self.engine_root);
        self.took(
            &format!("docker load -q -i {} >/dev/null", from.display()),
            &format!("sync -f {root}"),
        )
    }

    /// Removes container and image of a name.
    pub fn forget(&self, name: &str) {
        let name = self.name(name);
        shell(&format!(
            "docker rm -f {name} >/dev/null 2>&1 || true; docker rmi -f {name} >/dev/null 2>&1 || true"
        ));
    }

    fn took(&self, command: &str, sync: &str) -> Took {
        settle(self.dir.path());
        let plain = timed(command);
        let durable = plain + timed(sync);
        Took { plain, durable }
    }

    fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }
}

/// What is left on the engine, also after a panic, goes.
impl Drop for Others {
    fn drop(&mut self) {
        let names = &self.prefix;
        let script = format!(
            "docker ps -aq --filter name='^{names}-' | xargs -r docker rm -f; \
             docker images -q '{names}-*' | xargs -r docker rmi -f"
        );
        // A second panic would hide the first.
        let _ = std::process::Command::new("bash")
            .args(["-c", &script])
            .output();
    }
}

/// Nobody pays for what somebody else wrote before.
pub fn settle(path: &Path) {
    let synced = fs::File::open(path).and_then(|folder| Ok(rustix::fs::syncfs(folder)?));
    synced.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Removes a folder, if it is there.
pub fn remove(path: &Path) {
    if path.is_dir() {
        fs::remove_dir_all(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

fn timed(command: &str) -> f64 {
    let began = Instant::now();
    shell(command);
    ms(began.elapsed())
}

fn shell(command: &str) -> String {
    let script = format!("set -euo pipefail; {command}");
    crate::engine::run("bash", &["-c", &script])
        .trim()
        .to_owned()
}
