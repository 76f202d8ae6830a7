//! An inbox in memory.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard},
};

use async_trait::async_trait;
use mayfly_domain::{
    Accepted, Arrival, Event, Happened, Inbox, InboxError, Incoming, Link, Mark, Posted, Recent,
};
use mayfly_tests::fake_slack::Running;

/// See the module.
#[derive(Default)]
pub(crate) struct Kept {
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    /// Events that are new, in their order.
    pub(crate) events: Vec<Event>,
    keys: HashSet<String>,
    /// All that came, also again.
    pub(crate) came: usize,
    pub(crate) mark: Option<(String, i64)>,
    pub(crate) recent: Vec<Recent>,
    pub(crate) links: Vec<Link>,
    /// So many takes fail first.
    pub(crate) failing: usize,
    /// So many looks for a mark fail first.
    pub(crate) failing_marks: usize,
    /// How many were acknowledged at each take, before it stored.
    pub(crate) seen_at_take: Vec<usize>,
}

impl Kept {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panicked")
    }

    /// Posts so far, each event of its own.
    pub(crate) fn posts(&self) -> Vec<Posted> {
        let state = self.lock();
        let posts = state
            .events
            .iter()
            .filter_map(|event| match &event.happened {
                Happened::Posted(posted) => Some((**posted).clone()),
                _ => None,
            });
        posts.collect()
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        self.posts().into_iter().map(|posted| posted.text).collect()
    }

    pub(crate) fn downs(&self) -> usize {
        let state = self.lock();
        let downs = state.links.iter().filter(|link| **link != Link::Up);
        downs.count()
    }

    pub(crate) fn ups(&self) -> usize {
        let state = self.lock();
        state.links.iter().filter(|link| **link == Link::Up).count()
    }
}

/// An inbox that looks at the server each time it takes something.
pub(crate) struct Watching<'a> {
    pub(crate) kept: &'a Kept,
    pub(crate) fake: &'a Running,
}

#[async_trait]
impl Inbox for Watching<'_> {
    async fn accept(&self, arrival: Arrival) -> Result<Accepted, InboxError> {
        self.kept.accept(arrival).await
    }

    async fn take(&self, events: Vec<Incoming>, mark: Option<Mark>) -> Result<(), InboxError> {
        if !events.is_empty() {
            let acknowledged = self.fake.acknowledged();
            self.kept.lock().seen_at_take.push(acknowledged);
        }
        self.kept.take(events, mark).await
    }

    async fn mark(&self, platform: &str, name: &str) -> Result<Option<(String, i64)>, InboxError> {
        self.kept.mark(platform, name).await
    }

    async fn recent(&self, platform: &str, most: usize) -> Result<Vec<Recent>, InboxError> {
        self.kept.recent(platform, most).await
    }

    fn link(&self, platform: &'static str, link: Link) {
        self.kept.link(platform, link);
    }
}

#[async_trait]
impl Inbox for Kept {
    async fn accept(&self, arrival: Arrival) -> Result<Accepted, InboxError> {
        Err(InboxError::NoAgent(arrival.thread))
    }

    async fn take(&self, events: Vec<Incoming>, mark: Option<Mark>) -> Result<(), InboxError> {
        let mut state = self.lock();
        if !events.is_empty() && state.failing > 0 {
            state.failing -= 1;
            return Err(InboxError::Storage("the disk is full".into()));
        }
        for incoming in events {
            state.came += 1;
            let event = incoming.event.expect("the adapter reads everything");
            if event.key.is_empty() || state.keys.insert(event.key.clone()) {
                state.events.push(event);
            }
        }
        if let Some(mark) = mark {
            state.mark = Some((mark.value, crate::now()));
        }
        Ok(())
    }

    async fn mark(&self, _: &str, _: &str) -> Result<Option<(String, i64)>, InboxError> {
        let mut state = self.lock();
        if state.failing_marks > 0 {
            state.failing_marks -= 1;
            return Err(InboxError::Storage("the disk is full".into()));
        }
        Ok(state.mark.clone())
    }

    async fn recent(&self, _: &str, most: usize) -> Result<Vec<Recent>, InboxError> {
        Ok(self.lock().recent.iter().take(most).cloned().collect())
    }

    fn link(&self, _: &'static str, link: Link) {
        self.lock().links.push(link);
    }
}
