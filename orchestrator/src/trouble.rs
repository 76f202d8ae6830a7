//! Why messages wait: a set of causes, each raised and cleared by whoever knows it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use mayfly_domain::AgentId;

/// Who knows a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Whoever asked the engine who it is.
    Engine,
    /// The renewal of the lease.
    Database,
    /// Whoever tells the queue what waits.
    Offers,
    /// Whoever takes it from there.
    Queue,
    /// The guard of the host's disk.
    Disk,
    /// Whoever asks the layer store.
    Store,
    /// A lane whose next message cannot run: for want of its image, its profile, the engine.
    Lane(AgentId),
    /// An event of a platform that cannot be applied yet.
    Router,
    /// Another process has what this one waits for.
    Hold,
    /// The connection to a platform.
    Platform(&'static str),
}

/// See the module; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Trouble(Arc<Mutex<BTreeMap<Source, String>>>);

impl Trouble {
    /// Something is wrong, in one sentence; it replaces what the same source said before.
    pub fn raise(&self, source: Source, sentence: String) {
        let mut causes = self.causes();
        if !causes.values().any(|known| *known == sentence) {
            tracing::warn!(?source, reason = sentence, "messages wait");
        }
        causes.insert(source, sentence);
    }

    /// Something is not there yet, which is told to whoever asks and not worth a warning.
    pub fn expect(&self, source: Source, sentence: String) {
        self.causes().insert(source, sentence);
    }

    /// All is well as far as this source knows.
    pub fn clear(&self, source: Source) {
        if let Some(reason) = self.causes().remove(&source) {
            tracing::info!(?source, reason, "is over");
        }
    }

    /// What this source says.
    pub fn of(&self, source: Source) -> Option<String> {
        self.causes().get(&source).cloned()
    }

    /// Every cause once, however many lanes wait for it.
    pub fn all(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for sentence in self.causes().values() {
            if !all.contains(sentence) {
                all.push(sentence.clone());
            }
        }
        all
    }

    fn causes(&self) -> MutexGuard<'_, BTreeMap<Source, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_stays_until_its_own_source_clears_it_and_is_told_once() {
        let trouble = Trouble::default();
        let lanes = [AgentId::new(), AgentId::new()].map(Source::Lane);
        for lane in lanes {
            trouble.raise(lane, "no image x".into());
        }
        trouble.raise(Source::Disk, "full".into());
        assert_eq!(trouble.all(), ["full", "no image x"]);
        trouble.clear(lanes[0]);
        trouble.clear(Source::Engine);
        assert_eq!(trouble.all(), ["full", "no image x"]);
        trouble.clear(lanes[1]);
        assert_eq!(trouble.all(), ["full"]);
        assert_eq!(trouble.of(lanes[1]), None);
    }
}
