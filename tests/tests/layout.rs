//! Who may depend on whom, where SQL may stand, and that every package opens with its README.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use mayfly_tests::engine::run;
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests lies in the workspace")
        .to_owned()
}

#[test]
fn packages_depend_only_as_designed() {
    let manifest = root().join("Cargo.toml");
    let manifest = manifest.to_str().expect("UTF-8");
    let metadata = [
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--manifest-path",
        manifest,
    ];
    let metadata: Value = serde_json::from_str(&run(env!("CARGO"), &metadata)).expect("JSON");
    let ours = |name: &str| name.starts_with("mayfly");
    let mut found = BTreeMap::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name").to_owned();
        let on: BTreeSet<String> = package["dependencies"]
            .as_array()
            .expect("dependencies")
            .iter()
            .filter_map(|dependency| dependency["name"].as_str())
            .filter(|name| ours(name))
            .map(str::to_owned)
            .collect();
        found.insert(name, on);
    }
    let set = |names: &[&str]| {
        names
            .iter()
            .map(|name| name.to_string())
            .collect::<BTreeSet<_>>()
    };
    let designed = BTreeMap::from([
        (
            "mayfly".to_owned(),
            set(&["mayfly-adapters", "mayfly-domain", "mayfly-orchestrator"]),
        ),
        ("mayfly-adapters".to_owned(), set(&["mayfly-domain"])),
        ("mayfly-domain".to_owned(), set(&[])),
        ("mayfly-init".to_owned(), set(&[])),
        (
            "mayfly-orchestrator".to_owned(),
            set(&["mayfly-domain", "mayfly-init"]),
        ),
    ]);
    for tests in ["mayfly-tests", "mayfly-sim"] {
        found.remove(tests).expect("tests may depend on everything");
    }
    assert_eq!(found, designed);
}

#[test]
fn sql_stands_only_in_db() {
    let source = root().join("orchestrator/src");
    let mut strays = Vec::new();
    for file in rust_files(&source) {
        let text = std::fs::read_to_string(&file).expect("readable");
        let inside = file.starts_with(source.join("db")) || file == source.join("db.rs");
        if text.contains("sqlx") && !inside {
            strays.push(file);
        }
    }
    assert_eq!(strays, Vec::<PathBuf>::new());
}

/// Who may ask a host's own clock: itself, who compares it with the shared one, times of files on this host, and what
/// only tells a person when something was.
const HOSTS_TIME: [&str; 6] = [
    "clock.rs",
    "shared_clock.rs",
    "trash.rs",
    "blobs.rs",
    "transcript.rs",
    "take.rs",
];

/// Hosts' clocks differ by days: what stands in a row is by the one that all share.
#[test]
fn rows_have_the_time_of_the_database() {
    let strays: Vec<PathBuf> = rust_files(&root().join("orchestrator/src"))
        .into_iter()
        .filter(|file| !HOSTS_TIME.iter().any(|name| file.ends_with(name)))
        .filter(|file| {
            let text = std::fs::read_to_string(file).expect("readable");
            text.contains("unix_ms()") || text.contains("clock::unix_ms")
        })
        .collect();
    assert_eq!(strays, Vec::<PathBuf>::new());
}

#[test]
fn no_module_file_is_called_mod() {
    let strays: Vec<PathBuf> = ["bot", "orchestrator", "adapters", "tests"]
        .iter()
        .flat_map(|package| rust_files(&root().join(package)))
        .filter(|file| file.ends_with("mod.rs"))
        .collect();
    assert_eq!(strays, Vec::<PathBuf>::new());
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("readable").flatten() {
            let path = entry.path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}
