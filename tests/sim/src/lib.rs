//! A simulation of many processes on one queue, by its real code: so far the queue.

mod chance;
pub mod shared;

pub use chance::Chance;
