//! The queue that several processes share: Redis 6.2 or later, or Valkey.
//!
//! All of its state changes in one Lua script, loaded by its SHA and safe to repeat, so a command whose
//! answer was lost is sent again. All keys carry one hash tag, as Redis Cluster wants it. A process that is
//! not heard of for [`LEASE`] loses what it took.

mod fault;
pub mod speech;

use std::{fmt, sync::LazyLock, time::Duration};

use ::redis::{
    AsyncConnectionConfig, Client, Cmd, FromRedisValue, IntoConnectionInfo as _, RedisError,
    RedisResult, Script, Value,
    aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection},
    io::tcp::TcpSettings,
};
use async_trait::async_trait;
use mayfly_domain::AgentId;
use tokio::sync::OnceCell;

use self::{
    fault::Fault,
    speech::{Call, Speech},
};
use super::{BEAT, DEATHS, Length, Offer, Queue, QueueError, Room, Work};
use crate::worker::Identity;

/// How long a process that is not heard of keeps what it took.
pub const LEASE: Duration = Duration::from_secs(3 * BEAT.as_secs());
/// The oldest server this is made for. Blocking reads of fractions of a second came with 6.0.
const OLDEST: (u32, u32) = (6, 2);
/// Longest wait for a wake-up: the queue itself is the truth.
const POLL: Duration = Duration::from_secs(1);
/// Patience with one command, and with one connection.
const PATIENCE: Duration = Duration::from_secs(5);
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
    client: Client,
    commands: ConnectionManager,
    /// Blocking reads hold up everything else on their connection.
    blocking: tokio::sync::Mutex<Option<MultiplexedConnection>>,
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
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(1)
            .set_max_delay(Duration::from_millis(200))
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let address = client.get_connection_info().addr().to_string();
        let commands = client
            .get_connection_manager_lazy(config)
            .map_err(|error| Fault::of(&error).told(&address))?;
        Ok(Redis {
            client,
            commands,
            blocking: tokio::sync::Mutex::default(),
            keys: keys(installation),
            speech: Speech::new(identity),
            introduced: OnceCell::new(),
        })
    }

    fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    fn told(&self, error: &::redis::RedisError) -> QueueError {
        Fault::of(error).told(&self.address())
    }

    /// Runs the script; a second time where the connection broke, since the first may have been taken
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
        let mut connection = self.commands.clone();
        let first: RedisResult<Value> = script.invoke_async(&mut connection).await;
        let value = match first {
            Err(error) if error.is_io_error() || error.is_connection_dropped() => {
                script.invoke_async(&mut connection).await?
            }
            other => other?,
        };
        Ok(T::from_redis_value(value)?)
    }

    /// Looks who answers, and takes back what earlier starts of this worker held.
    async fn introduce(&self) -> Result<(), QueueError> {
        let mut connection = self.commands.clone();
        let info: String = ::redis::cmd("INFO")
            .arg("server")
            .query_async(&mut connection)
            .await
            .map_err(|error| self.told(&error))?;
        if let Some(version) = version(&info).filter(|version| *version < OLDEST) {
            return Err(QueueError(format!(
                "the queue's Redis at {} is version {}.{}: it has to be {}.{} or later",
                self.address(),
                version.0,
                version.1,
                OLDEST.0,
                OLDEST.1
            )));
        }
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
        let mut blocking = self.blocking.lock().await;
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
            None => read(&command, self.fresh().await?).await,
        };
        // A server closes what was idle for long: nobody waited while there was no place.
        if rung.as_ref().is_err_and(RedisError::is_connection_dropped) {
            rung = read(&command, self.fresh().await?).await;
        }
        *blocking = Some(rung.map_err(|error| self.told(&error))?);
        Ok(())
    }

    async fn fresh(&self) -> Result<MultiplexedConnection, QueueError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(POLL + PATIENCE));
        self.client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| self.told(&error))
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

fn version(info: &str) -> Option<(u32, u32)> {
    let line = info
        .lines()
        .find_map(|line| line.trim().strip_prefix("redis_version:"))?;
    let mut numbers = line.split('.').map(|part| part.parse().ok());
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
