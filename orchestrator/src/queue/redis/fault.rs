//! What Redis answers instead of what it was asked, told in one sentence with the way out.

use redis::RedisError;

use crate::queue::QueueError;

/// Kinds that people can do something about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    Password,
    Rights(String),
    Memory,
    Replica,
    Loading,
    Moving,
    ClusterDown(String),
    Tls(String),
    Silent(String),
    Other(String),
}

impl Fault {
    pub(super) fn of(error: &RedisError) -> Fault {
        let said = error.to_string();
        match error.code() {
            Some("WRONGPASS" | "NOAUTH") => return Fault::Password,
            Some("NOPERM") => return Fault::Rights(said),
            Some("OOM") => return Fault::Memory,
            Some("READONLY") => return Fault::Replica,
            Some("LOADING") => return Fault::Loading,
            Some("ASK" | "TRYAGAIN") => return Fault::Moving,
            Some("CLUSTERDOWN") => return Fault::ClusterDown(said),
            _ => {}
        }
        match error.kind() {
            redis::ErrorKind::AuthenticationFailed => Fault::Password,
            redis::ErrorKind::Io if said.contains("certificate") => Fault::Tls(said),
            redis::ErrorKind::Io => Fault::Silent(said),
            _ if error.is_timeout() || error.is_connection_dropped() => Fault::Silent(said),
            _ => Fault::Other(said),
        }
    }

    pub(super) fn told(&self, address: &str) -> QueueError {
        let rest = match self {
            Fault::Password => {
                "refuses the user or password: set them in [queue] url (MAYFLY__QUEUE__URL)".into()
            }
            Fault::Rights(said) => format!(
                "does not let this user do it ({said}): allow it all commands on keys that begin with {{mayfly:"
            ),
            Fault::Memory => {
                "is out of memory: raise its maxmemory, or give it a machine with more".into()
            }
            Fault::Replica => "is a read-only replica: name its primary in [queue] url".into(),
            Fault::Loading => "is still reading its file after a start: wait".into(),
            Fault::Moving => {
                "is giving this installation's keys to another node of its cluster: wait".into()
            }
            Fault::ClusterDown(said) => format!(
                "is in a cluster that is down ({said}): see `redis-cli --cluster check` for what it lacks"
            ),
            Fault::Tls(said) => format!(
                "has a certificate that is not trusted ({said}): name its authority's file by SSL_CERT_FILE"
            ),
            Fault::Silent(said) => {
                format!("does not answer ({said}): see whether it runs and can be reached")
            }
            Fault::Other(said) => format!("refuses: {said}"),
        };
        QueueError(format!("the queue's Redis at {address} {rest}"))
    }
}
