//! What must be true, kept beside the database: who was accepted, who has which claim, whose program runs.

use std::collections::{BTreeMap, HashMap};

use mayfly_domain::{AgentId, MessageId, TickId};
use mayfly_orchestrator::db::{claims::Claim, endings::MessageFate};

use crate::{agents, figures::Figures};

/// A promise that was broken, in a sentence.
pub(crate) type Broken = String;

/// See the module. Times are milliseconds of the one true clock.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    agents: HashMap<AgentId, Lane>,
    keys: HashMap<String, MessageId>,
    open: usize,
}

#[derive(Debug, Default)]
struct Lane {
    generation: i64,
    tick: Option<Held>,
    /// By their place.
    messages: BTreeMap<i64, Said>,
    program: Option<TickId>,
    /// Since when its next message might be claimed, if it has come.
    free: u64,
    /// Since when the claim's worker is dead, or stopped.
    bereft: Option<u64>,
}

#[derive(Debug)]
struct Held {
    id: TickId,
    seq: i64,
}

#[derive(Debug)]
struct Said {
    id: MessageId,
    author: String,
    accepted: u64,
    claimed: bool,
    settled: bool,
}

/// An end of a tick, as it was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End<'a> {
    /// By whoever ran it, with its files.
    Committed,
    /// Without.
    Closed(&'a MessageFate),
}

impl Oracle {
    /// Messages without an outcome.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Messages that were accepted.
    pub(crate) fn accepted(&self) -> usize {
        self.keys.len()
    }

    /// Some that have no outcome.
    pub(crate) fn left(&self) -> Vec<String> {
        let all = self.agents.iter().flat_map(|(agent, lane)| {
            let open = lane.messages.iter().filter(|(_, said)| !said.settled);
            open.map(move |(seq, said)| {
                format!("agent {} seq {seq} {}", agents::number(*agent), said.id)
            })
        });
        all.take(10).collect()
    }

    /// The database has stored a message.
    pub(crate) fn accept(
        &mut self,
        key: &str,
        author: &str,
        (agent, id, new, seq): (AgentId, MessageId, bool, i64),
        now: u64,
    ) -> Result<(), Broken> {
        if let Some(known) = self.keys.get(key) {
            return match *known == id && !new {
                true => Ok(()),
                false => Err(format!("P1: {key} was accepted as {known} and as {id}")),
            };
        }
        if !new {
            return Err(format!("P1: {key} is said to be known, and is not"));
        }
        self.keys.insert(key.to_owned(), id);
        self.open += 1;
        let lane = self.agents.entry(agent).or_default();
        if lane
            .messages
            .last_key_value()
            .is_some_and(|(last, _)| *last >= seq)
        {
            return Err(format!(
                "P1: {id} has the place {seq}, behind which others stand"
            ));
        }
        let said = Said {
            id,
            author: author.to_owned(),
            accepted: now,
            claimed: false,
            settled: false,
        };
        lane.messages.insert(seq, said);
        Ok(())
    }

    /// The database has given a claim.
    pub(crate) fn claim(
        &mut self,
        claim: &Claim,
        now: u64,
        figures: &mut Figures,
    ) -> Result<(), Broken> {
        let (agent, tick) = (claim.agent.id, claim.tick);
        let lane = self.agents.entry(agent).or_default();
        if let Some(held) = &lane.tick {
            return Err(format!("P2: {tick} was claimed while {} was open", held.id));
        }
        if let Some(program) = lane.program {
            return Err(format!(
                "P2: {tick} was claimed while the program of {program} ran"
            ));
        }
        if claim.generation != lane.generation + 1 {
            return Err(format!(
                "P2: {tick} has generation {} after {}",
                claim.generation, lane.generation
            ));
        }
        lane.generation = claim.generation;
        let first = lane.messages.iter().find(|(_, said)| !said.settled);
        let Some((seq, _)) = first.filter(|(_, said)| said.id == claim.message.id) else {
            return Err(format!(
                "P1: {tick} runs {}, whose turn it is not: {first:?}",
                claim.message.id
            ));
        };
        let seq = *seq;
        for merged in &claim.merged {
            let said = lane.messages.get_mut(&merged.seq);
            let said = said.ok_or(format!("P1: {} is not in its lane", merged.id))?;
            if !said.settled {
                said.settled = true;
                self.open -= 1;
                figures.merged += 1;
            }
        }
        lane.tick = Some(Held { id: tick, seq });
        let said = lane.messages.get_mut(&seq).expect("just found");
        if !said.claimed {
            said.claimed = true;
            figures.waited(&said.author, now - said.accepted.max(lane.free));
        }
        if let Some(since) = lane.bereft.take() {
            figures.recoveries.push(now - since);
        }
        Ok(())
    }

    /// The database was asked to end a tick, and says whether it did.
    pub(crate) fn end(
        &mut self,
        agent: AgentId,
        tick: TickId,
        end: End<'_>,
        done: bool,
        now: u64,
        figures: &mut Figures,
    ) -> Result<(), Broken> {
        let lane = self.agents.entry(agent).or_default();
        let held = lane.tick.take_if(|held| held.id == tick);
        if done && lane.program == Some(tick) {
            return Err(format!("P2: {tick} was ended while its program ran"));
        }
        let held = match (held, done) {
            (Some(held), true) => held,
            (None, false) => return Ok(()),
            (Some(held), false) => {
                lane.tick = Some(held);
                return Err(format!("P2: {tick} is open, and could not be ended"));
            }
            (None, true) => {
                return Err(format!("P2: {tick} was ended, and its claim had been lost"));
            }
        };
        match end {
            End::Closed(MessageFate::Again { .. }) => return Ok(()),
            End::Closed(MessageFate::Settled(outcome, _)) => figures.ended(*outcome),
            End::Committed => figures.answered += 1,
        }
        if let Some(since) = lane.bereft.take() {
            figures.recoveries.push(now - since);
        }
        lane.free = now;
        let said = lane.messages.get_mut(&held.seq).expect("it was claimed");
        if std::mem::replace(&mut said.settled, true) {
            return Err(format!("P1: {} was settled twice", said.id));
        }
        self.open -= 1;
        Ok(())
    }

    /// The next message of a lane was parked without a tick.
    pub(crate) fn park_next(&mut self, agent: AgentId, figures: &mut Figures) {
        let lane = self.agents.entry(agent).or_default();
        let next = lane.messages.values_mut().find(|said| !said.settled);
        if let Some(said) = next.filter(|_| lane.tick.is_none()) {
            said.settled = true;
            self.open -= 1;
            figures.parked += 1;
        }
    }

    /// A program begins.
    pub(crate) fn program(&mut self, agent: AgentId, tick: TickId) -> Result<(), Broken> {
        let lane = self.agents.entry(agent).or_default();
        if let Some(other) = lane.program.replace(tick) {
            return Err(format!(
                "P2: the programs of {other} and {tick} run at once"
            ));
        }
        match lane.tick.as_ref().is_some_and(|held| held.id == tick) {
            true => Ok(()),
            false => Err(format!(
                "P2: the program of {tick} begins, whose claim was lost"
            )),
        }
    }

    /// A program is over.
    pub(crate) fn program_over(&mut self, agent: AgentId, tick: TickId) {
        let lane = self.agents.entry(agent).or_default();
        lane.program.take_if(|running| *running == tick);
    }

    /// The worker that has this claim was killed or stopped.
    pub(crate) fn bereave(&mut self, agent: AgentId, tick: TickId, now: u64) {
        let lane = self.agents.entry(agent).or_default();
        if lane.tick.as_ref().is_some_and(|held| held.id == tick) {
            lane.bereft.get_or_insert(now);
        }
    }
}
