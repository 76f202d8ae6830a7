//! The real binary as PID 1 of real namespaces, with the capabilities a sandbox gives it.
mod boundary;
mod endings;
mod files;
mod forward;
mod harness;
mod programs;
