//! placeholder
pub mod profile;
pub mod transcript;
