//! The power goes after an acknowledged reply. The data dir lies on a file system of its own, on a
//! loop device; what a cut leaves is what has reached the device, which is its image file. Copies
//! of that file are mounted elsewhere, and every reply that was acknowledged must be whole there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use mayfly_tests::{engine::run, server::Server};
use tempfile::TempDir;

use crate::scene::Scene;

/// Journal commits by time would save what nobody has synced, and a copy is not made in no time.
const OPTIONS: &str = "loop,commit=600";

struct Disk {
    folder: TempDir,
    mounted: Vec<PathBuf>,
}

impl Disk {
    fn new() -> Disk {
        let folder = tempfile::Builder::new()
            .prefix("mp")
            .tempdir()
            .expect("a folder");
        let mut disk = Disk {
            folder,
            mounted: Vec::new(),
        };
        let image = disk.path("image");
        fs::File::create(&image)
            .and_then(|file| file.set_len(512 << 20))
            .expect("an image");
        run(
            "mkfs.ext4",
            &["-q", "-F", "-E", "lazy_itable_init=0", &image],
        );
        disk.mount(&image, "m", OPTIONS);
        disk
    }

    fn path(&self, name: &str) -> String {
        self.folder
            .path()
            .join(name)
            .to_str()
            .expect("UTF-8")
            .to_owned()
    }

    fn mount(&mut self, image: &str, at: &str, options: &str) {
        let at = self.path(at);
        fs::create_dir_all(&at).expect("a mount point");
        run("mount", &["-o", options, image, &at]);
        self.mounted.push(at.into());
    }

    fn unmount(&mut self) {
        let last = self.mounted.pop().expect("something is mounted");
        run("umount", &[last.to_str().expect("UTF-8")]);
    }

    /// What a cut would leave now. Nothing is synced for it.
    fn cut(&self, name: &str) -> String {
        let copy = self.path(name);
        run("cp", &["--sparse=always", &self.path("image"), &copy]);
        copy
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        for at in self.mounted.drain(..).rev() {
            let _ = std::process::Command::new("umount")
                .arg("-l")
                .arg(at)
                .status();
        }
    }
}

/// What the agent has said so far, and what its files must then hold.
#[derive(Clone)]
struct Acknowledged {
    tokens: Vec<String>,
    /// `sha256sum` of all files below /work, as the tick itself saw them.
    sums: String,
}

const SUMS: &str = "find . -type f -not -path './send/*' | LC_ALL=C sort | xargs sha256sum";

#[test]
fn every_acknowledged_head_survives_a_power_cut() {
    let mut disk = Disk::new();
    let server = Server::new(env!("CARGO_BIN_EXE_mayfly-under-test"));
    let mut scene = Scene::on(server.at(&disk.folder.path().join("m/d")));
    scene.server.start();
    scene.settle_in();
    let mut told = Acknowledged {
        tokens: Vec::new(),
        sums: String::new(),
    };
    let mut cuts = Vec::new();
    let mut reply = |scene: &mut Scene, change: &str| {
        let posted = scene.post(&format!("{change}; {SUMS}"));
        told.sums = scene.reply(&posted);
        told.tokens.push(posted.token);
        told.clone()
    };
    for _ in 0..8 {
        reply(&mut scene, "echo $T >> log; echo $T > f-$T");
    }
    let changes = [
        "echo $T >> log; echo $T > f-$T",
        "mkdir many; for i in $(seq 500); do echo $i $T > many/$i; done",
        "head -c 3000000 /dev/urandom > big",
        "rm f-token-3-; mv many lots; echo $T >> log",
        "python3 -c 'import os; os.rename(\"lots\", \"many\")'; ln -s big link; echo $T > send || echo $T >> log",
        "echo $T >> big",
        "rm -rf many; mkdir many; echo $T > many/one",
        "echo $T >> log; truncate -s 1M holes; echo $T >> holes",
    ];
    for (place, change) in changes.iter().enumerate() {
        let told = reply(&mut scene, change);
        if place > 3 {
            // From twelve layers on a merge follows the reply; it must survive too.
            scene.until_sql("SELECT count(*) > 0 FROM merges", "1");
        }
        cuts.push((disk.cut(&format!("cut-{place}")), told));
    }
    let agent = scene.agent.clone();
    scene.end();
    disk.unmount();

    for (place, (image, told)) in cuts.iter().enumerate() {
        disk.mount(image, "c", "loop");
        let data_dir = disk.folder.path().join("c/d");
        check(&data_dir, &agent, told, &disk.path("o"), place);
        // A server goes on from the first, the middle and the last.
        if [0, 4, 7].contains(&place) {
            go_on(&data_dir, &agent, told);
        }
        disk.unmount();
    }
}

/// As an administrator would look: no server.
fn check(data_dir: &Path, agent: &str, told: &Acknowledged, at: &str, place: usize) {
    let sql = |query: &str| {
        let database = data_dir.join("mayfly.db");
        run("sqlite3", &[database.to_str().expect("UTF-8"), query])
            .trim()
            .to_owned()
    };
    assert_eq!(sql("PRAGMA integrity_check"), "ok");
    for token in &told.tokens {
        let outcome = format!(
            "SELECT m.outcome || ' ' || d.kind FROM messages m JOIN deliveries d ON d.message = m.id \
             JOIN arrivals a ON a.message = m.id WHERE a.key = '{token}'"
        );
        assert_eq!(sql(&outcome), "answered answer", "cut {place}: {token}");
    }
    for folder in ["l", "b", "blobs", "init"] {
        let folder = data_dir.join(folder);
        let empty = run(
            "find",
            &[
                folder.to_str().expect("UTF-8"),
                "-type",
                "f",
                "-size",
                "0",
                "-path",
                "*/l/*",
            ],
        );
        assert_eq!(empty, "", "cut {place}: files without content");
    }
    let worker = fs::read_to_string(data_dir.join("worker")).expect("the worker's id");
    assert_eq!(worker.len(), 36, "cut {place}: {worker:?}");
    let chain = format!(
        "WITH RECURSIVE chain (parent, layer, merged, depth) AS (
           SELECT s.parent, s.layer, m.layer, 0 FROM agents a JOIN snapshots s ON s.id = a.head
             LEFT JOIN merges m ON m.snapshot = s.id WHERE a.id = '{agent}'
           UNION ALL SELECT s.parent, s.layer, m.layer, c.depth + 1 FROM chain c
             JOIN snapshots s ON s.id = c.parent LEFT JOIN merges m ON m.snapshot = s.id
             WHERE c.merged IS NULL
         ) SELECT coalesce(merged, layer) FROM chain
           WHERE merged IS NOT NULL OR layer IS NOT NULL ORDER BY depth"
    );
    let layers = sql(&chain);
    let base = sql(&format!("SELECT base FROM agents WHERE id = '{agent}'"));
    let mut lowers: Vec<String> = layers
        .lines()
        .map(|layer| format!("l/{layer}/work"))
        .collect();
    for lower in &lowers {
        assert!(
            data_dir.join(lower).is_dir(),
            "cut {place}: {lower} is not there"
        );
    }
    lowers.push(format!("b/{base}/work"));
    let paths: Vec<String> = lowers
        .iter()
        .map(|lower| data_dir.join(lower).display().to_string())
        .collect();
    fs::create_dir_all(at).expect("a mount point");
    let options = format!("ro,lowerdir={}", paths.join(":"));
    run("mount", &["-t", "overlay", "overlay", "-o", &options, at]);
    let script = format!("cd {at} && {SUMS}");
    let sums = run("sh", &["-c", &script]);
    run("umount", &[at]);
    assert_eq!(sums.trim(), told.sums, "cut {place}: the head's files");
}

/// A server on the copy: the file is read through a tick, and nothing is left.
fn go_on(data_dir: &Path, agent: &str, told: &Acknowledged) {
    let server = Server::new(env!("CARGO_BIN_EXE_mayfly-under-test")).at(data_dir);
    assert!(server.mayfly(&["adopt"]).status.success());
    let mut scene = Scene::on(server);
    scene.agent = agent.to_owned();
    scene.posted = 1000;
    scene.server.start();
    let posted = scene.post(&format!("{SUMS} # after the cut: {}", told.tokens.len()));
    assert_eq!(scene.reply(&posted), told.sums);
    scene.end();
}
