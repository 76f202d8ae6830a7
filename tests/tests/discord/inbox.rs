//! An inbox of a test's own: keeps what it took, in order, with the marks.

use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use mayfly_domain::{
    Accepted, Arrival, Event, Happened, Inbox, InboxError, Incoming, Link, Mark, Posted, Recent,
    ThreadKey,
};
use serde_json::Value;
use tokio::sync::Semaphore;

/// See the module.
pub(crate) struct Notebook {
    taken: Mutex<Vec<Incoming>>,
    mark: Mutex<Option<String>>,
    /// Before each mark: how many events were there.
    marked_at: Mutex<Vec<(u64, usize)>>,
    links: Mutex<Vec<Link>>,
    recent: Mutex<Vec<Recent>>,
    /// So many of the next takes fail.
    pub(crate) failures: AtomicU32,
    /// Takes so far, those that wait included.
    pub(crate) asked: AtomicU32,
    /// A take needs a permit.
    pub(crate) gate: Semaphore,
}

fn storage(why: &'static str) -> InboxError {
    InboxError::Storage(why.into())
}

impl Notebook {
    pub(crate) fn new() -> Notebook {
        Notebook {
            taken: Mutex::default(),
            mark: Mutex::default(),
            marked_at: Mutex::default(),
            links: Mutex::default(),
            recent: Mutex::default(),
            failures: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
        }
    }

    fn taken(&self) -> MutexGuard<'_, Vec<Incoming>> {
        self.taken.lock().expect("not poisoned")
    }

    /// What happened, each event once, in its order.
    pub(crate) fn happened(&self) -> Vec<Event> {
        let mut seen = Vec::new();
        let taken = self.taken();
        let events = taken
            .iter()
            .filter_map(|incoming| incoming.event.clone().ok());
        events
            .filter(|event| {
                let new = event.key.is_empty() || !seen.contains(&event.key);
                seen.push(event.key.clone());
                new
            })
            .collect()
    }

    /// The posts among them.
    pub(crate) fn posts(&self) -> Vec<Posted> {
        let posts = self
            .happened()
            .into_iter()
            .filter_map(|event| match event.happened {
                Happened::Posted(posted) => Some(*posted),
                _ => None,
            });
        posts.collect()
    }

    /// Their texts.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.posts().into_iter().map(|posted| posted.text).collect()
    }

    /// Everything as it came, with why it was not understood.
    pub(crate) fn not_understood(&self) -> Vec<(Vec<u8>, String)> {
        let taken = self.taken();
        let odd = taken.iter().filter_map(|incoming| match &incoming.event {
            Err(why) => Some((incoming.raw.clone(), why.clone())),
            Ok(Event {
                happened: Happened::Ignored(why),
                ..
            }) => Some((incoming.raw.clone(), why.clone())),
            Ok(_) => None,
        });
        odd.collect()
    }

    pub(crate) fn links(&self) -> Vec<Link> {
        self.links.lock().expect("not poisoned").clone()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.links().last() == Some(&Link::Up)
    }

    /// How often it was up.
    pub(crate) fn ups(&self) -> usize {
        self.links()
            .iter()
            .filter(|link| **link == Link::Up)
            .count()
    }

    /// The number of the last event that the stored mark covers.
    pub(crate) fn marked(&self) -> Option<u64> {
        let mark = self.mark.lock().expect("not poisoned").clone()?;
        serde_json::from_str::<Value>(&mark).expect("JSON")["seq"].as_u64()
    }

    /// Every mark covers exactly the events before it, by the numbers in them.
    pub(crate) fn marks_fit(&self) -> bool {
        let taken = self.taken();
        let seq = |incoming: &Incoming| {
            serde_json::from_slice::<Value>(&incoming.raw).ok()?["s"].as_u64()
        };
        let marks = self.marked_at.lock().expect("not poisoned");
        marks.iter().all(|(mark, count)| {
            let before = taken[..*count].iter().filter_map(seq).max().unwrap_or(0);
            let after = taken[*count..]
                .iter()
                .filter_map(seq)
                .min()
                .unwrap_or(u64::MAX);
            before <= *mark && after > *mark
        })
    }

    /// A conversation with an agent, of which this is the newest message.
    pub(crate) fn know(&self, thread: ThreadKey, newest: u64) {
        let recent = Recent {
            thread,
            newest: newest.to_string(),
            at: 0,
        };
        self.recent.lock().expect("not poisoned").push(recent);
    }
}

#[async_trait]
impl Inbox for Notebook {
    async fn accept(&self, arrival: Arrival) -> Result<Accepted, InboxError> {
        Err(InboxError::NoAgent(arrival.thread))
    }

    async fn take(&self, events: Vec<Incoming>, mark: Option<Mark>) -> Result<(), InboxError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.gate
            .acquire()
            .await
            .map_err(|_| storage("closed"))?
            .forget();
        let fails = self
            .failures
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
        if fails.is_ok() {
            return Err(storage("the disk is full"));
        }
        let mut taken = self.taken();
        taken.extend(events);
        if let Some(mark) = mark {
            assert_eq!(
                (mark.platform.as_str(), mark.name.as_str()),
                ("discord", "session")
            );
            let seq = serde_json::from_str::<Value>(&mark.value).expect("JSON")["seq"].as_u64();
            self.marked_at
                .lock()
                .expect("not poisoned")
                .push((seq.expect("a number"), taken.len()));
            *self.mark.lock().expect("not poisoned") = Some(mark.value);
        }
        Ok(())
    }

    async fn mark(
        &self,
        _platform: &str,
        _name: &str,
    ) -> Result<Option<(String, i64)>, InboxError> {
        let mark = self.mark.lock().expect("not poisoned").clone();
        Ok(mark.map(|value| (value, 0)))
    }

    async fn recent(&self, _platform: &str, most: usize) -> Result<Vec<Recent>, InboxError> {
        let recent = self.recent.lock().expect("not poisoned");
        Ok(recent.iter().take(most).cloned().collect())
    }

    fn link(&self, platform: &'static str, link: Link) {
        assert_eq!(platform, "discord");
        self.links.lock().expect("not poisoned").push(link);
    }
}
