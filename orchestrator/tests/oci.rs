//! The portable form on real overlay mounts, against hostile archives, and read by the
//! distribution's tools. Needs root.

#[path = "oci/archive.rs"]
mod archive;
#[path = "oci/bounds.rs"]
mod bounds;
#[path = "oci/hostile.rs"]
mod hostile;
#[path = "oci/parcel.rs"]
mod parcel;
#[path = "snapshot/picture.rs"]
mod picture;
#[path = "oci/random.rs"]
mod random;
#[path = "oci/round_trip.rs"]
mod round_trip;
#[path = "snapshot/steps.rs"]
mod steps;
#[path = "oci/tools.rs"]
mod tools;
#[allow(dead_code)]
#[path = "snapshot/world.rs"]
mod world;
