//! What a run tells: counts, and times of the virtual clock.

use std::{collections::BTreeMap, fmt, time::Duration};

use mayfly_domain::MessageOutcome;

use crate::agents::HOGS;

/// See the module. Times are milliseconds.
#[derive(Debug, Default, Clone)]
pub struct Figures {
    /// Of the run.
    pub seed: u64,
    /// Steps of processes, servers and sandboxes.
    pub steps: u64,
    /// Virtual time.
    pub virtual_ms: u64,
    /// Time it took.
    pub took: Duration,
    /// Of all that was told; the same for the same seed.
    pub print: u64,
    /// Messages by their outcome.
    pub answered: u64,
    /// See `answered`.
    pub noticed: u64,
    /// See `answered`.
    pub parked: u64,
    /// See `answered`.
    pub merged: u64,
    /// What happened, by its name.
    pub happened: BTreeMap<&'static str, u64>,
    /// From the death or the stop of a worker until what it ran is claimed again or settled.
    pub recoveries: Vec<u64>,
    waits: Vec<u64>,
    /// Claims of each hog while all of them waited.
    turns: [u64; HOGS.len()],
    /// Claims that each hog still wants.
    wanted: [u64; HOGS.len()],
}

impl Figures {
    pub(crate) fn of(seed: u64) -> Figures {
        Figures {
            seed,
            ..Figures::default()
        }
    }

    /// It happened once more.
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.happened.entry(what).or_default() += 1;
    }

    /// A message was closed without an answer.
    pub(crate) fn ended(&mut self, outcome: MessageOutcome) {
        match outcome {
            MessageOutcome::Parked => self.parked += 1,
            _ => self.noticed += 1,
        }
    }

    /// A hog has written to so many agents.
    pub(crate) fn wants(&mut self, hog: usize, lanes: u64) {
        self.wanted[hog] += lanes;
    }

    /// A message had its first claim.
    pub(crate) fn waited(&mut self, author: &str, ms: u64) {
        let hog = author
            .strip_prefix("hog")
            .and_then(|hog| hog.parse::<usize>().ok());
        let Some(hog) = hog else {
            self.waits.push(ms);
            return;
        };
        if self.wanted.iter().all(|wanted| *wanted > 0) {
            self.turns[hog] += 1;
        }
        self.wanted[hog] = self.wanted[hog].saturating_sub(1);
    }

    /// Jain's index over the turns of those who wrote most, while all of them waited: 1 where they had equally
    /// many, 1/3 where one had all (Jain, Chiu, Hawe 1984).
    pub fn fairness(&self) -> Option<f64> {
        let sum: u64 = self.turns.iter().sum();
        let squares: u64 = self.turns.iter().map(|turns| turns * turns).sum();
        (sum >= 2 * HOGS.len() as u64)
            .then(|| (sum * sum) as f64 / (HOGS.len() as u64 * squares) as f64)
    }

    /// What so many of a hundred waited at most.
    pub fn wait(&self, percent: usize) -> u64 {
        percentile(&self.waits, percent)
    }

    /// What so many of a hundred recoveries took at most.
    pub fn recovery(&self, percent: usize) -> u64 {
        percentile(&self.recoveries, percent)
    }
}

fn percentile(all: &[u64], percent: usize) -> u64 {
    let mut sorted = all.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(0)
}

/// The head of the table that [`Figures`] are rows of.
pub const HEAD: &str = "      seed     steps  virtual     took  answered noticed parked merged  recovered  \
    p50 s  p99 s  most s  | wait p50 s  p99 s  most s  | fairness";

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |ms: u64| ms as f64 / 1000.0;
        write!(
            f,
            "{:>10} {:>9} {:>7.0}s {:>7.1}s  {:>8} {:>7} {:>6} {:>6}  {:>9} {:>6.1} {:>6.1} {:>7.1}  | {:>10.1} {:>6.1} {:>7.1}  | {}",
            self.seed,
            self.steps,
            s(self.virtual_ms),
            self.took.as_secs_f64(),
            self.answered,
            self.noticed,
            self.parked,
            self.merged,
            self.recoveries.len(),
            s(self.recovery(50)),
            s(self.recovery(99)),
            s(self.recovery(100)),
            s(self.wait(50)),
            s(self.wait(99)),
            s(self.wait(100)),
            self.fairness()
                .map_or("-".to_owned(), |index| format!("{index:.3}")),
        )
    }
}
