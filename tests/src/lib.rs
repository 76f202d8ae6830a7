//! Worlds to test in, fakes, and what benches share.

pub mod engine;
pub mod server;
pub mod world;
