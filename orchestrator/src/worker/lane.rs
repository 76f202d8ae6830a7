//! One turn of a lane: its next message is claimed and run, or the lane waits and says for what.

use std::time::Duration;

use mayfly_domain::{AgentId, Apology, TickId};

use super::{
    NOT_ALLOWED, SOON, WAIT, Worker,
    next::{Lost, Missing, Next, Part},
    reserves::Promise,
};
use crate::{
    agent::profile::Profile,
    clock,
    db::{DbError, messages::Message, together::Together},
    observe,
    orders::told,
    sandbox::{Image, Names},
    tick::{self, Job},
    trouble::Source,
};

/// When a lane is looked at again.
pub(super) type Again = Option<Duration>;

impl Worker {
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
                let suspect = match message.attempts {
                    0 => None,
                    interrupted => match self.suspects.admit(interrupted) {
                        Some(suspect) => Some(suspect),
                        None => return Ok(Some(SOON)),
                    },
                };
                let breaker = &self.tools.images.breaker;
                if !breaker.admit(&image, profile.runtime.as_deref(), lane) {
                    return Ok(Some(SOON));
                }
                self.part(&message, &profile).await?;
                let together = self.together(&message, &profile).await?;
                if !self.run_tick(lane, *profile, image, &together).await? {
                    return Ok(Some(SOON));
                }
                if let Some(suspect) = suspect {
                    suspect.ended();
                }
                Ok(Some(Duration::ZERO))
            }
        }
    }

    /// Waits until the host has what it has promised to this lane; else says when it is looked at again.
    pub(super) async fn until_kept(&self, lane: AgentId, share: &mut Promise) -> Result<(), Again> {
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
    pub(super) async fn survive_lane(self, lane: AgentId) -> Again {
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

    /// Nobody can bring the state here: the message is parked, and a person chooses.
    async fn park_lost(&self, message: &Message, lost: Lost) -> Result<Again, DbError> {
        let db = &self.tools.db;
        let Lost { part, why } = lost;
        let before = match &part {
            Part::Layer(layer) => db.made(layer).await?.and_then(|made| made.before),
            Part::Base(_) => None,
        };
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
        let part = part.to_string();
        let notice = Apology::PartMissing { part, way_out }.to_string();
        let choices = told::choices(before, message.id);
        if !db.park_with(message, &notice, &choices).await? {
            return Ok(Some(SOON));
        }
        tracing::error!(message = %message.id, notice, "parked");
        self.bell.ring();
        Ok(Some(Duration::ZERO))
    }

    /// False where nothing was claimed.
    async fn run_tick(
        &self,
        lane: AgentId,
        profile: Profile,
        image: Image,
        together: &Together,
    ) -> Result<bool, DbError> {
        let db = &self.tools.db;
        let installation = self.tools.installation;
        let slots = crate::snapshot::Slot::defaults();
        let names =
            |layer: &mayfly_domain::LayerId| Names::of(installation, layer.as_str(), &slots);
        // Read before the claim: an error after it would leave the tick open.
        let Some(agent) = db.agent(lane).await? else {
            return Ok(false);
        };
        let base = db.base(&agent.base).await?;
        let begun = clock::boot_time();
        let (tick, identity) = (TickId::new(), &self.identity);
        let claimed = db.claim(tick, lane, (&identity.id, identity.epoch), names, together);
        let claim = match claimed.await {
            Ok(Some(claim)) => claim,
            Ok(None) => return Ok(false),
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
        Ok(true)
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
