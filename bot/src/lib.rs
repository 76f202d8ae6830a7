pub mod config;
pub mod data_dir;
