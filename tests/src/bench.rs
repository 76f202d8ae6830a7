//! What benches share: the form of their figures and the pieces that measure.
//!
//! To add a bench: a file below `bench/` that fills a [`figure::Report`], and a verb in
//! `bin/mayfly-bench.rs`.

pub mod accept;
pub mod adapter;
pub mod bare;
pub mod chain;
pub mod cpu;
pub mod figure;
pub mod flat;
pub mod idle;
pub mod load;
pub mod memory;
pub mod neighbour;
pub mod others;
pub mod points;
pub mod queue;
pub mod snapshot;
pub mod tick;
pub mod trees;
