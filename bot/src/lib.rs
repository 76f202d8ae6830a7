#![doc = include_str!("../README.md")]

mod chats;
mod cli;
pub mod client;
mod commands;
pub mod config;
pub mod data_dir;
mod door;
pub mod exit;
mod heap;
mod hooks;
pub mod http;
mod log;
mod page;
mod render;
mod screen;
pub mod wire;

pub use cli::run;
