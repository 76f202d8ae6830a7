//! An image whose sandboxes do not start is left alone for a while, instead of using up the attempts of every
//! message that wants it.
//!
//! [`FAILURES`] in a row open it, if they are of more than one agent: one agent's own state may be what does not
//! start, and then its message is parked as ever. While it is open one lane at a time tries, ever more rarely; the
//! first that starts closes it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mayfly_domain::{AgentId, SandboxRef};
use tokio::time::Instant;

use crate::sandbox::{BackendError, Image};

/// Failures in a row that open it.
pub const FAILURES: u32 = 3;
/// From its opening until the first try, and then between two: each time twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A try that nothing is heard of is over after this.
const TRY: Duration = Duration::from_secs(60);
/// The agent that failed last leaves the next try to others for so long.
const OTHERS_FIRST: Duration = Duration::from_secs(5);

/// An image, and the runtime it is run by where a profile names one.
type Key = (String, Option<String>);

/// See the module; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Breaker(Arc<Mutex<HashMap<Key, Failing>>>);

/// An image that did not start the last time.
#[derive(Debug)]
struct Failing {
    in_a_row: u32,
    last: AgentId,
    /// Whether another agent than the last has failed too.
    several: bool,
    reason: String,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    pause: Duration,
    /// When the next may try.
    due: Instant,
}

impl Failing {
    /// From when on this agent may try; none while it is not open.
    fn tried_from(&self, agent: AgentId) -> Option<Instant> {
        let due = self.open.as_ref()?.due;
        Some(match self.last == agent {
            true => due + OTHERS_FIRST,
            false => due,
        })
    }
}

impl Breaker {
    /// Why this agent's sandbox is not made now; people know the image by this name.
    pub fn refuses(
        &self,
        image: &Image,
        name: &SandboxRef,
        runtime: Option<&str>,
        agent: AgentId,
    ) -> Option<BackendError> {
        let all = self.all();
        let failing = all.get(&key(image, runtime))?;
        (failing.tried_from(agent)? > Instant::now()).then(|| BackendError::Failing {
            image: format!("{name} ({})", short(&image.id)),
            reason: failing.reason.clone(),
        })
    }

    /// Takes the right to make this agent's sandbox now: while it is open only one has it. False if somebody else
    /// has.
    pub fn admit(&self, image: &Image, runtime: Option<&str>, agent: AgentId) -> bool {
        let (mut all, now) = (self.all(), Instant::now());
        let Some(failing) = all.get_mut(&key(image, runtime)) else {
            return true;
        };
        let Some(from) = failing.tried_from(agent) else {
            return true;
        };
        if let Some(open) = failing.open.as_mut().filter(|_| from <= now) {
            open.due = now + TRY;
        }
        from <= now
    }

    /// What became of a sandbox of this image.
    pub fn heard<T>(
        &self,
        image: &Image,
        runtime: Option<&str>,
        agent: AgentId,
        spawned: &Result<T, BackendError>,
    ) {
        let mut all = self.all();
        let reason = match spawned {
            Ok(_) => {
                if all
                    .remove(&key(image, runtime))
                    .is_some_and(|was| was.open.is_some())
                {
                    tracing::info!(image = image.name, "its sandboxes start again");
                }
                return;
            }
            Err(error) => match reason(error) {
                Some(reason) => reason,
                None => return,
            },
        };
        let failing = all.entry(key(image, runtime)).or_insert_with(|| Failing {
            in_a_row: 0,
            last: agent,
            several: false,
            reason: String::new(),
            open: None,
        });
        failing.in_a_row += 1;
        failing.several |= failing.last != agent;
        failing.last = agent;
        failing.reason = reason;
        if failing.in_a_row < FAILURES || !failing.several {
            return;
        }
        let pause = match &failing.open {
            None => {
                tracing::warn!(
                    image = image.name,
                    reason = failing.reason,
                    "its sandboxes do not start"
                );
                FIRST_PAUSE
            }
            Some(open) => (open.pause * 2).min(LONGEST_PAUSE),
        };
        let due = Instant::now() + pause;
        failing.open = Some(Open { pause, due });
    }

    /// Whether sandboxes of this image are left alone.
    pub fn is_open(&self, image: &Image, runtime: Option<&str>) -> bool {
        let all = self.all();
        let failing = all.get(&key(image, runtime));
        failing.is_some_and(|failing| failing.open.is_some())
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Key, Failing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As the engine's own lists show it.
fn short(id: &str) -> String {
    let bare = id.strip_prefix("sha256:").unwrap_or(id);
    bare.chars().take(12).collect()
}

fn key(image: &Image, runtime: Option<&str>) -> Key {
    (image.id.clone(), runtime.map(str::to_owned))
}

/// Why an image may be to blame, without the name of the one sandbox; none where it is not.
fn reason(error: &BackendError) -> Option<String> {
    match error {
        BackendError::NotReady { reason, .. } => Some(reason.clone()),
        BackendError::Failed { action, source, .. } => {
            Some(format!("could not {action}: {source}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str) -> Image {
        Image {
            id: "sha256:0123456789abcdef".to_owned(),
            name: name.to_owned(),
            user: String::new(),
            volumes: Vec::new(),
            env: Vec::new(),
        }
    }

    fn name() -> SandboxRef {
        "docker:a".parse().unwrap()
    }

    fn not_ready() -> Result<(), BackendError> {
        Err(BackendError::NotReady {
            name: "mayfly-1".into(),
            reason: "nothing was heard".into(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_of_several_agents_open_it_and_one_that_starts_closes_it() {
        let (breaker, image) = (Breaker::default(), image("a"));
        let [ada, bo, eve] = [AgentId::new(), AgentId::new(), AgentId::new()];
        let fails = |agent| breaker.heard(&image, None, agent, &not_ready());
        let may = |agent| {
            let refused = breaker.refuses(&image, &name(), None, agent);
            let may = breaker.admit(&image, None, agent);
            assert_eq!(may, refused.is_none());
            may
        };
        fails(ada);
        fails(bo);
        breaker.heard(&image, None, eve, &Ok(()));
        fails(ada);
        fails(bo);
        assert!(may(eve), "two in a row");
        fails(ada);
        let told = breaker
            .refuses(&image, &name(), None, eve)
            .unwrap()
            .to_string();
        assert!(
            told.contains("image docker:a (0123456789ab)") && told.contains("nothing was heard"),
            "{told}"
        );
        assert!(!told.contains("mayfly-1"), "{told}");
        // With another runtime, and of another image, nothing is known.
        assert!(breaker.admit(&image, Some("runsc"), eve));

        tokio::time::advance(FIRST_PAUSE).await;
        assert!(!may(ada), "who failed last leaves the try to others");
        assert!(may(bo));
        assert!(!may(eve), "one at a time");
        fails(bo);
        tokio::time::advance(FIRST_PAUSE).await;
        assert!(!may(eve), "twice as long");
        tokio::time::advance(FIRST_PAUSE).await;
        assert!(may(eve));
        tokio::time::advance(TRY).await;
        assert!(may(ada), "a try that was never heard of is over");
        breaker.heard(&image, None, ada, &Ok(()));
        assert!(may(bo) && may(eve) && !breaker.is_open(&image, None));
    }

    #[tokio::test(start_paused = true)]
    async fn one_agent_alone_and_faults_of_the_engine_open_nothing() {
        let (breaker, image) = (Breaker::default(), image("a"));
        let agent = AgentId::new();
        for _ in 0..10 {
            breaker.heard(&image, None, agent, &not_ready());
        }
        let down = || -> Result<(), BackendError> {
            Err(BackendError::Down {
                address: "x".into(),
                source: "y".into(),
            })
        };
        for _ in 0..10 {
            breaker.heard(&image, None, AgentId::new(), &down());
        }
        assert!(!breaker.is_open(&image, None));
        assert!(breaker.admit(&image, None, agent));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_failed_last_tries_where_nobody_else_does() {
        let (breaker, image) = (Breaker::default(), image("a"));
        let agent = AgentId::new();
        for agent in [AgentId::new(), AgentId::new(), agent] {
            breaker.heard(&image, None, agent, &not_ready());
        }
        tokio::time::advance(FIRST_PAUSE + OTHERS_FIRST).await;
        assert!(breaker.admit(&image, None, agent));
    }
}
