//! What people see of a reply on each platform.

mod contract;
mod field;
mod found;
mod parts;
mod properties;
mod read;
