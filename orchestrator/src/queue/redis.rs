//! The queue that several processes share: Redis 6.2 or later, or Valkey.
//!
//! All of its state changes in one Lua script, loaded by its SHA and safe to repeat, so a command whose
//! answer was lost is sent again. All keys carry one hash tag, so one node of a Redis Cluster has them ([`node`]). A process that is
//! not heard of for [`LEASE`] loses what it took.

mod fault;
mod node;
pub mod speech;

use std::{
    fmt,
    sync::{Arc, LazyLock},
    time::Duration,
};

use ::redis::{
    Client, Cmd, FromRedisValue, IntoConnectionInfo as _, RedisError, RedisResult, Script, Value,
    aio::MultiplexedConnection, io::tcp::TcpSettings,
};
use async_trait::async_trait;
use mayfly_domain::AgentId;
use tokio::sync::OnceCell;

use self::{
    fault::Fault,
    node::{Node, Nodes, is_gone},
    speech::{Call, Speech},
};
use super::{BEAT, DEATHS, Length, Offer, Queue, QueueError, ROUND, Rest, Room, TURN, Work};
use crate::worker::Identity;

/// How long a process that is not heard of keeps what it took.
pub const LEASE: Duration = Duration::from_secs(3 * BEAT.as_secs());
/// The oldest server this is made for. Blocking reads of fractions of a second came with 6.0.
const OLDEST: (u32, u32) = (6, 2);
/// Longest wait for a wake-up: the queue itself is the truth.
const POLL: Duration = Duration::from_secs(1);
/// Patience with one command, and with one connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// Nodes of a cluster that may send one call on.
const HOPS: u32 = 3;
/// Names of the script's keys, in its order.
const KEYS: [&str; 13] = [
    "work", "short", "long", "later", "taken", "owner", "held", "notes", "tags", "meta", "dead",
    WAKE_SHORT, WAKE_LONG,
];
const WAKE_SHORT: &str = "wake-short";
const WAKE_LONG: &str = "wake-long";

/// All of the queue's changes; see the file's head.
pub const SOURCE: &str = include_str!("redis/queue.lua");

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(SOURCE));

/// The script's keys, of one installation. Whoever waits is woken by the last two, for short ticks and for
/// long ones.
pub fn keys(installation: &str) -> [String; KEYS.len()] {
    KEYS.map(|name| format!("{{mayfly:{installation}}}:{name}"))
}

/// See the module.
pub struct Redis {
    nodes: Nodes,
    keys: [String; KEYS.len()],
    speech: Speech,
    introduced: OnceCell<()>,
}

impl fmt::Debug for Redis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Redis({})", self.address())
    }
}

impl Redis {
    /// The queue of an installation at `redis://` or `rediss://[USER][:PASSWORD@]HOST[:PORT][/DB]`, or
    /// `redis+unix:///PATH`. Connects when it is first used. Wants a Tokio runtime.
    pub fn open(url: &str, installation: &str, identity: Identity) -> Result<Redis, QueueError> {
        let client = client(url)?;
        let address = client.get_connection_info().addr().to_string();
        let node = Node::new(client).map_err(|error| Fault::of(&error).told(&address))?;
        Ok(Redis {
            nodes: Nodes::new(node),
            keys: keys(installation),
            speech: Speech::new(identity),
            introduced: OnceCell::new(),
        })
    }

    fn address(&self) -> String {
        self.nodes.now().to_string()
    }

    fn told(&self, error: &::redis::RedisError) -> QueueError {
        Fault::of(error).told(&self.address())
    }

    /// Runs the script, where its keys are; a second time where the connection broke, since the first may have been taken
    /// from a server that is gone.
    async fn call<T: FromRedisValue>(&self, call: &Call) -> Result<T, QueueError> {
        self.introduced.get_or_try_init(|| self.introduce()).await?;
        self.invoke(call).await.map_err(|error| self.told(&error))
    }

    async fn invoke<T: FromRedisValue>(&self, call: &Call) -> RedisResult<T> {
        let mut script = SCRIPT.prepare_invoke();
        for key in &self.keys {
            script.key(key);
        }
        for argument in call {
            script.arg(argument);
        }
        let (mut hops, mut again) = (0, false);
        let value = loop {
            let node = self.nodes.now();
            let mut connection = node.commands.clone();
            let answer: RedisResult<Value> = script.invoke_async(&mut connection).await;
            match answer {
                Err(error) if self.nodes.learn(&node, &error) && hops < HOPS => hops += 1,
                Err(error) if is_gone(&error) && !again => again = true,
                other => break other?,
            }
        };
        Ok(T::from_redis_value(value)?)
    }

    /// Looks who answers, and takes back what earlier starts of this worker held.
    async fn introduce(&self) -> Result<(), QueueError> {
        let mut connection = self.nodes.now().commands.clone();
        let info: String = ::redis::cmd("INFO")
            .arg("server")
            .query_async(&mut connection)
            .await
            .map_err(|error| self.told(&error))?;
        recent(&info, &self.address())?;
        self.invoke(&self.speech.arrive())
            .await
            .map_err(|error| self.told(&error))
    }

    async fn try_take(&self, room: &Room) -> Result<Result<Work, Duration>, QueueError> {
        let answer = self.call(&self.speech.take(room)).await?;
        let taken = self.speech.taken(answer).map_err(|_| {
            QueueError(format!(
                "the queue's Redis at {} holds what mayfly never writes",
                self.address()
            ))
        })?;
        Ok(taken.map_err(|due| due.map_or(POLL, |due| due.min(POLL))))
    }

    /// Until somebody rings, or this time is over.
    async fn wait(&self, room: &Room, at_most: Duration) -> Result<(), QueueError> {
        let node = self.nodes.now();
        let mut blocking = node.blocking.lock().await;
        let mut command = ::redis::cmd("BLPOP");
        let [.., short, long] = &self.keys;
        command.arg(short);
        if room.long {
            command.arg(long);
        }
        command.arg(at_most.as_secs_f64().max(0.01));
        // Dropped in the middle of a read it is of no more use.
        let mut rung = match blocking.take() {
            Some(connection) => read(&command, connection).await,
            None => read(&command, self.fresh(&node).await?).await,
        };
        // A server closes what was idle for long: nobody waited while there was no place.
        if rung.as_ref().is_err_and(RedisError::is_connection_dropped) {
            rung = read(&command, self.fresh(&node).await?).await;
        }
        match rung {
            Ok(connection) => *blocking = Some(connection),
            // Whoever asks next asks there.
            Err(error) if self.nodes.learn(&node, &error) => {}
            Err(error) => return Err(self.told(&error)),
        }
        Ok(())
    }

    async fn fresh(&self, node: &Arc<Node>) -> Result<MultiplexedConnection, QueueError> {
        node.connect().await.map_err(|error| {
            self.nodes.learn(node, &error);
            Fault::of(&error).told(&node.to_string())
        })
    }
}

#[async_trait]
impl Queue for Redis {
    async fn offer(&self, offers: &[Offer]) -> Result<(), QueueError> {
        for call in Speech::offer(offers) {
            self.call::<()>(&call).await?;
        }
        Ok(())
    }

    async fn take(&self, room: &Room) -> Result<Work, QueueError> {
        loop {
            match self.try_take(room).await? {
                Ok(work) => return Ok(work),
                Err(due) => self.wait(room, due).await?,
            }
        }
    }

    async fn done(&self, lane: AgentId, again: Option<Offer>) -> Result<(), QueueError> {
        match self.speech.done(lane, again.as_ref()) {
            Some(call) => self.call(&call).await,
            None => Ok(()),
        }
    }

    async fn beat(&self) -> Result<(), QueueError> {
        self.call(&self.speech.beat()).await
    }

    async fn leave(&self) -> Result<(), QueueError> {
        self.call(&self.speech.leave()).await
    }

    async fn place(&self, lane: AgentId) -> Result<Option<usize>, QueueError> {
        self.call(&speech::place(lane)).await
    }

    async fn dead(&self) -> Result<Vec<AgentId>, QueueError> {
        let lanes: Vec<String> = self.call(&speech::dead()).await?;
        Ok(lanes.iter().filter_map(|lane| lane.parse().ok()).collect())
    }

    async fn forgive(&self, lane: AgentId) -> Result<bool, QueueError> {
        self.call(&speech::forgive(lane)).await
    }

    async fn turn(&self) -> Result<bool, QueueError> {
        self.call(&speech::turn()).await
    }

    async fn rest(&self, rest: Rest) -> Result<(), QueueError> {
        self.call(&speech::rest(rest)).await
    }
}

/// Answers the connection, where that is of more use.
async fn read(
    command: &Cmd,
    mut connection: MultiplexedConnection,
) -> RedisResult<MultiplexedConnection> {
    let _: Value = command.query_async(&mut connection).await?;
    Ok(connection)
}

/// Connects to nothing yet.
pub(super) fn client(url: &str) -> Result<Client, QueueError> {
    // What a dead network has taken is missed after as long as two commands take.
    let tcp = TcpSettings::default().set_user_timeout(2 * PATIENCE);
    let info = url.into_connection_info();
    let client = info.and_then(|info| Client::open(info.set_tcp_settings(tcp)));
    client.map_err(|error| {
        // The address may hold a password.
        QueueError(format!(
            "the queue's url is none of redis://HOST:PORT/NUMBER, rediss://HOST:PORT/NUMBER or redis+unix:///PATH ({})",
            error.category()
        ))
    })
}

/// A server that can be used, as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// Where it answers.
    pub at: String,
    /// Its version.
    pub version: String,
    /// Bytes that it may take; 0 is no limit.
    pub most_memory: u64,
    /// What it does at that limit: `noeviction`, `allkeys-lru`, ...
    pub policy: String,
    /// Whether it has its keys again after a restart.
    pub append_only: bool,
}

/// Looks whether a start could use the server at this address, and why not. Changes nothing.
pub async fn inspect(url: &str) -> Result<Inspected, QueueError> {
    let client = client(url)?;
    let at = client.get_connection_info().addr().to_string();
    let told = |error: ::redis::RedisError| Fault::of(&error).told(&at);
    let node = Node::new(client).map_err(told)?;
    let mut connection = node.connect().await.map_err(told)?;
    let info: String = ::redis::cmd("INFO")
        .query_async(&mut connection)
        .await
        .map_err(told)?;
    recent(&info, &at)?;
    // A replica in a cluster sends on to its primary.
    let in_cluster = said(&info, "redis_mode") == Some("cluster");
    if said(&info, "role") == Some("slave") && !in_cluster {
        return Err(Fault::Replica.told(&at));
    }
    let text = |key| said(&info, key).unwrap_or_default().to_owned();
    Ok(Inspected {
        version: text("redis_version"),
        most_memory: text("maxmemory").parse().unwrap_or_default(),
        policy: text("maxmemory_policy"),
        append_only: text("aof_enabled") == "1",
        at,
    })
}

/// What a server's `INFO` says under this name.
fn said<'a>(info: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = info.lines().filter_map(|line| line.trim().split_once(':'));
    lines.find_map(|(name, value)| (name == key).then_some(value))
}

fn recent(info: &str, at: &str) -> Result<(), QueueError> {
    match version(info).filter(|version| *version < OLDEST) {
        None => Ok(()),
        Some((major, minor)) => Err(QueueError(format!(
            "the queue's Redis at {at} is version {major}.{minor}: it has to be {}.{} or later",
            OLDEST.0, OLDEST.1
        ))),
    }
}

fn version(info: &str) -> Option<(u32, u32)> {
    let mut numbers = said(info, "redis_version")?
        .split('.')
        .map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_what_the_server_tells() {
        let info = "# Server\r\nredis_version:6.0.16\r\nos:Linux\r\n";
        assert_eq!(version(info), Some((6, 0)));
        assert!(version(info).unwrap() < OLDEST);
        // Valkey tells the version it is compatible with under the same name.
        let info = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n";
        assert!(version(info).unwrap() >= OLDEST);
        assert_eq!(version("nothing"), None);
    }
}
