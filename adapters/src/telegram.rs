//! Telegram.

pub mod parse;
