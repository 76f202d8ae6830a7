//! The program as shipped, but `MAYFLY_FAULT=point[:n]` kills it at a named point.

use std::process::ExitCode;

#[allow(clippy::disallowed_methods)]
fn main() -> ExitCode {
    rustls::crypto::ring::default_provider()
        .install_default()
        .expect("nothing was installed before the first line");
    if let Ok(spec) = std::env::var("MAYFLY_FAULT") {
        mayfly_orchestrator::faults::arm(&spec);
    }
    mayfly::run().into()
}
