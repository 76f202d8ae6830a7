//! What is written to standard error beside answers.

use std::{
    io::{self, IsTerminal, Write, stderr},
    sync::Arc,
};

use mayfly_adapters::http::redact::redact;

use tracing_subscriber::{EnvFilter, fmt};

use crate::config::{Loaded, LogFormat};

/// The service's own log, as configured.
pub(crate) fn of_service(loaded: &Loaded) {
    let section = &loaded.config.log;
    let log = fmt()
        .with_env_filter(EnvFilter::new(&section.level))
        .with_writer(Clean::over(loaded.config.secrets()))
        .with_ansi(stderr().is_terminal() && !loaded.no_color);
    match section.format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
}

/// Standard error without secrets: the configured ones, and whatever has a token's form.
struct Clean {
    secrets: Arc<Vec<String>>,
}

impl Clean {
    fn over(secrets: Vec<String>) -> impl Fn() -> Clean {
        let secrets = Arc::new(secrets);
        move || Clean {
            secrets: secrets.clone(),
        }
    }
}

impl Write for Clean {
    /// One event comes as one text.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let known: Vec<&str> = self.secrets.iter().map(String::as_str).collect();
        stderr().write_all(redact(&text, &known).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        stderr().flush()
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
