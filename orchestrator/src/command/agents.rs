//! Agents: made, found, shown, forked, removed.

use mayfly_domain::{AgentId, MessageId, SandboxRef, SnapshotId, ThreadKey, TickId};

use super::{
    Commands, NewAgent, RequestError, enough, history::title, internal, not_found, only, suffix,
};
use crate::{
    agent::profile::SHELL,
    bases::{BaseError, Beginning},
    db::{agents::Agent, deliveries::Undelivered, orders::Ask, shown::ShownAgent},
    observe,
    sandbox::BackendError,
    view::{AgentView, DiskView, Page, UndeliveredView, Wanted},
};

/// Most that is told of what could not be delivered.
const UNDELIVERED: i64 = 20;
const AGENTS_HINT: &str = ": `mayfly agent list` shows all";

impl Commands {
    /// Makes an agent: refuses unknown profiles and images that are not on this host.
    pub async fn create_agent(&self, new: NewAgent) -> Result<AgentView, RequestError> {
        let name = new.profile.unwrap_or_else(|| SHELL.to_owned());
        let profile = self
            .profiles
            .0
            .get(&name)
            .ok_or_else(|| self.no_profile(&name))?;
        let reference = new.sandbox.as_ref().unwrap_or(&profile.sandbox);
        let begins = self.begins(reference).await?;
        let agent = Agent {
            id: AgentId::new(),
            profile: name,
            sandbox: new.sandbox,
            image: begins.image,
            base: begins.base,
            head: None,
            forked_from: None,
            created_at: self.db.now(),
        };
        let thread = ThreadKey::local(self.installation, agent.id);
        self.db.insert_agent(&agent, &thread).await?;
        self.agent(agent.id).await
    }

    /// A conversation gets a fresh agent of the same profile; false while something of the old one
    /// waits or runs. The old one is reached by command line from then on.
    pub async fn renew(&self, old: AgentId, thread: &ThreadKey) -> Result<bool, RequestError> {
        let agent = self.row(old).await?;
        let profile = self.profiles.0.get(&agent.profile);
        let profile = profile.ok_or_else(|| self.no_profile(&agent.profile))?;
        let begins = self.begins(&profile.sandbox).await?;
        let fresh = Agent {
            id: AgentId::new(),
            sandbox: None,
            image: begins.image,
            base: begins.base,
            head: None,
            forked_from: None,
            created_at: self.db.now(),
            profile: agent.profile,
        };
        let own = ThreadKey::local(self.installation, old);
        Ok(self.db.renew_thread(thread, &own, &fresh).await?)
    }

    /// Names of the profiles that agents can be made from, in order.
    pub fn profiles(&self) -> Vec<String> {
        self.profiles.0.keys().cloned().collect()
    }

    /// Finds an agent by id or unique suffix.
    pub async fn find_agent(&self, text: &str) -> Result<AgentId, RequestError> {
        let digits = suffix("agent", text, AGENTS_HINT)?;
        let found = self.db.agents_ending(&digits).await?;
        only("agent", text, &found, AGENTS_HINT)
    }

    /// As [`Commands::find_agent`], for one that is changed: takes a few digits at least.
    pub async fn agent_to_change(&self, text: &str) -> Result<AgentId, RequestError> {
        let found = self.find_agent(text).await?;
        enough("agent", text)?;
        Ok(found)
    }

    /// One agent.
    pub async fn agent(&self, id: AgentId) -> Result<AgentView, RequestError> {
        Ok(self.view(self.shown(id).await?))
    }

    /// One agent, with what its states take on disk and what could not be delivered.
    pub async fn agent_with_disk(&self, id: AgentId) -> Result<AgentView, RequestError> {
        let shown = self.shown(id).await?;
        let cost = self.keeper.cost_of(id).await?;
        let base_bytes = match shown.base_bytes {
            Some(known) => known,
            // It lies on another host, or nowhere yet.
            None if !self.store.base_dir(&shown.agent.base).is_dir() => 0,
            None => {
                let measured = self.keeper.measure_base(&shown.agent.base).await;
                measured.map_err(|error| internal(&error))?
            }
        };
        let undelivered = match shown.undelivered {
            true => self.db.undelivered(id, UNDELIVERED).await?,
            false => Vec::new(),
        };
        let disk = DiskView {
            own_bytes: cost.own,
            shared_bytes: cost.shared,
            base_bytes,
        };
        Ok(AgentView {
            disk: Some(disk),
            undelivered: undelivered.into_iter().map(undelivered_view).collect(),
            ..self.view(shown)
        })
    }

    /// Agents, newest first.
    pub async fn agents(&self, wanted: Wanted<AgentId>) -> Result<Page<AgentView>, RequestError> {
        let found = self.db.agents_page(wanted.after, wanted.most + 1).await?;
        let page = Page::cut(found, wanted.most, |shown| shown.agent.id.to_string());
        Ok(page.map(|shown| self.view(shown)))
    }

    /// A new agent on the same state, or on the state after a tick.
    pub async fn fork(&self, id: AgentId, at: Option<TickId>) -> Result<AgentView, RequestError> {
        self.forked(id, at, |_| None).await
    }

    /// The same for a command in a thread, of which this is left in the same transaction.
    pub(crate) async fn fork_asked(
        &self,
        id: AgentId,
        at: Option<TickId>,
        becomes: impl FnOnce(AgentId) -> (MessageId, Ask),
    ) -> Result<AgentView, RequestError> {
        self.forked(id, at, |fork| Some(becomes(fork))).await
    }

    async fn forked(
        &self,
        id: AgentId,
        at: Option<TickId>,
        asked: impl FnOnce(AgentId) -> Option<(MessageId, Ask)>,
    ) -> Result<AgentView, RequestError> {
        let agent = self.row(id).await?;
        let head = match at {
            None => agent.head,
            Some(tick) => Some(self.state_after(id, tick).await?),
        };
        let fork = Agent {
            id: AgentId::new(),
            head,
            forked_from: Some(id),
            created_at: self.db.now(),
            ..agent
        };
        let thread = ThreadKey::local(self.installation, fork.id);
        let asked = asked(fork.id);
        if !self.db.fork_agent(&fork, &thread, asked.as_ref()).await? {
            return Err(gone(id, at));
        }
        self.agent(fork.id).await
    }

    /// Removes an agent and what only it needs. Refused while a tick runs, and while forks need
    /// its layers unless `even_with_forks` (the shared layers stay).
    pub async fn remove_agent(
        &self,
        id: AgentId,
        even_with_forks: bool,
    ) -> Result<(), RequestError> {
        self.row(id).await?;
        let forks = self.db.forks_of(id).await?;
        if !forks.is_empty() && !even_with_forks {
            let names: Vec<String> = forks.iter().map(AgentId::short).collect();
            return Err(RequestError::Conflict(format!(
                "agent {} has forks that stand on its state ({}): remove them first, or use --force \
                 (they keep the shared layers)",
                id.short(),
                names.join(", ")
            )));
        }
        if self.db.remove_agent(id).await? {
            self.keeper.touch(id);
            self.bell.ring();
            return Ok(());
        }
        Err(busy(id, "rm"))
    }

    pub(super) async fn row(&self, id: AgentId) -> Result<Agent, RequestError> {
        self.db
            .agent(id)
            .await?
            .ok_or_else(|| not_found("agent", id, AGENTS_HINT))
    }

    /// The snapshot a tick left that this agent ran, stands on or ever stood on.
    pub(super) async fn state_after(
        &self,
        agent: AgentId,
        tick: TickId,
    ) -> Result<SnapshotId, RequestError> {
        let found = self.db.tick(tick).await?;
        let Some(after) = found.as_ref().and_then(|tick| tick.after) else {
            return Err(kept_nothing(tick));
        };
        if self.db.reaches(agent, after).await? {
            return Ok(after);
        }
        Err(not_found(
            "tick",
            tick,
            format!(" of agent {}", agent.short()),
        ))
    }

    pub(super) async fn shown(&self, id: AgentId) -> Result<ShownAgent, RequestError> {
        let shown = self.db.shown_agent(id).await?;
        shown.ok_or_else(|| not_found("agent", id, AGENTS_HINT))
    }

    fn view(&self, shown: ShownAgent) -> AgentView {
        let agent = shown.agent;
        let profile = self.profiles.0.get(&agent.profile);
        let sandbox = agent
            .sandbox
            .as_ref()
            .or(profile.map(|profile| &profile.sandbox));
        AgentView {
            id: agent.id,
            short: agent.id.short(),
            sandbox: sandbox.map_or_else(|| agent.image.clone(), SandboxRef::to_string),
            profile: agent.profile,
            created_at: agent.created_at,
            head: agent.head,
            head_tick: shown.head_tick,
            running: shown.running,
            waiting: shown.waiting as u64,
            parked: shown.parked as u64,
            ticks: shown.ticks as u64,
            layers: shown.layers as u64,
            forked_from: agent.forked_from,
            disk: None,
            undelivered: Vec::new(),
        }
    }

    fn no_profile(&self, name: &str) -> RequestError {
        let known: Vec<&str> = self.profiles.0.keys().map(String::as_str).collect();
        let near = known
            .iter()
            .max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)));
        let hint = match near {
            Some(near) if strsim::jaro_winkler(near, name) > 0.8 => {
                format!(" (did you mean \"{near}\"?)")
            }
            _ => format!(": the configuration has {}", known.join(", ")),
        };
        not_found("profile", name, hint)
    }

    async fn begins(&self, reference: &SandboxRef) -> Result<Beginning, RequestError> {
        let begins = self.bases.beginning(reference).await;
        begins.map_err(no_base)
    }
}

fn undelivered_view(one: Undelivered) -> UndeliveredView {
    UndeliveredView {
        message: one.message,
        since: one.created_at,
        reason: one.reason,
        title: title(&one.begins),
    }
}

pub(super) fn no_base(error: BaseError) -> RequestError {
    match error {
        BaseError::Backend(error) => unavailable(error),
        BaseError::OnlyThere(_) => RequestError::Unavailable(error.to_string()),
        BaseError::Store(error) => internal(&error),
        BaseError::Db(error) => error.into(),
        BaseError::Depot(error) => error.into(),
    }
}

pub(super) fn unavailable(error: BackendError) -> RequestError {
    match &error {
        BackendError::BadImage { .. } | BackendError::OtherImage { .. } => {
            RequestError::Conflict(error.to_string())
        }
        BackendError::Down { .. } => RequestError::Unavailable(format!(
            "{}: start it, or name another with docker.host",
            observe::chain(&error)
        )),
        _ => RequestError::Unavailable(observe::chain(&error)),
    }
}

pub(super) fn busy(id: AgentId, what: &str) -> RequestError {
    let short = id.short();
    RequestError::Conflict(format!(
        "agent {short} has a running tick: wait for it, or `mayfly agent stop {short}`, then {what}"
    ))
}

/// There is no state after a tick whose changes were discarded, or that runs.
pub(super) fn kept_nothing(tick: TickId) -> RequestError {
    RequestError::Conflict(format!(
        "tick {} kept no changes, so there is no state after it",
        tick.short()
    ))
}

/// Retention has removed what the state was made of.
pub(super) fn gone(agent: AgentId, tick: Option<TickId>) -> RequestError {
    let state = match tick {
        Some(tick) => format!("the state after tick {}", tick.short()),
        None => "a state of these".to_owned(),
    };
    RequestError::Conflict(format!(
        "{state} is not kept any more: `mayfly agent log --graph {}` shows which are",
        agent.short()
    ))
}
