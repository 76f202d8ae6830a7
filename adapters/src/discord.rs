//! Discord.

pub mod parse;
