//! The API's client on the unix socket: every verb of the command line goes through it.

use std::{io, path::PathBuf, time::Duration};

use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, StatusCode, body::Bytes, header};
use mayfly_orchestrator::backup::{BackupView, inspect::LayersView};
use mayfly_orchestrator::snapshot::oci::Exported;
use mayfly_orchestrator::view::{
    AgentView, GcView, ImportView, MessageView, Page, PairedView, PairingView, ReadyView,
    RollbackView, StopView, TickDetail, TickView,
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::net::UnixStream;

use crate::{
    exit::{Exit, Failure},
    http::{
        BackupBody, ExportBody, ImportBody, LayersBody, Problem,
        wire::{
            CreateBody, EmptyBody, ForkBody, GcBody, PairBody, RollbackBody, SendBody, StopBody,
            UnpairBody,
        },
    },
    page::LinkView,
};

pub mod blobs;
mod connection;
pub mod files;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server says no.
    #[error("{}", .0.detail)]
    Problem(Problem),
    /// Nobody answers, or the server went away before the answer was whole.
    #[error("the server at {} went away: {reason}", socket.display())]
    Gone {
        socket: PathBuf,
        reason: String,
        /// It may have read the request, and carried it out.
        asked: bool,
    },
    /// An answer that this version does not understand.
    #[error("the server's answer is not understood: {0}; is it of another version?")]
    Strange(String),
    /// What was to be sent cannot be read.
    #[error("the file was not sent: {0}")]
    Input(String),
    /// What came cannot be passed on.
    #[error("standard output cannot be written: {0}")]
    Output(io::Error),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let exit = match &error {
            ClientError::Problem(problem) => problem.exit(),
            ClientError::Input(_) => Exit::Refused,
            ClientError::Gone { .. } => Exit::Unavailable,
            ClientError::Strange(_) | ClientError::Output(_) => Exit::Internal,
        };
        Failure {
            exit,
            server_gone: matches!(error, ClientError::Gone { .. }),
            sentence: error.to_string(),
        }
    }
}

/// For a change that carries no key: once it may have been asked for it is not asked for again.
/// `look` says where its outcome can be seen.
pub(crate) fn once<T>(answer: Answer<T>, look: &str) -> Result<T, Failure> {
    match answer {
        Err(error @ ClientError::Gone { asked: true, .. }) => Err(Failure::new(
            Exit::Unknown,
            format!("{error}; whether it did what was asked is not known: see {look}"),
        )),
        other => Ok(other?),
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
}

type Answer<T> = Result<T, ClientError>;

impl Client {
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Client {
            socket: socket.into(),
        }
    }

    /// Whether somebody listens; the error says why nobody does.
    pub async fn probe(&self) -> io::Result<()> {
        UnixStream::connect(&self.socket).await.map(drop)
    }

    pub async fn create(&self, body: &CreateBody) -> Answer<AgentView> {
        self.post("/v1/agents", body).await
    }

    /// All of them, page by page.
    pub async fn agents(&self) -> Answer<Vec<AgentView>> {
        self.pages("/v1/agents").await
    }

    pub async fn agent(&self, agent: &str) -> Answer<AgentView> {
        self.get(&format!("/v1/agents/{}", escaped(agent))).await
    }

    pub async fn remove(&self, agent: &str, force: bool) -> Answer<()> {
        let path = format!("/v1/agents/{}?force={force}", escaped(agent));
        self.exchange(Method::DELETE, &path, None, &[])
            .await
            .map(drop)
    }

    /// Accepted once per `key`.
    pub async fn send(&self, agent: &str, body: &SendBody, key: &str) -> Answer<MessageView> {
        let path = format!("/v1/agents/{}/messages", escaped(agent));
        let headers = [("idempotency-key", key)];
        let bytes = self
            .exchange(Method::POST, &path, Some(encoded(body)), &headers)
            .await?;
        decoded(&bytes)
    }

    /// The message's outcome, or what is known when `wait` is over.
    pub async fn message(&self, message: &str, wait: Duration) -> Answer<MessageView> {
        let path = format!("/v1/messages/{}?wait={}", escaped(message), wait.as_secs());
        self.get(&path).await
    }

    pub async fn ticks(&self, agent: &str) -> Answer<Vec<TickView>> {
        let path = format!("/v1/agents/{}/ticks", escaped(agent));
        self.pages(&path).await
    }

    pub async fn tick(&self, tick: &str) -> Answer<TickDetail> {
        self.get(&format!("/v1/ticks/{}", escaped(tick))).await
    }

    pub async fn rollback(&self, agent: &str, to: Option<String>) -> Answer<RollbackView> {
        let path = format!("/v1/agents/{}/rollback", escaped(agent));
        self.post(&path, &RollbackBody { to }).await
    }

    pub async fn fork(&self, agent: &str, at: Option<String>) -> Answer<AgentView> {
        let path = format!("/v1/agents/{}/fork", escaped(agent));
        self.post(&path, &ForkBody { at }).await
    }

    pub async fn stop(&self, agent: &str, all: bool) -> Answer<StopView> {
        let path = format!("/v1/agents/{}/stop", escaped(agent));
        self.post(&path, &StopBody { all }).await
    }

    pub async fn parked(&self) -> Answer<Vec<MessageView>> {
        self.get("/v1/parked").await
    }

    pub async fn backup(&self, body: &BackupBody) -> Answer<BackupView> {
        self.post("/v1/backup", body).await
    }

    pub async fn pair(&self, body: &PairBody) -> Answer<PairingView> {
        self.post("/v1/pairings", body).await
    }

    pub async fn paired(&self) -> Answer<Vec<PairedView>> {
        self.get("/v1/pairings").await
    }

    pub async fn unpair(&self, body: &UnpairBody) -> Answer<PairedView> {
        self.post("/v1/pairings/remove", body).await
    }

    pub(crate) async fn page_link(&self) -> Answer<LinkView> {
        self.post("/v1/page-link", &EmptyBody {}).await
    }

    pub async fn export(&self, body: &ExportBody) -> Answer<Exported> {
        self.post("/v1/export", body).await
    }

    pub async fn import(&self, body: &ImportBody) -> Answer<ImportView> {
        self.post("/v1/import", body).await
    }

    pub async fn layers(&self, body: &LayersBody) -> Answer<LayersView> {
        self.post("/v1/layers", body).await
    }

    pub async fn retry(&self, message: &str) -> Answer<MessageView> {
        let path = format!("/v1/messages/{}/retry", escaped(message));
        self.post(&path, &EmptyBody {}).await
    }

    pub async fn gc(&self, body: &GcBody) -> Answer<GcView> {
        self.post("/v1/gc", body).await
    }

    /// Whether messages would be run; being not ready is an answer too.
    pub async fn ready(&self) -> Answer<ReadyView> {
        let (_, bytes) = self.ask(Method::GET, "/readyz", None, &[]).await?;
        decoded(&bytes)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Answer<T> {
        decoded(&self.exchange(Method::GET, path, None, &[]).await?)
    }

    async fn pages<T: DeserializeOwned>(&self, path: &str) -> Answer<Vec<T>> {
        let mut all = Vec::new();
        let mut after = String::new();
        loop {
            let page: Page<T> = self.get(&format!("{path}?limit=1000{after}")).await?;
            all.extend(page.items);
            match page.next {
                Some(next) => after = format!("&after={}", escaped(&next)),
                None => return Ok(all),
            }
        }
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Answer<T> {
        let body = Some(encoded(body));
        decoded(&self.exchange(Method::POST, path, body, &[]).await?)
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        headers: &[(&str, &str)],
    ) -> Answer<Bytes> {
        let (status, bytes) = self.ask(method, path, body, headers).await?;
        match status.is_success() {
            true => Ok(bytes),
            false => Err(refusal(status, &bytes)),
        }
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        headers: &[(&str, &str)],
    ) -> Answer<(StatusCode, Bytes)> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONNECTION, "close");
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::new(body.unwrap_or_default()))
            .map_err(|error| ClientError::Strange(error.to_string()))?;
        self.exchanged(request, async |response| {
            let status = response.status();
            Ok(Ok((
                status,
                response.into_body().collect().await?.to_bytes(),
            )))
        })
        .await
    }
}

fn refusal(status: StatusCode, bytes: &Bytes) -> ClientError {
    match serde_json::from_slice(bytes) {
        Ok(problem) => ClientError::Problem(problem),
        Err(_) => ClientError::Strange(format!("status {status}")),
    }
}

fn encoded(body: &impl Serialize) -> Bytes {
    serde_json::to_vec(body).expect("plain data").into()
}

fn decoded<T: DeserializeOwned>(bytes: &Bytes) -> Answer<T> {
    serde_json::from_slice(bytes).map_err(|error| ClientError::Strange(error.to_string()))
}

/// As one segment of a path or one value of a query (RFC 3986).
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    match text {
        "" => "%20".to_owned(),
        text => text.bytes().map(escape).collect(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn what_a_person_types_stays_one_segment() {
        assert_eq!(escaped("1a2b3c4d"), "1a2b3c4d");
        assert_eq!(escaped("../x?y#z"), "%2E%2E%2Fx%3Fy%23z");
        assert_eq!(escaped(".."), "%2E%2E");
        assert_eq!(escaped("ü"), "%C3%BC");
        assert_eq!(escaped(""), "%20");
    }

    async fn answered(answer: &str) -> Failure {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let client = Client::new(&socket);
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let (result, ()) = tokio::join!(client.agents(), serve);
        result.unwrap_err().into()
    }

    #[tokio::test]
    async fn a_problem_keeps_its_sentence_and_code() {
        let body = r#"{"type":"urn:mayfly:conflict","title":"x","status":409,"detail":"no way"}"#;
        let length = body.len();
        let answer = format!("HTTP/1.1 409 Conflict\r\ncontent-length: {length}\r\n\r\n{body}");
        let failure = answered(&answer).await;
        assert_eq!(
            (failure.exit, failure.to_string().as_str()),
            (Exit::Refused, "no way")
        );
    }

    #[tokio::test]
    async fn a_server_that_goes_away_in_an_answer_is_told_apart() {
        let failure = answered("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n[").await;
        assert!(failure.server_gone, "{failure}");
        let none = Client::new("/nonexistent/s").agents().await.unwrap_err();
        assert!(Failure::from(none).server_gone);
    }
}
