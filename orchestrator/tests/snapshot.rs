//! The snapshot store on real overlay mounts. Needs root and a disk that can hold an upper folder.

#[allow(dead_code)]
#[path = "oci/archive.rs"]
mod archive;
#[path = "snapshot/chained.rs"]
mod chained;
#[path = "snapshot/deep.rs"]
mod deep;
#[path = "snapshot/diff.rs"]
mod diff;
#[path = "snapshot/exclude.rs"]
mod exclude;
#[path = "snapshot/files.rs"]
mod files;
#[path = "snapshot/histories.rs"]
mod histories;
#[path = "snapshot/merge.rs"]
mod merge;
#[path = "snapshot/odd.rs"]
mod odd;
#[path = "snapshot/picture.rs"]
mod picture;
#[path = "snapshot/steps.rs"]
mod steps;
#[path = "snapshot/store.rs"]
mod store;
#[path = "snapshot/world.rs"]
mod world;
