#![doc = include_str!("../README.md")]

mod local;

pub use local::Local;
