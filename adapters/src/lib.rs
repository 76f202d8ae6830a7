#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

pub mod check;
pub mod clock;
pub mod discord;
pub mod hook;
pub mod http;
mod json;
pub mod names;
pub mod secret;
pub mod signature;
pub mod slack;
pub mod telegram;
pub mod text;
