//! PID 1 of every sandbox: what a worker has to know of it.
pub mod arguments;
pub mod exit;
pub mod protocol;
