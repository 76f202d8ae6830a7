//! placeholder
pub mod outcome;
