//! What states cost: revive and seal by size of the state and number of files, a merge, a diff, an
//! export and an import, next to what the engine, tar with zstd, and restic take for the same tree.
//!
//! All of it in one process and in turns, so that a slower minute of the machine falls on all alike.
//! Nobody pays for another's unwritten files: each begins after a sync, but for a seal and a commit,
//! whose own files are what is unwritten.

use std::{path::PathBuf, time::Duration};

use mayfly_domain::{AgentId, Limits, MessageOutcome};
use mayfly_orchestrator::{
    agent::profile::{Profile, SHELL},
    command::portable::{ExportAs, ExportTo, ImportFrom},
    retention::RetentionOverride,
    snapshot::{DiffWanted, oci::Compress},
};

use super::{
    chain::Chain,
    cpu::Cpu,
    figure::{Laps, Report},
    others::{Others, Took, remove, settle},
    points::{self, Course},
    trees::Tree,
};
use crate::{
    engine,
    world::{Setup, World},
};

/// The largest state against the smallest.
const BY_SIZE: f64 = 1.10;
/// A seal against `docker commit` of the same files.
const OVER_COMMIT: f64 = 0.2;
/// An export against `tar | zstd -1`.
const OVER_TAR: f64 = 1.0;
/// Ticks on each state per round: their spread is larger than what they are held to.
const TICKS: usize = 4;
/// How long the making of a state may take.
const PATIENCE: Duration = Duration::from_secs(1200);

const MIB: u64 = 1 << 20;
const SMALL: &str = "1 MB";
/// States that differ in their size, and one in its number of files.
const STATES: [Tree; 5] = [
    tree(SMALL, 100, MIB),
    tree("100 MB", 100, 100 * MIB),
    tree("1 GB", 100, 1024 * MIB),
    tree(MANY, 10_000, 64 * MIB),
    // With --full only.
    tree("10 GB", 100, 10240 * MIB),
];
const MANY: &str = "10,000 files of 64 MiB";
/// What is made, sealed, carried out and in.
const TREES: [Tree; 3] = [
    tree(MANY, 10_000, 64 * MIB),
    tree("100 files of 64 MiB", 100, 64 * MIB),
    tree("100 files of 1 GiB", 100, 1024 * MIB),
];
const SEAL: [(&str, &str, &str); 4] = [
    ("measured", "report.removed", "seal.measured"),
    ("made fit", "seal.measured", "seal.fixed"),
    ("on the disk", "seal.fixed", "seal.synced"),
    ("in place", "seal.synced", "report.sealed"),
];

const fn tree(name: &'static str, files: u64, bytes: u64) -> Tree {
    Tree { name, files, bytes }
}

/// Measures all of it and cleans up.
pub async fn run(rounds: u32, full: bool) -> Report {
    points::watch();
    let limits = Limits {
        wall_clock_s: PATIENCE.as_secs(),
        state_mib: 16 << 10,
        file_mib: 16 << 10,
        ..Limits::default()
    };
    // Each round goes back to a state before a whole tree.
    let retention = RetentionOverride {
        keep_mib: Some(0),
        ..RetentionOverride::default()
    };
    let shell = Profile {
        limits,
        retention,
        ..Profile::default()
    };
    let setup = Setup {
        profiles: vec![(SHELL.to_owned(), shell)],
        ..Setup::default()
    };
    let states = if full { &STATES[..] } else { &STATES[..4] };
    let mut bench = Bench::prepare(World::docker_with(setup).await, states).await;
    let mut laps = Laps::default();
    bench.round(&mut Laps::default(), 0).await;
    for round in 1..=rounds as usize {
        bench.round(&mut laps, round).await;
        say(&format!("round {round} of {rounds}"));
    }
    bench.end().await;
    report(&laps, states)
}

fn say(what: &str) {
    eprintln!("bench: {what}");
}

struct Bench {
    world: World,
    others: Others,
    states: Vec<State>,
    trees: Vec<(Tree, AgentId)>,
    chains: Vec<(Tree, Chain)>,
}

/// An agent whose head has a tree.
struct State {
    tree: Tree,
    agent: AgentId,
    /// What the others have of it, but for the largest one.
    copy: Option<PathBuf>,
}

impl Bench {
    async fn prepare(world: World, states: &[Tree]) -> Bench {
        let parent = world.data_dir().parent().expect("it is in a folder");
        let others = Others::new(parent, &world.prefix());
        let chains = TREES.map(|tree| (tree, Chain::new(parent, &tree)));
        let mut bench = Bench {
            world,
            others,
            states: Vec::new(),
            trees: Vec::new(),
            chains: chains.into(),
        };
        for tree in states {
            let agent = bench.world.shell().await;
            bench.make(agent, tree).await;
            let copy = (tree.bytes <= 1024 * MIB).then(|| bench.copy(agent, tree));
            bench.states.push(State {
                tree: *tree,
                agent,
                copy,
            });
            say(&format!("a state of {} is there", tree.name));
        }
        for tree in TREES {
            let agent = bench.world.shell().await;
            bench.world.reply(agent, "echo 0 > note").await;
            bench.trees.push((tree, agent));
        }
        bench
    }

    /// Gives an agent a tree; answers the course of that tick.
    async fn make(&self, agent: AgentId, tree: &Tree) -> Course {
        let made = async {
            let posted = self.world.post(agent, &tree.script()).await;
            let told = self.world.commands().wait(posted.id, PATIENCE).await;
            let told = told.expect("it exists");
            let said = told.reply.as_ref().map(|reply| reply.text.as_str());
            assert_eq!(said, Some("made"), "{}: {told:?}", tree.name);
        };
        Course::of(made).await.1
    }

    /// The state for the others: a folder, an image and a repository.
    fn copy(&self, agent: AgentId, tree: &Tree) -> PathBuf {
        let copy = self.others.path(&slug(tree));
        let (from, to) = (self.layer(agent), copy.display().to_string());
        engine::run("cp", &["-a", &from.display().to_string(), &to]);
        let name = slug(tree);
        self.others.filled(&name, &copy);
        self.others.commit(&name);
        self.others.restic_init(&format!("restic-{name}"));
        self.others.restic_backup(&format!("restic-{name}"), &copy);
        copy
    }

    /// The folder of the newest layer's `/work`: as the tick left it, a tree like any other.
    fn layer(&self, agent: AgentId) -> PathBuf {
        let layer = self.world.sql(&format!(
            "SELECT s.layer FROM snapshots s JOIN agents a ON a.head = s.id WHERE a.id = '{agent}'"
        ));
        assert!(!layer.is_empty(), "a layer was sealed");
        self.world.data_dir().join("l").join(layer).join("work")
    }

    /// One measurement of everything, each round in another order.
    async fn round(&mut self, laps: &mut Laps, round: usize) {
        for turn in 0..self.states.len() * TICKS {
            let which = (turn + round) % self.states.len();
            self.change(&self.states[which], laps).await;
        }
        for turn in 0..self.states.len() {
            let state = &self.states[(turn + round) % self.states.len()];
            if let Some(copy) = &state.copy {
                self.change_elsewhere(&state.tree, copy, laps);
            }
        }
        for turn in 0..self.trees.len() {
            let (tree, agent) = &self.trees[(turn + round) % self.trees.len()];
            self.whole(*agent, tree, laps, round).await;
        }
        for turn in 0..self.chains.len() {
            let (tree, chain) = &self.chains[(turn + round) % self.chains.len()];
            laps.add(&format!("merge of 12 layers, {}", tree.name), chain.merge());
        }
    }

    /// A tick that changes one small file, taken back so that the next one finds the same state.
    async fn change(&self, state: &State, laps: &mut Laps) {
        settle(self.world.data_dir());
        let (told, course) =
            Course::of(self.world.say(state.agent, "date +%N > note; echo noted")).await;
        assert_eq!(told.outcome, Some(MessageOutcome::Answered), "{told:?}");
        for (what, from, to) in [
            ("revive", "spawn.claimed", "spawn.ready"),
            ("seal", "report.removed", "report.sealed"),
        ] {
            let took = course.between(from, to).expect("both were passed");
            laps.add(&format!("{what}, {}", state.tree.name), took);
        }
        let back = self.world.commands().rollback(state.agent, None).await;
        back.unwrap_or_else(|error| panic!("no way back: {error}"));
    }

    /// The same change by the others.
    fn change_elsewhere(&self, tree: &Tree, copy: &std::path::Path, laps: &mut Laps) {
        let (image, name) = (slug(tree), format!("{}-one", slug(tree)));
        self.others.changed(&name, &image);
        let commit = self.others.commit(&name);
        laps.add(
            &format!("docker commit of one file, {}", tree.name),
            commit.plain,
        );
        self.others.forget(&name);
        #[allow(clippy::disallowed_methods)]
        let now = format!("{:?}", std::time::SystemTime::now());
        std::fs::write(copy.join("note"), now).expect("the copy is ours");
        let took = self.others.restic_backup(&format!("restic-{image}"), copy);
        laps.add(&format!("restic backup of one file, {}", tree.name), took);
    }

    /// A whole tree is made, sealed, taken out and in.
    async fn whole(&self, agent: AgentId, tree: &Tree, laps: &mut Laps, round: usize) {
        let tree_dir = match round % 2 {
            0 => {
                self.seal(agent, tree, laps).await;
                let dir = self.layer(agent);
                self.commit(tree, &dir, laps);
                dir
            }
            // The engine's turn first, with the tree of the round before.
            _ => {
                let before = self.others.path(&format!("tree-{}", slug(tree)));
                self.commit(tree, &before, laps);
                self.seal(agent, tree, laps).await;
                self.layer(agent)
            }
        };
        let kept = self.others.path(&format!("tree-{}", slug(tree)));
        remove(&kept);
        let (from, to) = (tree_dir.display().to_string(), kept.display().to_string());
        engine::run("cp", &["-a", &from, &to]);
        if round.is_multiple_of(2) {
            self.carry(agent, tree, laps).await;
            self.tar(tree, &tree_dir, laps);
        } else {
            self.tar(tree, &tree_dir, laps);
            self.carry(agent, tree, laps).await;
        }
        self.restic(tree, &tree_dir, laps);
        self.diff(agent, tree, laps).await;
        let ticks = self.world.commands().ticks(agent).await;
        let first = ticks.expect("it has ticks").first().map(|tick| tick.id);
        let back = self.world.commands().rollback(agent, first).await;
        back.unwrap_or_else(|error| panic!("no way back: {error}"));
    }

    async fn seal(&self, agent: AgentId, tree: &Tree, laps: &mut Laps) {
        settle(self.world.data_dir());
        let course = self.make(agent, tree).await;
        let whole = ("", "report.removed", "report.sealed");
        for (step, from, to) in [whole].into_iter().chain(SEAL) {
            let took = course.between(from, to).expect("both were passed");
            laps.add(&seal_of(tree, step), took);
        }
    }

    fn commit(&self, tree: &Tree, dir: &std::path::Path, laps: &mut Laps) {
        let name = format!("{}-whole", slug(tree));
        settle(dir);
        self.others.filled(&name, dir);
        took(laps, "docker commit", tree, self.others.commit(&name));
        took(laps, "docker save", tree, self.others.save(&name));
        took(laps, "docker load", tree, self.others.load(&name));
        self.others.forget(&name);
    }

    /// Out into a file, and in again as another agent.
    async fn carry(&self, agent: AgentId, tree: &Tree, laps: &mut Laps) {
        let commands = self.world.commands();
        for compress in [Compress::Zstd, Compress::Gzip] {
            let file = self.others.path("agent.tar");
            settle(self.world.data_dir());
            let how = ExportAs {
                compress,
                ..ExportAs::default()
            };
            let (cpu, to) = (Cpu::own(), ExportTo::File(file.clone()));
            let (written, course) = Course::of(async {
                commands
                    .prepare_export(agent, None, how)
                    .await?
                    .write(to)
                    .await
            })
            .await;
            let cpu = Cpu::own().since(cpu);
            written.unwrap_or_else(|error| panic!("no export: {error}"));
            let with = if compress == Compress::Zstd {
                "zstd"
            } else {
                "gzip"
            };
            laps.add(
                &format!("export with {with}, {}", tree.name),
                course.total(),
            );
            laps.add(&format!("export with {with}, CPU, {}", tree.name), cpu);
            if compress == Compress::Zstd {
                settle(self.world.data_dir());
                let from = ImportFrom::Path(file.clone());
                let (imported, course) = Course::of(commands.import(from)).await;
                let imported = imported.unwrap_or_else(|error| panic!("no import: {error}"));
                laps.add(&format!("import, {}", tree.name), course.total());
                let removed = commands.remove_agent(imported.agent.id, false).await;
                removed.unwrap_or_else(|error| panic!("it stays: {error}"));
                self.world.gc().await;
            }
            std::fs::remove_file(&file).expect("it was written");
        }
    }

    fn tar(&self, tree: &Tree, dir: &std::path::Path, laps: &mut Laps) {
        let cpu = Cpu::of_children();
        took(laps, "tar | zstd -1", tree, self.others.tar(dir));
        let cpu = Cpu::of_children().since(cpu);
        laps.add(&format!("tar | zstd -1, CPU, {}", tree.name), cpu);
        took(laps, "zstd -d | tar -x", tree, self.others.untar());
    }

    fn restic(&self, tree: &Tree, dir: &std::path::Path, laps: &mut Laps) {
        self.others.restic_init("restic-whole");
        let backup = self.others.restic_backup("restic-whole", dir);
        laps.add(&format!("restic backup, {}", tree.name), backup);
        let restore = self.others.restic_restore("restic-whole");
        took(laps, "restic restore", tree, restore);
    }

    /// One in a hundred files is changed.
    async fn diff(&self, agent: AgentId, tree: &Tree, laps: &mut Laps) {
        let change = "for i in tree/d0/*; do echo more >> $i; done; echo changed";
        assert_eq!(self.world.reply(agent, change).await, "changed");
        let wanted = DiffWanted {
            most: 10_000,
            renames: true,
            text: true,
        };
        let diff = self.world.commands().diff(agent, None, None, wanted);
        let (diff, course) = Course::of(diff).await;
        let diff = diff.unwrap_or_else(|error| panic!("no diff: {error}"));
        let changed = tree.files.div_ceil(100) as usize;
        assert!(diff.changes.len() >= changed, "{diff:?}");
        laps.add(
            &format!("diff of 1 % changed, {}", tree.name),
            course.total(),
        );
    }

    async fn end(self) {
        let prefix = self.world.prefix();
        drop(self.others);
        self.world.end().await;
        engine::forget_images(&prefix);
    }
}

/// A name for files and images.
fn slug(tree: &Tree) -> String {
    let name = tree.name.to_lowercase();
    name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "")
}

fn seal_of(tree: &Tree, step: &str) -> String {
    let colon = if step.is_empty() { "" } else { ": " };
    format!("seal of all{colon}{step}, {}", tree.name)
}

fn took(laps: &mut Laps, what: &str, tree: &Tree, took: Took) {
    laps.add(&format!("{what}, {}", tree.name), took.plain);
    laps.add(&format!("{what}, on the disk, {}", tree.name), took.durable);
}

fn report(laps: &Laps, states: &[Tree]) -> Report {
    let mut report = Report::default();
    laps.report(&mut report);
    let by_size = states.iter().filter(|tree| tree.files == 100);
    let large = by_size.max_by_key(|tree| tree.bytes);
    let large = large.map_or(SMALL, |tree| tree.name);
    for what in ["revive", "seal"] {
        let small = format!("{what}, {SMALL}");
        for (of, goal) in [(large, Some(BY_SIZE)), (MANY, None)] {
            let name = format!("{what}, {of} / {SMALL}");
            let of = format!("{what}, {of}");
            report.ratio(&name, &of, &small, goal);
            let cause = report.overlap(&small, &of);
            report.cause(&name, cause);
        }
    }
    for tree in &TREES {
        against(&mut report, tree);
    }
    report
}

/// The ratios of one tree; a goal stands where the issue names one.
fn against(report: &mut Report, tree: &Tree) {
    let named = |what: &str| format!("{what}, {}", tree.name);
    let goal = (tree.name == MANY).then_some(OVER_COMMIT);
    let name = named("seal of all / docker commit");
    report.ratio(&name, &seal_of(tree, ""), &named("docker commit"), goal);
    let steps = SEAL.map(|(step, ..)| {
        let ms = report.get(&seal_of(tree, step)).unwrap_or_default();
        format!("{step} {ms:.0}")
    });
    report.cause(&name, format!("its steps in ms: {}", steps.join(", ")));
    let name = named("seal of all / docker commit, on the disk");
    let commit = named("docker commit, on the disk");
    report.ratio(&name, &seal_of(tree, ""), &commit, None);

    let name = named("export with zstd / tar | zstd -1");
    let tar = named("tar | zstd -1, on the disk");
    report.ratio(&name, &named("export with zstd"), &tar, Some(OVER_TAR));
    let cpu = |what: &str| report.get(&named(what)).unwrap_or_default();
    let (own, tars) = (cpu("export with zstd, CPU"), cpu("tar | zstd -1, CPU"));
    let cause = format!("it takes {own:.0} ms of CPU, tar and zstd {tars:.0}");
    report.cause(&name, cause);
    let name = named("import / zstd -d | tar -x");
    let untar = named("zstd -d | tar -x, on the disk");
    report.ratio(&name, &named("import"), &untar, None);
}
