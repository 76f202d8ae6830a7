//! What a lane can do now, and what it waits for.

use std::{fmt, time::Duration};

use mayfly_domain::{AgentId, BaseId, LayerId, SandboxRef};

use super::{
    SOON, Worker,
    affinity::{self, Last},
};
use crate::{
    agent::profile::Profile,
    bases::BaseError,
    db::{DbError, agents::Agent, doomed::Kind, messages::Message},
    depot::{DepotError, TRIES, WRONG_TRIES},
    inbox::access::Verdict,
    observe,
    sandbox::{BackendError, Image},
    snapshot::StoreError,
};

/// What a lane can do now.
pub(super) enum Next {
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

/// What nobody can have now.
pub(super) struct Lost {
    pub(super) part: Part,
    /// Where its only copy is, for a person.
    pub(super) why: String,
}

/// A part of a state, as a person is told of it.
pub(super) enum Part {
    Layer(LayerId),
    Base(BaseId),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Layer(layer) => write!(f, "layer {layer}"),
            Part::Base(base) => write!(f, "base {base}"),
        }
    }
}

/// What keeps a part of an agent's state away.
enum Away {
    Waits(Missing),
    Lost(Lost),
}

/// Why a lane waits, each in one sentence.
pub(super) struct Missing {
    /// For the log and `/readyz`.
    pub(super) operator: String,
    /// For the thread.
    pub(super) thread: String,
}

impl From<String> for Missing {
    fn from(sentence: String) -> Self {
        Missing {
            operator: sentence.clone(),
            thread: sentence,
        }
    }
}

/// What the image's sandboxes met is the operator's.
const DOES_NOT_START: &str = "sandboxes of its image do not start: it goes on by itself once whoever runs this server has \
                              mended that";
/// Whoever restarts, or was cut off for a moment, is back by then.
const GONE: Duration = Duration::from_secs(2 * 60);
const STORE_AWAY: &str = "the layer store does not answer: it goes on by itself once it does";

impl Worker {
    /// What a lane can do now.
    pub(super) async fn next(&self, lane: AgentId) -> Result<Next, DbError> {
        let db = &self.tools.db;
        let (Some(agent), Some(message)) = (db.agent(lane).await?, db.next_message(lane).await?)
        else {
            return Ok(Next::Nothing);
        };
        if !self.tools.lease.fresh() {
            // Its sandbox would get no heartbeat.
            return Ok(Next::Early(SOON));
        }
        let early = db.until(message.claimable_at);
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
            Err(BaseError::Depot(error)) => {
                let away = self.away(&error);
                return self.wait_or_park(message, away).await;
            }
            Err(BaseError::OnlyThere(base)) => {
                let away = self.only_there(base, &message);
                return self.wait_or_park(message, away).await;
            }
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
                Some(away) => self.wait_or_park(message, away).await?,
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
        let waited = db.now() - message.claimable_at.max(ended_at.unwrap_or_default());
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
            Err(error) => Ok(Some(self.away(&error))),
        }
    }

    fn away(&self, error: &DepotError) -> Away {
        match lost(error, self.is_steady(GONE)) {
            Some(lost) => Away::Lost(lost),
            None => Away::Waits(missing(error)),
        }
    }

    /// Whoever has it puts it into the layer store as soon as it can: for a while it is waited for.
    fn only_there(&self, base: BaseId, message: &Message) -> Away {
        let db = &self.tools.db;
        let waited = db.now() - message.claimable_at;
        if db.is_shared() && (waited < GONE.as_millis() as i64 || !self.is_steady(GONE)) {
            return Away::Waits(BaseError::OnlyThere(base).to_string().into());
        }
        Away::Lost(Lost {
            part: Part::Base(base),
            why: "it came with an import, and lies only where that was".to_owned(),
        })
    }

    /// Of what is lost a person is asked, unless one has said that it waits.
    async fn wait_or_park(&self, message: Message, away: Away) -> Result<Next, DbError> {
        let Lost { part, why } = match away {
            Away::Waits(missing) => return Ok(Next::Waits(message, missing)),
            Away::Lost(lost) if !self.tools.db.is_patient(message.id).await? => {
                return Ok(Next::Lost(message, lost));
            }
            Away::Lost(lost) => lost,
        };
        let missing = format!("{part} is not at hand: {why}");
        Ok(Next::Waits(message, missing.into()))
    }

    /// Rights may have been taken since the message came.
    pub(super) async fn may_speak(&self, message: &Message) -> Result<bool, DbError> {
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
}

/// The part, where waiting alone does not bring it. `steady`: whether we have been heard of for that long.
fn lost(error: &DepotError, steady: bool) -> Option<Lost> {
    let object = |object: &str, why: &str| {
        let part = match Kind::of(object)? {
            Kind::Layer(layer) => Part::Layer(layer),
            Kind::Base(base, _) => Part::Base(base),
            Kind::Transcript(..) | Kind::Blob(_) => return None,
        };
        let why = why.to_owned();
        Some(Lost { part, why })
    };
    match error {
        DepotError::Elsewhere {
            layer,
            worker,
            silence,
        } if is_gone(*silence, steady) => Some(Lost {
            part: Part::Layer(layer.clone()),
            why: format!("its only copy is on worker {worker}, which does not answer"),
        }),
        DepotError::Lacks { object: name, .. } => object(name, "the layer store has it no more"),
        DepotError::Wrong {
            object: name,
            tries,
            ..
        } if *tries >= WRONG_TRIES => object(
            name,
            "the layer store gives other bytes than were put there",
        ),
        DepotError::Unusable {
            object: name,
            tries,
            ..
        } if *tries >= TRIES => object(name, "what the layer store has of it cannot be unpacked"),
        _ => None,
    }
}

/// Whether a holder of which nothing was heard for so long is lost. While the database was away nobody was heard of,
/// and after a power cut all come back one by one: so whoever says so has been heard of itself for that time.
fn is_gone(silence: Option<Duration>, steady: bool) -> bool {
    silence.is_none_or(|silence| silence >= GONE && steady)
}

/// What a state waits for. Addresses are the operator's.
fn missing(error: &DepotError) -> Missing {
    let thread = match error {
        DepotError::Away { .. } => STORE_AWAY,
        DepotError::Wrong { .. } => {
            "the layer store gives other files than were put there: it is asked again"
        }
        DepotError::Elsewhere { .. } => "its files are still on their way from another worker",
        DepotError::Unusable { .. } => {
            "what the layer store has of its files cannot be unpacked: it is tried again"
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_lost_when_it_alone_was_silent_for_long() {
        let second = Duration::from_secs(1);
        assert!(!is_gone(Some(Duration::ZERO), true));
        assert!(!is_gone(Some(GONE - second), true));
        assert!(is_gone(Some(GONE), true));
        assert!(!is_gone(Some(GONE), false), "so were we");
        assert!(is_gone(None, false), "nobody of that name comes back");
    }
}
