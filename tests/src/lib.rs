#![doc = include_str!("../README.md")]

pub mod bench;
pub mod browser;
pub mod chat;
pub mod client;
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
pub mod postgres;
pub mod redis_server;
pub mod s3_server;
pub mod schemas;
pub mod second_engine;
pub mod server;
pub mod traffic;
pub mod world;

/// Whether the long versions are wanted: `tests/run --full` sets `MAYFLY_TESTS_FULL=1`.
#[allow(clippy::disallowed_methods)]
pub fn full() -> bool {
    std::env::var("MAYFLY_TESTS_FULL").is_ok_and(|full| full == "1")
}
