//! Named points at which a test may kill the process or lose an answer, and whose passing a bench
//! may watch. Without the feature `faults`, which no release has, they compile to nothing.

use std::io;

#[cfg(feature = "faults")]
mod armed {
    use std::sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    };

    static ARMED: OnceLock<(String, AtomicU32)> = OnceLock::new();
    static WATCHER: OnceLock<fn(&'static str)> = OnceLock::new();

    /// Arms one point: `name` for its first passing, `name:n` for its n-th.
    pub fn arm(spec: &str) {
        let (name, nth) = spec.split_once(':').unwrap_or((spec, "1"));
        let nth = nth.parse().unwrap_or(1);
        let _ = ARMED.set((name.to_owned(), AtomicU32::new(nth)));
    }

    /// Every point tells this function that it is passed.
    pub fn watch(watcher: fn(&'static str)) {
        let _ = WATCHER.set(watcher);
    }

    pub(super) fn passed(name: &'static str) {
        if let Some(watcher) = WATCHER.get() {
            watcher(name);
        }
    }

    pub(super) fn strikes(name: &str) -> bool {
        ARMED
            .get()
            .is_some_and(|(armed, left)| armed == name && left.fetch_sub(1, Ordering::SeqCst) == 1)
    }
}

#[cfg(feature = "faults")]
pub use armed::{arm, watch};

/// The process dies here, as by `kill -9`, if a test armed this point.
pub fn point(name: &'static str) {
    #[cfg(feature = "faults")]
    armed::passed(name);
    #[cfg(feature = "faults")]
    if armed::strikes(name) {
        let own = rustix::process::getpid();
        let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        loop {
            std::thread::park();
        }
    }
    #[cfg(not(feature = "faults"))]
    let _ = name;
}

/// The answer to the COMMIT that just succeeded is lost here, if a test armed this point.
pub fn lose_answer(name: &'static str) -> io::Result<()> {
    #[cfg(feature = "faults")]
    if armed::strikes(name) {
        let kind = io::ErrorKind::ConnectionReset;
        return Err(io::Error::new(kind, "the answer was lost"));
    }
    #[cfg(not(feature = "faults"))]
    let _ = name;
    Ok(())
}
