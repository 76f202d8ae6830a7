//! libFuzzer's program for all targets: `--target=NAME` says which; with `--seeds=DIR` it writes the target's
//! seeds there and ends.
#![no_main]

use std::{path::Path, sync::OnceLock};

use libfuzzer_sys::fuzz_target;

mod archives;
mod frames;
mod layouts;
mod targets;

static CHOSEN: OnceLock<targets::Target> = OnceLock::new();

fn argument(name: &str) -> Option<String> {
    std::env::args().find_map(|argument| Some(argument.strip_prefix(name)?.to_owned()))
}

fn choose() {
    let name = argument("--target=").expect("--target=NAME");
    let known = targets::ALL.iter().find(|target| target.name == name);
    let target = *known.unwrap_or_else(|| panic!("no target is called {name}"));
    if let Some(folder) = argument("--seeds=") {
        for (at, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(Path::new(&folder).join(format!("seed-{at}")), seed).expect("written");
        }
        std::process::exit(0);
    }
    assert!(CHOSEN.set(target).is_ok());
}

fuzz_target!(
    init: choose(),
    |bytes: &[u8]| drop((CHOSEN.get().expect("chosen").run)(bytes))
);
