//! The way of a message, top to bottom.
pub mod agent;
pub mod clock;
pub mod command;
pub mod sandbox;
pub mod snapshot;
pub mod supervise;
pub mod tick;
pub mod view;
