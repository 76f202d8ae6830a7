#![doc = include_str!("../README.md")]

pub mod engine;
pub mod server;
pub mod world;
