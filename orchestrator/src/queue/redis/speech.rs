//! What one process says to the script, and what it hears: the calls with their arguments, and which lanes
//! it has taken by which token. No connection.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use mayfly_domain::AgentId;
use redis::{FromRedisValue as _, Value};

use super::{DEATHS, LEASE, Length, Offer, ROUND, Rest, Room, TURN, Work};
use crate::worker::Identity;

/// The arguments of one call.
pub type Call = Vec<String>;

/// Lanes offered in one call.
const AT_ONCE: usize = 200;

/// See the module.
#[derive(Debug)]
pub struct Speech {
    identity: Identity,
    next_token: AtomicU64,
    /// What this process took, with the token it took it by.
    taken: Mutex<HashMap<AgentId, String>>,
}

/// What was heard is nothing that we ever write.
#[derive(Debug)]
pub struct Strange;

impl Speech {
    /// Of one start of a worker.
    pub fn new(identity: Identity) -> Speech {
        Speech {
            identity,
            next_token: AtomicU64::default(),
            taken: Mutex::default(),
        }
    }

    /// Said before anything else: earlier starts died with what they hold.
    pub fn arrive(&self) -> Call {
        let Identity { id, epoch } = &self.identity;
        call(["arrive", id, &epoch.to_string(), &DEATHS.to_string()])
    }

    /// These lanes have work.
    pub fn offer(offers: &[Offer]) -> impl Iterator<Item = Call> {
        offers.chunks(AT_ONCE).map(|offers| {
            let told = offers.iter().flat_map(arguments);
            std::iter::once("offer".to_owned()).chain(told).collect()
        })
    }

    /// A lane is wanted; [`Speech::taken`] hears the answer.
    pub fn take(&self, room: &Room) -> Call {
        let long = if room.long { "long" } else { "short" };
        let per_user = room.per_user.unwrap_or(0).to_string();
        let mut call = call([
            "take",
            &self.token(),
            &lease(),
            &DEATHS.to_string(),
            long,
            &per_user,
        ]);
        let limits: BTreeMap<_, _> = room.per_profile.iter().collect();
        for (profile, most) in limits {
            call.extend([profile.clone(), most.to_string()]);
        }
        call
    }

    /// The lane; else when something will be due, if that is known.
    pub fn taken(&self, answer: Value) -> Result<Result<Work, Option<Duration>>, Strange> {
        let work = match answer {
            Value::Nil => return Ok(Err(None)),
            Value::Int(ms) => {
                let due = Duration::from_millis(u64::try_from(ms).unwrap_or(0));
                return Ok(Err(Some(due)));
            }
            other => String::from_redis_value(other)
                .ok()
                .and_then(|text| held(&text)),
        };
        let work = work.ok_or(Strange)?;
        self.tokens().insert(work.lane, self.token());
        self.next_token.fetch_add(1, Ordering::Relaxed);
        Ok(Ok(work))
    }

    /// A lane is given back; none where it was not taken. One that then cannot be given back comes back
    /// when its time is over.
    pub fn done(&self, lane: AgentId, again: Option<&Offer>) -> Option<Call> {
        let token = self.tokens().remove(&lane)?;
        let mut call = call(["done", &lane.to_string(), &token]);
        if let Some([_, work, delay]) = again.map(arguments) {
            call.extend([work, delay]);
        }
        Some(call)
    }

    /// This process still works on what it took.
    pub fn beat(&self) -> Call {
        let tokens = self.tokens();
        let held = tokens
            .iter()
            .flat_map(|(lane, token)| [lane.to_string(), token.clone()]);
        ["beat".to_owned(), lease()]
            .into_iter()
            .chain(held)
            .collect()
    }

    /// What a take was answered that nobody heard is given back.
    pub fn leave(&self) -> Call {
        call(["leave", &self.token()])
    }

    /// By what the next lane is taken: the same until one was.
    fn token(&self) -> String {
        let Identity { id, epoch } = &self.identity;
        let number = self.next_token.load(Ordering::Relaxed);
        format!("{id}:{epoch}:{number}")
    }

    fn tokens(&self) -> MutexGuard<'_, HashMap<AgentId, String>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a lane stands.
pub fn place(lane: AgentId) -> Call {
    call(["place", &lane.to_string()])
}

/// Which lanes are put aside.
pub fn dead() -> Call {
    call(["dead"])
}

/// A lane that was put aside may be offered again.
pub fn forgive(lane: AgentId) -> Call {
    call(["forgive", &lane.to_string()])
}

/// Whether it is the caller's turn to offer all lanes.
pub fn turn() -> Call {
    call(["turn", &ms(TURN), &ms(TURN.max(ROUND))])
}

/// Nobody gets that turn for so long.
pub fn rest(rest: Rest) -> Call {
    call(["rest", &ms(rest.duration())])
}

fn call<const N: usize>(arguments: [&str; N]) -> Call {
    arguments.map(str::to_owned).to_vec()
}

fn lease() -> String {
    ms(LEASE)
}

fn ms(duration: Duration) -> String {
    duration.as_millis().to_string()
}

/// Lane, work and delay in milliseconds.
fn arguments(offer: &Offer) -> [String; 3] {
    let Offer { work, delay } = offer;
    [work.lane.to_string(), written(work), ms(*delay)]
}

/// As the script reads it; a profile's name has no line break.
fn written(work: &Work) -> String {
    let length = match work.length {
        Length::Short => 's',
        Length::Long => 'l',
    };
    format!("{length}{}\n{}", work.profile, work.user)
}

/// What the script answers: the lane, then [`written`].
fn held(text: &str) -> Option<Work> {
    let (lane, work) = text.split_once('\n')?;
    let (kind, user) = work.split_once('\n')?;
    let length = match kind.chars().next()? {
        's' => Length::Short,
        'l' => Length::Long,
        _ => return None,
    };
    Some(Work {
        lane: lane.parse().ok()?,
        user: user.to_owned(),
        profile: kind[1..].to_owned(),
        length,
    })
}
