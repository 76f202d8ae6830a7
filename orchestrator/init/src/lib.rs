//! PID 1 of every sandbox, and the wire contract with it.
pub mod arguments;
pub mod protocol;
