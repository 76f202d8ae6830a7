#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod local;
pub mod text;

pub use local::Local;
