//! A layer's tar stream of arbitrary bytes: never a panic, never a file outside. Needs root.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mayfly_orchestrator::snapshot::{
    Slot,
    oci::{Budget, unpack_into},
};

fuzz_target!(|stream: &[u8]| {
    let cage = tempfile::tempdir().unwrap();
    let inside = cage.path().join("in");
    std::fs::create_dir(&inside).unwrap();
    let mut budget = Budget::new(1 << 20, 256, &|_| true);
    let _ = unpack_into(stream, &inside, &Slot::defaults(), &mut budget);
    assert_eq!(std::fs::read_dir(cage.path()).unwrap().count(), 1);
});
