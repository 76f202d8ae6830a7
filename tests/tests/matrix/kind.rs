//! What is shared, by how many, and where sandboxes run.

use std::fmt;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// SQLite and the queue in the process.
    Own,
    /// PostgreSQL, Redis and an S3 server.
    Shared { workers: usize },
    /// Real sandboxes on an engine that can be hit too: of one worker with files of its own, or of several that
    /// share.
    Engine { workers: usize },
}

impl Kind {
    pub(crate) fn workers(self) -> usize {
        match self {
            Kind::Own => 1,
            Kind::Shared { workers } | Kind::Engine { workers } => workers,
        }
    }

    pub(crate) fn real(self) -> bool {
        matches!(self, Kind::Engine { .. })
    }

    pub(crate) fn shares(self) -> bool {
        matches!(self, Kind::Shared { .. }) || self.workers() > 1
    }

    /// Seconds that some programs last: a real sandbox goes on while its worker is stopped, and such a one does until
    /// its init ends it.
    pub(crate) fn lasting(self) -> &'static str {
        match self.real() && self.shares() {
            true => "20",
            false => "0.05",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stores = match self.shares() {
            true => "PostgreSQL, Redis, S3",
            false => "SQLite",
        };
        let workers = match self.workers() {
            1 => "1 worker".to_owned(),
            many => format!("{many} workers"),
        };
        let engine = if self.real() { ", Docker" } else { "" };
        f.pad(&format!("{stores}, {workers}{engine}"))
    }
}
