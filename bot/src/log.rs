//! What is written to standard error beside answers.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::{EnvFilter, fmt};

use crate::config::{Loaded, LogFormat};

/// The service's own log, as configured.
pub(crate) fn of_service(loaded: &Loaded) {
    let section = &loaded.config.log;
    let log = fmt()
        .with_env_filter(EnvFilter::new(&section.level))
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal() && !loaded.no_color);
    match section.format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
}

/// A command's: what a person should know, without time and place. What a service that it is for a
/// moment notes on its way is for a server's log.
pub(crate) fn of_command() {
    let log = fmt()
        .with_env_filter(EnvFilter::new("warn,mayfly_orchestrator=error"))
        .with_writer(stderr);
    log.without_time()
        .with_target(false)
        .with_ansi(false)
        .init();
}
