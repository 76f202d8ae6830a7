//! The worker: takes lanes from the queue, claims their next message and runs its tick.

mod affinity;
pub mod host_disk;
pub mod host_memory;
pub mod places;
pub mod reserves;
pub mod running;
mod together;

use std::{sync::Arc, time::Duration};

use mayfly_domain::{AgentId, Apology, AttachmentLimits, LayerId, SandboxRef, TickId};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::{
    affinity::Last,
    places::{Place, Places},
    reserves::Promise,
};
use crate::{
    agent::profile::{Profile, Profiles},
    bases::{BaseError, Bases},
    bell::Bell,
    clock::{self, LEASE, Lease, RENEWAL, STALE},
    db::{DbError, agents::Agent, doomed::Kind, messages::Message, together::Together},
    depot::DepotError,
    inbox::{DurableInbox, access::Verdict, route::Accesses},
    observe,
    orders::told,
    queue::{BEAT, Lanes, Work},
    role::Role,
    sandbox::{BackendError, Image, Names},
    snapshot::StoreError,
    tick::{self, Job, Tools, state::Cause},
    trouble::{Source, Trouble},
};

/// Limits on what one worker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerConfig {
    /// Ticks at once.
    pub max_running: u32,
    /// Ticks of one person at once, on all workers together; no limit if none.
    pub max_per_user: Option<u32>,
    /// Mebibytes of memory that all ticks at once may take by their limits; what the host has for them if none.
    pub memory_mib: Option<u64>,
    /// Interrupted ticks per message before it is parked.
    pub attempts: u32,
    /// Seconds that running ticks get to end by themselves when the worker is shut down.
    pub grace_s: u64,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        WorkerConfig {
            max_running: 4,
            max_per_user: None,
            memory_mib: None,
            attempts: 3,
            grace_s: 20,
        }
    }
}

impl WorkerConfig {
    /// Mebibytes of memory that all ticks at once may take; none where neither configuration nor host tells.
    pub fn memory(&self) -> Option<u64> {
        self.memory_mib.or_else(host_memory::for_ticks)
    }
}

/// Who this worker is, in which of its starts.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Lives in the data dir.
    pub id: String,
    /// + 1 per start.
    pub epoch: i64,
}

/// See the module; cheap to clone.
#[derive(Clone)]
pub struct Worker {
    /// What ticks work with.
    pub tools: Tools,
    /// What this process is there for.
    pub role: Role,
    /// What agents begin with.
    pub bases: Bases,
    /// Who may have work.
    pub lanes: Lanes,
    /// Profiles as configured.
    pub profiles: Arc<Profiles>,
    /// Who this is.
    pub identity: Identity,
    /// Who may speak on which platform.
    pub accesses: Arc<Accesses>,
    /// Limits.
    pub config: WorkerConfig,
    /// Rung whenever an outcome is written.
    pub bell: Bell,
    /// Why no tick starts.
    pub trouble: Trouble,
    /// Where ticks run; all of them free means rest.
    pub places: Places,
    /// Cancelled when no new tick may start.
    pub resting: CancellationToken,
    /// Cancelled when the first tick may start.
    pub begun: CancellationToken,
    /// When this process began, by the boot clock.
    pub began: Duration,
    /// A message that was interrupted before runs alone, so that the guilty one parks alone.
    pub suspects: Arc<Semaphore>,
}

/// When a lane is looked at again.
type Again = Option<Duration>;

/// What a lane can do now.
enum Next {
    /// No message is open.
    Nothing,
    /// Its message may be claimed after a pause.
    Early(Duration),
    /// Something is missing.
    Waits(Message, Missing),
    /// Its author may not speak any more.
    Refused(Message),
    /// Nobody can have its state now.
    Lost(Message, Lost),
    /// Its message can run.
    Runs {
        message: Box<Message>,
        profile: Box<Profile>,
        image: Image,
    },
}

/// A layer that nobody can have now.
struct Lost {
    layer: LayerId,
    /// Where its only copy is, for a person.
    why: String,
}

/// What keeps an agent's layers away.
enum Away {
    Waits(Missing),
    Lost(Lost),
}

/// Why a lane waits, each in one sentence.
struct Missing {
    /// For the log and `/readyz`.
    operator: String,
    /// For the thread.
    thread: String,
}

impl From<String> for Missing {
    fn from(sentence: String) -> Self {
        Missing {
            operator: sentence.clone(),
            thread: sentence,
        }
    }
}

const NOT_ALLOWED: &str = "Not run: its author may not speak here any more.";
/// What the image's sandboxes met is the operator's.
const DOES_NOT_START: &str = "sandboxes of its image do not start: it goes on by itself once whoever runs this server has \
                              mended that";
const STORE_AWAY: &str = "the layer store does not answer: it goes on by itself once it does";
const SOON: Duration = Duration::from_millis(500);
const WAIT: Duration = Duration::from_secs(2);

impl Worker {
    /// Where what arrives becomes this worker's work.
    pub fn inbox(&self, limits: AttachmentLimits) -> DurableInbox {
        DurableInbox::new(
            self.tools.db.clone(),
            self.lanes.clone(),
            limits,
            self.bell.clone(),
            self.trouble.clone(),
        )
    }

    /// Takes lanes until the process comes to rest.
    pub async fn serve(self) -> Result<(), DbError> {
        let stopping = self.tools.supervisor.stopping();
        loop {
            let Some((work, place)) = self.resting.run_until_cancelled(self.next_work()).await
            else {
                self.lanes.leave().await;
                stopping.cancelled().await;
                return Ok(());
            };
            let lane = work.lane;
            if self.resting.is_cancelled() {
                // Both came at once.
                self.lanes.done(lane, Some(Duration::ZERO)).await;
                continue;
            }
            let (worker, supervisor) = (self.clone(), self.tools.supervisor.clone());
            supervisor.task("lane", async move {
                let mut place = place;
                let again = match worker.until_kept(lane, &mut place.share).await {
                    Ok(()) => worker.clone().survive_lane(lane).await,
                    Err(again) => again,
                };
                worker.lanes.done(lane, again).await;
            });
        }
    }

    /// The next lane, as soon as there is a place for it.
    async fn next_work(&self) -> (Work, Place) {
        self.begun.cancelled().await;
        loop {
            let room = self.places.free().await;
            // Whoever cannot renew its lease leaves the lanes to others.
            self.until_lease(true).await;
            tokio::select! {
                work = self.lanes.take(&room) => {
                    let place = self.places.take(&work);
                    return (work, place);
                }
                () = self.places.other_than(&room) => {}
                () = self.until_lease(false) => {}
            }
        }
    }

    async fn until_lease(&self, fresh: bool) {
        while self.tools.lease.fresh() != fresh {
            tokio::time::sleep(SOON).await;
        }
    }

    /// Tells the queue that this worker lives, until no tick runs any more.
    pub async fn beat(self) -> Result<(), String> {
        let stopping = self.tools.supervisor.stopping();
        while !(stopping.is_cancelled() && self.is_at_rest()) {
            // Whoever cannot renew its lease runs nothing: others may have its lanes.
            if self.tools.lease.fresh() {
                self.lanes.beat().await;
            }
            let pause = if stopping.is_cancelled() { SOON } else { BEAT };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stopping.cancelled(), if !stopping.is_cancelled() => {}
            }
        }
        Ok(())
    }

    /// Renews the one lease of all this worker's ticks.
    pub async fn renew(self, lease: Lease) -> Result<(), String> {
        let stopping = self.tools.supervisor.stopping();
        loop {
            let sent = clock::boot_time();
            let renewal = self
                .tools
                .db
                .renew(&self.identity.id, self.identity.epoch, LEASE);
            match tokio::time::timeout(STALE, renewal).await {
                Ok(Ok(true)) => {
                    lease.confirm(sent);
                    self.trouble.clear(Source::Database);
                }
                Ok(Ok(false)) => return Err(DbError::Over.to_string()),
                Ok(Err(error)) => self.database_fails(observe::chain(&error)),
                Err(_) => self.database_fails(format!("no answer within {} s", STALE.as_secs())),
            }
            // Ticks that are still being ended need the lease until the last of them is over.
            if stopping.is_cancelled() && self.is_at_rest() {
                return Ok(());
            }
            let next = if stopping.is_cancelled() {
                SOON
            } else {
                RENEWAL
            };
            tokio::select! {
                () = tokio::time::sleep(next) => {}
                () = stopping.cancelled(), if !stopping.is_cancelled() => {}
            }
        }
    }

    fn database_fails(&self, reason: String) {
        let sentence = format!("the database does not take the worker's lease: {reason}");
        self.trouble.raise(Source::Database, sentence);
        self.tools.host_disk.free_ballast();
    }

    /// Asks the engine who it is, again and again: one that went down or came back as another is
    /// told also where no message waits.
    pub async fn watch_engine(self) -> Result<(), String> {
        let stopping = self.tools.supervisor.stopping();
        let rounds = async {
            loop {
                match self.tools.backend.engine().await {
                    Ok(_) => self.trouble.clear(Source::Engine),
                    Err(error) => self.trouble.raise(Source::Engine, error.to_string()),
                }
                tokio::time::sleep(RENEWAL).await;
            }
        };
        let _: Option<()> = stopping.run_until_cancelled(rounds).await;
        Ok(())
    }

    /// Watches the host's disk: below the floor all ticks are paused and the biggest is ended,
    /// until there is room again.
    pub async fn guard_disk(self) -> Result<(), String> {
        let stopping = self.tools.supervisor.stopping();
        let mut ending = None;
        while !stopping.is_cancelled() {
            let below = self.tools.host_disk.below_floor();
            match below {
                true => self
                    .trouble
                    .raise(Source::Disk, self.tools.host_disk.sentence()),
                false => self.trouble.clear(Source::Disk),
            }
            self.pause_all(below).await;
            // What the last one wrote is free only when its row is closed.
            let waiting = match ending {
                Some(tick) => self.is_open(tick).await,
                None => false,
            };
            let biggest = self.tools.running.biggest();
            if let Some(tick) = biggest.filter(|_| below && !waiting) {
                tracing::error!(%tick, "below the floor of free disk space: the biggest tick ends");
                self.tools.running.ask(tick, Cause::HostDiskFull);
                ending = Some(tick);
            }
            let _ = stopping
                .run_until_cancelled(tokio::time::sleep(SOON / 2))
                .await;
        }
        Ok(())
    }

    /// Each tick by itself: one that began after the others is held up too.
    async fn pause_all(&self, paused: bool) {
        let running = &self.tools.running;
        for (tick, control) in running.to_pause(paused) {
            let done = match paused {
                true => control.pause().await,
                false => control.resume().await,
            };
            match done {
                Ok(()) => running.is_paused(tick, paused),
                Err(error) => tracing::debug!(%tick, %error, "pause or resume"),
            }
        }
    }

    /// Starts no new tick, lets running ones end within the grace period, then hands their
    /// messages back. Returns when none runs.
    pub async fn drain(&self) {
        self.resting.cancel();
        let rest = self.places.rest();
        tokio::pin!(rest);
        let grace = Duration::from_secs(self.config.grace_s);
        if tokio::time::timeout(grace, &mut rest).await.is_ok() {
            return;
        }
        tracing::info!("the grace period is over: running ticks are handed back");
        self.tools.travel.hurry().cancel();
        let mut again = tokio::time::interval(SOON);
        loop {
            tokio::select! {
                _ = &mut rest => return,
                // A tick that was still starting can be asked only now.
                _ = again.tick() => self.tools.running.ask_all(&Cause::Drained),
            }
        }
    }

    /// Whoever comes next need not wait for the lease. Legal when all else has ended.
    pub async fn leave(&self) {
        if !self.is_at_rest() {
            return;
        }
        let Identity { id, epoch } = &self.identity;
        let left = tokio::time::timeout(WAIT, self.tools.db.end_worker(id, *epoch)).await;
        if !matches!(left, Ok(Ok(()))) {
            tracing::warn!("the worker's lease is not given back: it ends by itself");
        }
    }

    async fn is_open(&self, tick: TickId) -> bool {
        matches!(self.tools.db.tick(tick).await, Ok(Some(tick)) if tick.outcome.is_none())
    }

    /// Whether no tick runs.
    pub fn is_at_rest(&self) -> bool {
        self.places.are_free()
    }

    async fn run_lane(&self, lane: AgentId) -> Result<Again, DbError> {
        let next = self.next(lane).await?;
        if !matches!(next, Next::Waits(..)) {
            self.trouble.clear(Source::Lane(lane));
        }
        match next {
            Next::Nothing => Ok(None),
            Next::Early(pause) => Ok(Some(pause)),
            Next::Waits(message, missing) => self.wait(&message, missing).await,
            Next::Lost(message, lost) => self.park_lost(&message, lost).await,
            Next::Refused(message) => {
                if !self.tools.db.withdraw(&message, NOT_ALLOWED).await? {
                    return Ok(Some(SOON));
                }
                self.bell.ring();
                Ok(Some(Duration::ZERO))
            }
            Next::Runs {
                message,
                profile,
                image,
            } => {
                let _alone = match message.attempts {
                    0 => None,
                    _ => match self.suspects.clone().try_acquire_owned() {
                        Ok(alone) => Some(alone),
                        Err(_) => return Ok(Some(SOON)),
                    },
                };
                let breaker = &self.tools.images.breaker;
                if !breaker.admit(&image, profile.runtime.as_deref(), lane) {
                    return Ok(Some(SOON));
                }
                self.part(&message, &profile).await?;
                let together = self.together(&message, &profile).await?;
                self.run_tick(lane, *profile, image, &together).await
            }
        }
    }

    /// Waits until the host has what it has promised to this lane; else says when it is looked at again.
    async fn until_kept(&self, lane: AgentId, share: &mut Promise) -> Result<(), Again> {
        // Below the floor nothing starts anyway, and that is what is told.
        if share.is_kept() || self.tools.host_disk.below_floor() {
            return Ok(());
        }
        if let Some(reason) = share.waits_for() {
            let told = self.tell_waiting(lane, &reason).await;
            told.unwrap_or_else(|error| {
                tracing::warn!(agent = %lane, error = observe::chain(&error), "nobody is told that it waits");
            });
        }
        match self.resting.run_until_cancelled(share.kept()).await {
            None => Err(Some(Duration::ZERO)),
            Some(Ok(())) => Ok(()),
            Some(Err(operator)) => {
                self.trouble.raise(Source::Lane(lane), operator);
                Err(Some(WAIT))
            }
        }
    }

    async fn tell_waiting(&self, lane: AgentId, reason: &str) -> Result<(), DbError> {
        if let Some(message) = self.tools.db.next_message(lane).await? {
            let reason = reason.to_owned();
            let notice = Apology::Waiting { reason }.to_string();
            self.tools.db.notice_waiting(&message, &notice).await?;
            self.bell.ring();
        }
        Ok(())
    }

    /// Whatever becomes of it, the lane is given back.
    async fn survive_lane(self, lane: AgentId) -> Again {
        let supervisor = self.tools.supervisor.clone();
        let run = supervisor.task("lane", async move { self.run_lane(lane).await });
        let failed = match run.await {
            Ok(Ok(again)) => return again,
            Ok(Err(error)) => observe::chain(&error),
            Err(panic) => panic.to_string(),
        };
        tracing::error!(agent = %lane, error = failed, "lane failed");
        Some(WAIT)
    }

    /// What a lane can do now.
    async fn next(&self, lane: AgentId) -> Result<Next, DbError> {
        let db = &self.tools.db;
        let (Some(agent), Some(message)) = (db.agent(lane).await?, db.next_message(lane).await?)
        else {
            return Ok(Next::Nothing);
        };
        if !self.tools.lease.fresh() {
            // Its sandbox would get no heartbeat.
            return Ok(Next::Early(SOON));
        }
        let early = clock::until(message.claimable_at);
        if early > 0 {
            return Ok(Next::Early(Duration::from_millis(early as u64)));
        }
        if db.waits_for_files(message.id).await? {
            return Ok(Next::Early(SOON));
        }
        if let Some(pause) = self.left_to_another(&message).await? {
            return Ok(Next::Early(pause));
        }
        if !self.may_speak(&message).await? {
            return Ok(Next::Refused(message));
        }
        self.judge_merged(&message).await?;
        if self.tools.host_disk.below_floor() {
            let missing = Missing {
                operator: self.tools.host_disk.sentence(),
                thread: self.tools.host_disk.told().to_owned(),
            };
            return Ok(Next::Waits(message, missing));
        }
        if let Some(operator) = self.tools.travel.away() {
            let thread = STORE_AWAY.to_owned();
            return Ok(Next::Waits(message, Missing { operator, thread }));
        }
        let Some(profile) = self.profiles.0.get(&agent.profile).cloned() else {
            let reason = format!(
                "the configuration has no profile \"{}\" any more: add it and restart",
                agent.profile
            );
            return Ok(Next::Waits(message, reason.into()));
        };
        let agent = match self.bases.bring(agent, &profile.sandbox).await {
            Ok(agent) => agent,
            Err(BaseError::Db(error)) => return Err(error),
            Err(BaseError::Depot(error)) => return Ok(Next::Waits(message, missing(&error))),
            Err(error) => return Ok(Next::Waits(message, observe::chain(&error).into())),
        };
        let reference = sandbox_of(&agent, &message);
        let images = &self.tools.images;
        let resolved = images.resolve(&reference).await.and_then(|image| {
            let asked_for = message.sandbox.as_ref().or(agent.sandbox.as_ref());
            let name = asked_for.unwrap_or(&profile.sandbox);
            let runtime = profile.runtime.as_deref();
            let refusal = images.breaker.refuses(&image, name, runtime, lane);
            refusal.map_or(Ok(image), Err)
        });
        Ok(match resolved {
            Ok(image) => match self.bring_layers(&agent).await? {
                None => Next::Runs {
                    message: Box::new(message),
                    profile: Box::new(profile),
                    image,
                },
                Some(Away::Waits(missing)) => Next::Waits(message, missing),
                Some(Away::Lost(lost)) => self.wait_or_park(message, lost).await?,
            },
            Err(error @ BackendError::Failing { .. }) => {
                let missing = Missing {
                    operator: error.to_string(),
                    thread: DOES_NOT_START.to_owned(),
                };
                Next::Waits(message, missing)
            }
            Err(error @ (BackendError::Down { .. } | BackendError::NoImage(_))) => {
                Next::Waits(message, error.to_string().into())
            }
            Err(error) => Next::Waits(message, observe::chain(&error).into()),
        })
    }

    /// Whether the worker that ran the agent last is waited for, and how long.
    async fn left_to_another(&self, message: &Message) -> Result<Option<Duration>, DbError> {
        let db = &self.tools.db;
        if !db.is_shared() {
            return Ok(None);
        }
        let Some((worker, ended_at)) = db.last_run(message.agent).await? else {
            return Ok(None);
        };
        let waited = clock::unix_ms() - message.claimable_at.max(ended_at.unwrap_or_default());
        let last = match worker == self.identity.id {
            true => Last::Us,
            // Asked for last: most lanes have waited long enough.
            false if affinity::leave(Last::Living, waited).is_none() => return Ok(None),
            false if db.lives(&worker).await? => Last::Living,
            false => Last::Dead,
        };
        Ok(affinity::leave(last, waited))
    }

    /// Brings here the layers of the agent's state; what is missing, if anything.
    async fn bring_layers(&self, agent: &Agent) -> Result<Option<Away>, DbError> {
        let (db, travel) = (&self.tools.db, &self.tools.travel);
        if travel.objects().is_none() {
            return Ok(None);
        }
        match travel.fetch(&db.layers_of(agent.head).await?).await {
            Ok(()) => Ok(None),
            Err(DepotError::Db(error)) => Err(error),
            // Told by the tick: nobody has it.
            Err(DepotError::Store(StoreError::Missing { .. })) => Ok(None),
            Err(error) => Ok(Some(match lost(&error) {
                Some(lost) => Away::Lost(lost),
                None => Away::Waits(missing(&error)),
            })),
        }
    }

    /// A person is asked, unless one has said that it waits.
    async fn wait_or_park(&self, message: Message, lost: Lost) -> Result<Next, DbError> {
        if !self.tools.db.is_patient(message.id).await? {
            return Ok(Next::Lost(message, lost));
        }
        let Lost { layer, why } = lost;
        let missing = format!("layer {layer} is not at hand: {why}");
        Ok(Next::Waits(message, missing.into()))
    }

    /// Nobody can bring the state here: the message is parked, and a person chooses.
    async fn park_lost(&self, message: &Message, lost: Lost) -> Result<Again, DbError> {
        let db = &self.tools.db;
        let Lost { layer, why } = lost;
        let before = db.made(&layer).await?.and_then(|made| made.before);
        let agent = message.agent.short();
        let go_on = match before {
            Some(tick) => format!(
                "go on from before it with `mayfly agent rollback {agent} {}`",
                tick.short()
            ),
            None => "begin anew with `mayfly agent new`".to_owned(),
        };
        let way_out = format!(
            " here, and {why}: wait until that is mended and run the message again, or {go_on}"
        );
        let layer = layer.to_string();
        let notice = Apology::LayerMissing { layer, way_out }.to_string();
        let choices = told::choices(before, message.id);
        if !db.park_with(message, &notice, &choices).await? {
            return Ok(Some(SOON));
        }
        tracing::error!(message = %message.id, notice, "parked");
        self.bell.ring();
        Ok(Some(Duration::ZERO))
    }

    /// Rights may have been taken since the message came.
    async fn may_speak(&self, message: &Message) -> Result<bool, DbError> {
        if self.accesses.is_empty() {
            return Ok(true);
        }
        let Some(told) = self.tools.db.told_of(message.id).await? else {
            return Ok(true);
        };
        let channel = self
            .tools
            .db
            .channel_began_as(&told.thread.channel())
            .await?;
        let Some(access) = self.accesses.get(&channel.platform) else {
            return Ok(true);
        };
        let db = &self.tools.db;
        let access = db.with_paired(&channel.platform, access).await?;
        Ok(access.judge(&told, &channel) == Verdict::May)
    }

    async fn run_tick(
        &self,
        lane: AgentId,
        profile: Profile,
        image: Image,
        together: &Together,
    ) -> Result<Again, DbError> {
        let db = &self.tools.db;
        let installation = self.tools.installation;
        let slots = crate::snapshot::Slot::defaults();
        let names =
            |layer: &mayfly_domain::LayerId| Names::of(installation, layer.as_str(), &slots);
        // Read before the claim: an error after it would leave the tick open.
        let Some(agent) = db.agent(lane).await? else {
            return Ok(None);
        };
        let base = db.base(&agent.base).await?;
        let begun = clock::boot_time();
        let (tick, identity) = (TickId::new(), &self.identity);
        let claimed = db.claim(tick, lane, (&identity.id, identity.epoch), names, together);
        let claim = match claimed.await {
            Ok(Some(claim)) => claim,
            Ok(None) => return Ok(Some(SOON)),
            Err(error) => {
                self.close_lost_claim(tick).await;
                return Err(error);
            }
        };
        if !claim.merged.is_empty() {
            // Whoever waits for one of them looks at the first from now on.
            self.bell.ring();
        }
        let job = Job {
            claim,
            profile,
            image,
            base,
            begun,
        };
        let (tools, tick) = (self.tools.clone(), job.claim.tick);
        tracing::info!(%tick, agent = %lane, "tick");
        let running = job.clone();
        let ran = self
            .tools
            .supervisor
            .task("tick", async move { tick::run(&tools, &running).await });
        if let Err(panic) = ran.await {
            let error = tick::TickError::Panic(panic.to_string());
            tick::destroy::fail(&self.tools, &job, error).await;
        }
        self.tools.keeper.touch(lane);
        self.bell.ring();
        Ok(Some(Duration::ZERO))
    }

    /// A claim that came back as an error may have been written; left open it would close the lane for ever.
    async fn close_lost_claim(&self, tick: TickId) {
        let db = &self.tools.db;
        let close = async || -> Result<(), DbError> {
            db.outlast_writers().await?;
            let row = db.tick(tick).await?;
            let Some(tick) = row.filter(|tick| tick.outcome.is_none()) else {
                return Ok(());
            };
            if let Some(message) = db.message(tick.message).await? {
                let attempts = self.tools.attempts;
                let closing = tick::destroy::never_begun(&message, tick.id, attempts);
                db.close_tick(tick.id, tick.generation, &closing).await?;
            }
            Ok(())
        };
        while let Err(error) = close().await {
            tracing::error!(%tick, error = observe::chain(&error), "claim not closed yet");
            self.tools.host_disk.free_ballast();
            tokio::time::sleep(WAIT).await;
        }
    }

    /// The lane waits; the thread is told once. Not an attempt.
    async fn wait(&self, message: &Message, missing: Missing) -> Result<Again, DbError> {
        self.trouble
            .raise(Source::Lane(message.agent), missing.operator);
        let reason = missing.thread;
        let notice = Apology::Waiting { reason }.to_string();
        self.tools.db.notice_waiting(message, &notice).await?;
        self.bell.ring();
        Ok(Some(WAIT))
    }
}

/// The layer, where waiting alone does not bring it.
fn lost(error: &DepotError) -> Option<Lost> {
    match error {
        DepotError::Elsewhere {
            layer,
            worker,
            alive: false,
        } => Some(Lost {
            layer: layer.clone(),
            why: format!("its only copy is on worker {worker}, which does not answer"),
        }),
        DepotError::Lacks { object, .. } => match Kind::of(object) {
            Some(Kind::Layer(layer)) => Some(Lost {
                layer,
                why: "the layer store has it no more".to_owned(),
            }),
            _ => None,
        },
        _ => None,
    }
}

/// What a state waits for. Addresses are the operator's.
fn missing(error: &DepotError) -> Missing {
    let thread = match error {
        DepotError::Away { .. } => STORE_AWAY,
        DepotError::Wrong { .. } => {
            "the layer store gives other files than were put there: it is asked again"
        }
        DepotError::Elsewhere { .. } => "its files are still on their way from another worker",
        DepotError::NoRoom(_) => "the host's disk is nearly full",
        _ => "its files could not be fetched from the layer store",
    };
    Missing {
        operator: observe::chain(error),
        thread: thread.to_owned(),
    }
}

fn sandbox_of(agent: &Agent, message: &Message) -> SandboxRef {
    message
        .sandbox
        .clone()
        .unwrap_or_else(|| SandboxRef::Docker {
            image: agent.image.clone(),
            id: None,
        })
}
