//! Why messages wait: a set of causes, each raised and cleared by whoever knows it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mayfly_domain::AgentId;

use crate::clock;

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
pub struct Trouble(Arc<Mutex<BTreeMap<Source, Cause>>>);

#[derive(Debug)]
struct Cause {
    sentence: String,
    /// By the boot clock.
    raised: Duration,
}

/// How long a lane's cause holds without being raised again: whoever waits is looked at every few seconds, unless
/// another worker has taken the lane.
const OF_A_LANE: Duration = Duration::from_secs(60);

impl Trouble {
    /// Something is wrong, in one sentence; it replaces what the same source said before.
    pub fn raise(&self, source: Source, sentence: String) {
        if !self
            .causes()
            .values()
            .any(|known| known.sentence == sentence)
        {
            tracing::warn!(?source, reason = sentence, "messages wait");
        }
        self.expect(source, sentence);
    }

    /// Something is not there yet, which is told to whoever asks and not worth a warning.
    pub fn expect(&self, source: Source, sentence: String) {
        let raised = clock::boot_time();
        self.causes().insert(source, Cause { sentence, raised });
    }

    /// All is well as far as this source knows.
    pub fn clear(&self, source: Source) {
        if let Some(Cause { sentence, .. }) = self.causes().remove(&source) {
            tracing::info!(?source, reason = sentence, "is over");
        }
    }

    /// What this source says.
    pub fn of(&self, source: Source) -> Option<String> {
        let causes = self.causes();
        causes.get(&source).map(|cause| cause.sentence.clone())
    }

    /// Every cause once, however many lanes wait for it.
    pub fn all(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for Cause { sentence, .. } in self.causes().values() {
            if !all.contains(sentence) {
                all.push(sentence.clone());
            }
        }
        all
    }

    /// Those that hold.
    fn causes(&self) -> MutexGuard<'_, BTreeMap<Source, Cause>> {
        let mut causes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::boot_time();
        causes.retain(|source, cause| {
            !matches!(source, Source::Lane(_)) || now.saturating_sub(cause.raised) < OF_A_LANE
        });
        causes
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

    #[test]
    fn what_a_lane_waited_for_is_over_where_it_is_looked_at_no_more() {
        let trouble = Trouble::default();
        let lane = Source::Lane(AgentId::new());
        trouble.raise(lane, "no image x".into());
        trouble.raise(Source::Disk, "full".into());
        let long_ago = clock::boot_time().saturating_sub(OF_A_LANE);
        let mut causes = trouble.causes();
        causes
            .values_mut()
            .for_each(|cause| cause.raised = long_ago);
        drop(causes);
        assert_eq!(trouble.all(), ["full"], "another worker may have the lane");
    }
}
