//! What a program on somebody else's client says: one JSON document a line.

use std::{
    io::{BufRead as _, BufReader, Read},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use serde_json::Value;

/// All that was said so far; lines that are no JSON are left out.
#[derive(Debug, Clone)]
pub struct Sayings(Arc<Mutex<Vec<Value>>>);

impl Sayings {
    /// Listens until the program closes its output.
    pub fn of(output: impl Read + Send + 'static) -> Sayings {
        let sayings = Sayings(Arc::default());
        let kept = sayings.clone();
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            for said in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                kept.lock().push(said);
            }
        });
        sayings
    }

    /// In their order.
    pub fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
