//! The way of a message, top to bottom.
pub mod clock;
pub mod sandbox;
pub mod snapshot;
pub mod supervise;
