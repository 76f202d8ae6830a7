//! The binary `mayfly`.

use std::process::ExitCode;

fn main() -> ExitCode {
    rustls::crypto::ring::default_provider()
        .install_default()
        .expect("nothing was installed before the first line");
    mayfly::run().into()
}
