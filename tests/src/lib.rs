#![doc = include_str!("../README.md")]

pub mod bench;
pub mod browser;
pub mod chat;
pub mod conversation;
pub mod crowd;
pub mod cutter;
pub mod engine;
pub mod fake;
pub mod fake_discord;
pub mod fake_slack;
pub mod fake_telegram;
pub mod front;
pub mod http;
pub mod second_engine;
pub mod server;
pub mod world;
