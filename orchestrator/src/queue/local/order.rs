//! Who is next: start-time fair queueing over users, first come first served among one user's lanes.
//!
//! Each user has a tag, the turn from which its next lane counts; a lane that becomes ready stands at
//! its user's tag, or at the present turn if that is later, and moves the tag on by one. The lowest
//! turn is served first, so a user with a hundred lanes and one with a single lane alternate
//! (Goyal, Vin, Cheng: Start-time Fair Queuing, SIGCOMM 1996, with equal weights). The same rule is
//! written a second time in `redis/queue.lua`; `tests/tests/queue.rs` compares both step by step.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use mayfly_domain::AgentId;

use crate::queue::{Length, Offer, Room, Work};

/// A turn, and the order in which lanes came to it.
type Standing = (u64, u64);

/// All lanes. Times are durations since one moment.
#[derive(Debug, Default)]
pub(super) struct Order {
    lanes: HashMap<AgentId, Lane>,
    short: BTreeMap<Standing, AgentId>,
    long: BTreeMap<Standing, AgentId>,
    later: BTreeSet<(Duration, AgentId)>,
    tags: HashMap<String, u64>,
    by_tag: BTreeSet<(u64, String)>,
    turn: u64,
    arrivals: u64,
    per_user: HashMap<String, u32>,
    per_profile: HashMap<String, u32>,
}

#[derive(Debug)]
struct Lane {
    /// As it was offered last.
    work: Work,
    state: State,
}

#[derive(Debug)]
enum State {
    Ready(Standing),
    Later(Duration),
    Taken {
        /// As it was taken.
        work: Work,
        /// When it is due if it was offered meanwhile.
        again: Option<Duration>,
    },
}

impl Order {
    /// See [`crate::queue::Queue::offer`].
    pub(super) fn offer(&mut self, offer: &Offer, now: Duration) {
        self.stand(&offer.work, now + offer.delay, now);
    }

    /// See [`crate::queue::Queue::take`]; else when something will be due.
    pub(super) fn take(&mut self, room: &Room, now: Duration) -> Result<Work, Option<Duration>> {
        self.ripen(now);
        let next = self.first(room);
        let Some((standing, id)) = next else {
            return Err(self.later.first().map(|(due, _)| *due));
        };
        let lane = self
            .lanes
            .get_mut(&id)
            .expect("a lane that stands is known");
        let work = lane.work.clone();
        let again = None;
        lane.state = State::Taken {
            work: work.clone(),
            again,
        };
        self.ready(work.length).remove(&standing);
        self.turn = self.turn.max(standing.0);
        self.forget_tags();
        *self.per_user.entry(work.user.clone()).or_default() += 1;
        *self.per_profile.entry(work.profile.clone()).or_default() += 1;
        Ok(work)
    }

    /// See [`crate::queue::Queue::done`].
    pub(super) fn done(&mut self, id: AgentId, again: Option<&Offer>, now: Duration) {
        let Some(Lane {
            state: State::Taken { .. },
            ..
        }) = self.lanes.get(&id)
        else {
            return;
        };
        let Some(Lane {
            work: offered,
            state: State::Taken { work, again: due },
        }) = self.lanes.remove(&id)
        else {
            return;
        };
        less(&mut self.per_user, &work.user);
        less(&mut self.per_profile, &work.profile);
        match (again, due) {
            (Some(offer), _) => self.stand(&offer.work, now + offer.delay, now),
            (None, Some(due)) => self.stand(&offered, due, now),
            (None, None) => {}
        }
    }

    /// See [`crate::queue::Queue::place`].
    pub(super) fn place(&self, id: AgentId) -> Option<usize> {
        let lane = self.lanes.get(&id)?;
        let State::Ready(standing) = lane.state else {
            return None;
        };
        let ready = match lane.work.length {
            Length::Short => &self.short,
            Length::Long => &self.long,
        };
        Some(ready.range(..standing).count())
    }

    fn stand(&mut self, work: &Work, due: Duration, now: Duration) {
        match self.lanes.get_mut(&work.lane) {
            None => self.enter(work.clone(), due, now),
            Some(lane) => match &mut lane.state {
                State::Ready(_) => {}
                State::Later(known) if *known <= due => {}
                State::Later(known) => {
                    self.later.remove(&(*known, work.lane));
                    self.enter(work.clone(), due, now);
                }
                State::Taken { again, .. } => {
                    *again = Some(again.map_or(due, |known| known.min(due)));
                    lane.work = work.clone();
                }
            },
        }
    }

    fn enter(&mut self, work: Work, due: Duration, now: Duration) {
        let id = work.lane;
        let state = match due <= now {
            true => State::Ready(self.line_up(&work)),
            false => {
                self.later.insert((due, id));
                State::Later(due)
            }
        };
        self.lanes.insert(id, Lane { work, state });
    }

    fn line_up(&mut self, work: &Work) -> Standing {
        let tag = self.tags.get(&work.user).copied().unwrap_or(0);
        let turn = tag.max(self.turn);
        self.by_tag.remove(&(tag, work.user.clone()));
        self.tags.insert(work.user.clone(), turn + 1);
        self.by_tag.insert((turn + 1, work.user.clone()));
        self.arrivals += 1;
        let standing = (turn, self.arrivals);
        self.ready(work.length).insert(standing, work.lane);
        standing
    }

    /// What is due lines up, in the order in which it became due.
    fn ripen(&mut self, now: Duration) {
        while let Some((due, id)) = self.later.first().copied()
            && due <= now
        {
            self.later.pop_first();
            let work = self.lanes[&id].work.clone();
            let standing = self.line_up(&work);
            let lane = self.lanes.get_mut(&id).expect("just read");
            lane.state = State::Ready(standing);
        }
    }

    fn first(&self, room: &Room) -> Option<(Standing, AgentId)> {
        let fits = |(_, id): &(&Standing, &AgentId)| {
            let work = &self.lanes[*id].work;
            let user = self.per_user.get(&work.user).copied().unwrap_or(0);
            let profile = self.per_profile.get(&work.profile).copied().unwrap_or(0);
            room.per_user.is_none_or(|most| user < most)
                && room
                    .per_profile
                    .get(&work.profile)
                    .is_none_or(|most| profile < *most)
        };
        let first = |ready: &BTreeMap<Standing, AgentId>| {
            let found = ready.iter().find(fits);
            found.map(|(standing, id)| (*standing, *id))
        };
        let long = first(&self.long).filter(|_| room.long);
        first(&self.short).into_iter().chain(long).min()
    }

    /// A tag in the past says nothing.
    fn forget_tags(&mut self) {
        while let Some((tag, user)) = self.by_tag.first()
            && *tag <= self.turn
        {
            self.tags.remove(user);
            self.by_tag.pop_first();
        }
    }

    fn ready(&mut self, length: Length) -> &mut BTreeMap<Standing, AgentId> {
        match length {
            Length::Short => &mut self.short,
            Length::Long => &mut self.long,
        }
    }
}

fn less(counts: &mut HashMap<String, u32>, key: &str) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
