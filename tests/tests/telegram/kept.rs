//! An inbox in memory, which can refuse and hold up.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicI64, Ordering},
    },
};

use async_trait::async_trait;
use mayfly_domain::{
    Accepted, Arrival, Happened, Inbox, InboxError, Incoming, Link, Mark, Posted, Recent,
};

/// What the next `take` does besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// It fails.
    Fail,
    /// It never ends, and nothing was kept.
    HoldBefore,
    /// It never ends, and all was kept.
    HoldAfter,
}

#[derive(Default)]
pub(crate) struct Kept {
    state: Mutex<State>,
    /// What time marks are made at, unix ms.
    pub(crate) now: AtomicI64,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) events: Vec<Incoming>,
    keys: BTreeSet<String>,
    pub(crate) marks: HashMap<String, (String, i64)>,
    pub(crate) links: Vec<Link>,
    pub(crate) next: Vec<Next>,
    /// How often something was handed in.
    pub(crate) takes: usize,
}

impl Kept {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|p| p.into_inner())
    }

    /// Posts in the order they were kept.
    pub(crate) fn posts(&self) -> Vec<Posted> {
        let state = self.lock();
        let posted = state.events.iter().filter_map(|incoming| {
            match &incoming.event.as_ref().ok()?.happened {
                Happened::Posted(posted) => Some((**posted).clone()),
                _ => None,
            }
        });
        posted.collect()
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        self.posts().into_iter().map(|post| post.text).collect()
    }

    pub(crate) fn link(&self) -> Option<Link> {
        self.lock().links.last().cloned()
    }

    /// Whether it was ever told that the connection is down for this reason.
    pub(crate) fn was_down(&self, reason: &str) -> bool {
        let down = |link: &Link| matches!(link, Link::Down(why) if why.contains(reason));
        self.lock().links.iter().any(down)
    }

    pub(crate) fn offset(&self) -> Option<String> {
        self.lock().marks.get("offset").map(|mark| mark.0.clone())
    }

    fn keep(&self, events: Vec<Incoming>, mark: Option<Mark>) {
        let now = self.now.load(Ordering::SeqCst);
        let mut state = self.lock();
        for incoming in events {
            let key = incoming.event.as_ref().map(|event| event.key.clone());
            let key = key.unwrap_or_default();
            if key.is_empty() || state.keys.insert(key) {
                state.events.push(incoming);
            }
        }
        if let Some(mark) = mark {
            state.marks.insert(mark.name, (mark.value, now));
        }
    }
}

#[async_trait]
impl Inbox for Kept {
    async fn accept(&self, _: Arrival) -> Result<Accepted, InboxError> {
        unreachable!("platforms hand in events")
    }

    async fn take(&self, events: Vec<Incoming>, mark: Option<Mark>) -> Result<(), InboxError> {
        let next = {
            let mut state = self.lock();
            state.takes += 1;
            state.next.pop()
        };
        match next {
            Some(Next::Fail) => return Err(InboxError::Storage("disk full".into())),
            Some(Next::HoldBefore) => std::future::pending().await,
            Some(Next::HoldAfter) => {
                self.keep(events, mark);
                std::future::pending().await
            }
            None => self.keep(events, mark),
        }
        Ok(())
    }

    async fn mark(&self, _: &str, name: &str) -> Result<Option<(String, i64)>, InboxError> {
        Ok(self.lock().marks.get(name).cloned())
    }

    async fn recent(&self, _: &str, _: usize) -> Result<Vec<Recent>, InboxError> {
        Ok(Vec::new())
    }

    fn link(&self, _: &'static str, link: Link) {
        self.lock().links.push(link);
    }
}
