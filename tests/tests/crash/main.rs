//! The server dies, by itself or by a signal, and is started again: each message has exactly one
//! outcome, no line is written twice or lost, nothing is left, and the head is whole.

mod attachments;
mod engine_dies;
mod forks;
mod leftovers;
mod old_data_dirs;
mod platforms;
mod points;
mod power_cut;
mod restart;
mod scene;
mod stored;
mod together;
