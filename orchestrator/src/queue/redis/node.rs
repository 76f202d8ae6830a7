//! The server that has the queue's keys: the configured one, or in a Redis Cluster the node that one names. All
//! keys are in one slot, so there is one such node at a time.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, RedisError, RedisResult,
    ServerErrorKind,
    aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection},
};
use tokio::sync::Mutex;

use super::{PATIENCE, POLL};

/// See the module; connects when it is first used.
pub(super) struct Node {
    client: Client,
    pub(super) commands: ConnectionManager,
    /// Blocking reads hold up everything else on their connection.
    pub(super) blocking: Mutex<Option<MultiplexedConnection>>,
}

impl Node {
    /// Wants a Tokio runtime.
    pub(super) fn new(client: Client) -> RedisResult<Node> {
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(1)
            .set_max_delay(Duration::from_millis(200))
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        Ok(Node {
            commands: client.get_connection_manager_lazy(config)?,
            client,
            blocking: Mutex::default(),
        })
    }

    /// Another node of the same cluster; whoever does not know its own name leaves it out.
    fn sibling(&self, told: &str) -> RedisResult<Node> {
        let info = self.client.get_connection_info().clone();
        let invalid = || RedisError::from((ErrorKind::Client, "a node's address", told.to_owned()));
        let (name, port) = told.rsplit_once(':').ok_or_else(invalid)?;
        let port = port.parse().map_err(|_| invalid())?;
        let name = name.trim_matches(['[', ']']);
        let named = |known: &str| match name {
            "" => known.to_owned(),
            name => name.to_owned(),
        };
        let address = match info.addr().clone() {
            ConnectionAddr::TcpTls {
                host,
                insecure,
                tls_params,
                ..
            } => ConnectionAddr::TcpTls {
                host: named(&host),
                port,
                insecure,
                tls_params,
            },
            ConnectionAddr::Tcp(host, _) => ConnectionAddr::Tcp(named(&host), port),
            _ => ConnectionAddr::Tcp(named("127.0.0.1"), port),
        };
        Node::new(Client::open(info.set_addr(address))?)
    }

    pub(super) async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(POLL + PATIENCE));
        self.client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.get_connection_info().addr().fmt(f)
    }
}

/// Which node is asked.
pub(super) struct Nodes {
    configured: Arc<Node>,
    asked: RwLock<Arc<Node>>,
}

impl Nodes {
    /// The configured one.
    pub(super) fn new(configured: Node) -> Nodes {
        let configured = Arc::new(configured);
        Nodes {
            asked: RwLock::new(Arc::clone(&configured)),
            configured,
        }
    }

    /// Who is asked now.
    pub(super) fn now(&self) -> Arc<Node> {
        let asked = self.asked.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&asked)
    }

    /// A node has answered so. True where another one is to be asked the same: it has the keys now. One that does
    /// not answer any more may have lost them to another, which the configured one knows.
    pub(super) fn learn(&self, from: &Arc<Node>, error: &RedisError) -> bool {
        let moved = error.kind() == ErrorKind::Server(ServerErrorKind::Moved);
        let next = match (moved, error.redirect_node()) {
            (true, Some((told, _))) => from.sibling(told).ok().map(Arc::new),
            _ if is_gone(error) => Some(Arc::clone(&self.configured)),
            _ => None,
        };
        let Some(next) = next else { return false };
        let mut asked = self.asked.write().unwrap_or_else(PoisonError::into_inner);
        // Else another task has learned it.
        if Arc::ptr_eq(&asked, from) {
            if moved {
                tracing::info!(node = %next, "a node of a Redis Cluster has the queue's keys");
            }
            *asked = next;
        }
        moved
    }
}

/// Whether nobody was there.
pub(super) fn is_gone(error: &RedisError) -> bool {
    error.is_io_error() || error.is_connection_dropped()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(url: &str) -> Node {
        Node::new(Client::open(url).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn a_sibling_is_reached_as_the_configured_one_is() {
        for (url, told, expected) in [
            ("redis://a:6379", "b:6380", "b:6380"),
            ("redis://a:6379", ":6380", "a:6380"),
            ("redis://me:secret@a:6379", "10.0.0.2:7000", "10.0.0.2:7000"),
        ] {
            let sibling = node(url).sibling(told).unwrap();
            assert_eq!(sibling.to_string(), expected, "{url} {told}");
        }
        assert!(node("redis://a:6379").sibling("nonsense").is_err());
    }
}
