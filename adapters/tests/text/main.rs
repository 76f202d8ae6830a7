//! What people see of a reply on each platform.

mod contract;
mod field;
mod parts;
mod properties;
mod read;
