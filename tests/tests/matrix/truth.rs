//! The database, asked past everything that happens to the processes.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use mayfly_tests::{engine, postgres};

/// A database that crashed answers after this time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Clone)]
pub(crate) enum Truth {
    File(PathBuf),
    Server(String),
}

impl Truth {
    /// Columns by `|`, rows by lines.
    pub(crate) fn ask(&self, query: &str) -> String {
        match self {
            Truth::File(path) => engine::sql(Path::new(path), query),
            Truth::Server(url) => until(PATIENCE, || postgres::asked(url, query)),
        }
    }

    pub(crate) fn count(&self, query: &str) -> usize {
        self.ask(query).parse().expect("a number")
    }

    pub(crate) fn settled(&self) -> usize {
        self.count("SELECT count(*) FROM messages WHERE outcome IS NOT NULL")
    }

    pub(crate) fn until_settled(&self, wanted: usize, patience: Duration) {
        until(patience, || match self.settled() {
            settled if settled < wanted => Err(format!("{settled} of {wanted} are settled")),
            _ => Ok(()),
        });
    }

    /// No message that a blow has interrupted waits any more: after three times it would be parked.
    pub(crate) fn until_none_is_struck(&self, patience: Duration) {
        let query = "SELECT count(*) FROM messages WHERE outcome IS NULL AND attempts > 0";
        until(patience, || match self.count(query) {
            0 => Ok(()),
            struck => Err(format!("{struck} wait for another try")),
        });
    }
}

/// Looks again until it has what it wants; else fails with what it found last.
pub(crate) fn until<T>(patience: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        match look() {
            Ok(found) => return found,
            Err(found) => assert!(Instant::now() < deadline, "{found}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
