//! The fuzzers' targets in the normal run: their seeds, what fuzzers found, and some seconds of mutants of both.
//! `tests/fuzz/run` looks for longer, guided by coverage. Needs root.

#[path = "../fuzz/src/archives.rs"]
mod archives;
#[path = "../fuzz/src/frames.rs"]
mod frames;
#[path = "../fuzz/src/layouts.rs"]
mod layouts;
#[path = "fuzz/mutants.rs"]
mod mutants;
#[path = "../fuzz/src/targets.rs"]
mod targets;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    time::{Duration, Instant},
};

use mayfly_tests::full;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

/// Per target; `MAYFLY_TESTS_FULL=1` takes the other.
const SECONDS: [u64; 2] = [8, 120];
/// What a target may need beside its inputs, whatever they say of themselves.
const MOST_MEMORY: u64 = 256 << 20;

fn run(name: &str) {
    let target = targets::ALL.iter().find(|target| target.name == name);
    let target = target.expect("a target");
    let mut known = (target.seeds)();
    let found = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/found")
        .join(name);
    if let Ok(found) = std::fs::read_dir(found) {
        let paths = found.map(|item| item.expect("a name").path());
        known.extend(paths.map(|path| std::fs::read(path).expect("readable")));
    }
    let before = peak();
    let taken: Vec<bool> = known
        .iter()
        .map(|input| judge(target, input, "as it is"))
        .collect();
    assert!(taken[0], "{name}: its first seed is refused");
    let until = Instant::now() + Duration::from_secs(SECONDS[usize::from(full())]);
    let mut random = StdRng::seed_from_u64(rand::random());
    let (mut runs, mut taken) = (0, 0);
    while Instant::now() < until {
        let seed: u64 = random.random();
        let mut of_this = StdRng::seed_from_u64(seed);
        let mut input = known.choose(&mut of_this).expect("seeds").clone();
        for _ in 0..of_this.random_range(1..=4) {
            let other = known.choose(&mut of_this).expect("seeds");
            mutants::mutate(&mut of_this, &mut input, other);
        }
        taken += u32::from(judge(target, &input, &format!("seed {seed}")));
        runs += 1;
    }
    let grown = peak().saturating_sub(before);
    assert!(grown < MOST_MEMORY, "{name}: {grown} bytes more");
    assert!(runs > 0, "{name}: its inputs take too long");
    println!("{name}: {runs} mutants, {taken} of them taken, {grown} bytes more at most");
}

/// On a broken promise the input is kept, to be looked at and to become one of those found.
fn judge(target: &targets::Target, input: &[u8], which: &str) -> bool {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).unwrap_or_else(|_| {
        let path = std::env::temp_dir().join(format!("mayfly-fuzz-{}", target.name));
        std::fs::write(&path, input).expect("written");
        panic!(
            "{}, {which}: the input is kept as {}",
            target.name,
            path.display()
        );
    })
}

/// The most memory this process ever had.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.expect("a number") << 10
}

#[test]
fn layers() {
    run("layers");
}

#[test]
fn documents() {
    run("documents");
}

#[test]
fn uploads() {
    run("upload");
}

#[test]
fn records() {
    run("records");
}

#[test]
fn frames_of_init() {
    run("frames");
}

#[test]
fn conversations_with_init() {
    run("conversation");
}
