//! The lazy, self-healing connection: an engine that is down now may be up at the next call.

use std::{error::Error as StdError, time::Duration};

use bollard::{API_DEFAULT_VERSION, ClientVersion, Docker as Client, errors::Error};
use tokio::sync::Mutex;

use super::super::BackendError;

/// Oldest engine whose answers are relied on (Docker 19.03).
const OLDEST: ClientVersion = ClientVersion {
    major_version: 1,
    minor_version: 40,
};

/// Longest wait for what an engine says of itself: whoever wants to remove something asks several times in the minute
/// that this has.
pub(super) const ANSWER: Duration = Duration::from_secs(15);
/// Longest wait for any other answer, if nothing else is said; `bollard`'s own.
const LONGEST: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(super) struct Connection {
    address: String,
    client: Mutex<Option<Client>>,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "it speaks API {engine_oldest} to {engine_newest}, Mayfly {} to {}",
    OLDEST,
    API_DEFAULT_VERSION
)]
struct NoCommonVersion {
    engine_oldest: String,
    engine_newest: String,
}

impl Connection {
    pub(super) fn new(host: Option<String>) -> Self {
        Connection {
            address: host.unwrap_or_else(|| "unix:///var/run/docker.sock".to_owned()),
            client: Mutex::new(None),
        }
    }

    /// A client whose version was negotiated.
    pub(super) async fn client(&self) -> Result<Client, BackendError> {
        let mut slot = self.client.lock().await;
        if let Some(client) = &*slot {
            return Ok(client.clone());
        }
        let fresh = Client::connect_with_host(&self.address)
            .map_err(|error| self.reached(error, "open", &self.address))?;
        let failed = |error| self.reached(error, "agree on a version with", &self.address);
        let client = fresh
            .with_timeout(ANSWER)
            .negotiate_version()
            .await
            .map_err(failed)?;
        let told = client.version().await.map_err(failed)?;
        let oldest = told.min_api_version.unwrap_or_default();
        let ours = client.client_version();
        if ours < OLDEST || parse(&oldest).is_some_and(|oldest| oldest > ours) {
            return Err(BackendError::Failed {
                action: "agree on a version with",
                name: self.address.clone(),
                source: Box::new(NoCommonVersion {
                    engine_oldest: oldest,
                    engine_newest: told.api_version.unwrap_or_default(),
                }),
            });
        }
        let client = pinned(client, ours).with_timeout(LONGEST);
        *slot = Some(client.clone());
        Ok(client)
    }

    /// Forgets the client: the engine that comes back may be another version.
    pub(super) async fn forget(&self) {
        self.client.lock().await.take();
    }

    /// Sorts an error: nobody answered, or somebody answered no.
    pub(super) fn reached(&self, error: Error, action: &'static str, name: &str) -> BackendError {
        if is_down(&error) {
            return BackendError::Down {
                address: self.address.clone(),
                source: cause(&error).into(),
            };
        }
        BackendError::Failed {
            action,
            name: name.to_owned(),
            source: Box::new(error),
        }
    }
}

/// What the system said, without the names of the layers that passed it on.
fn cause(error: &Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Puts the agreed version into every path. `bollard` 0.21 negotiates and then sends none, so that
/// an engine answers in its newest one, whatever that is.
fn pinned(client: Client, version: ClientVersion) -> Client {
    client.with_request_modifier(move |mut request| {
        let uri = request.uri();
        if let Some(path) = uri.path_and_query().map(|path| path.as_str())
            && !path.starts_with("/v1.")
        {
            let text = uri.to_string();
            let origin = text.strip_suffix(path).unwrap_or_default();
            if let Ok(pinned) = format!("{origin}/v{version}{path}").parse() {
                *request.uri_mut() = pinned;
            }
        }
        request
    })
}

fn parse(version: &str) -> Option<ClientVersion> {
    let (major, minor) = version.split_once('.')?;
    Some(ClientVersion {
        major_version: major.parse().ok()?,
        minor_version: minor.parse().ok()?,
    })
}

/// The status the engine answered with, if it answered.
pub(super) fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

fn is_down(error: &Error) -> bool {
    match error {
        Error::SocketNotFoundError(_)
        | Error::RequestTimeoutError
        | Error::HyperLegacyError { .. }
        | Error::HyperResponseError { .. } => true,
        other => {
            let mut cause: Option<&(dyn StdError + 'static)> = Some(other);
            while let Some(error) = cause {
                if error.is::<std::io::Error>() {
                    return true;
                }
                cause = error.source();
            }
            false
        }
    }
}
