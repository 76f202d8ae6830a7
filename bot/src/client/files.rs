//! Differences and files over the same socket; a file's bytes are passed on as they come.

use std::io::{ErrorKind, Write};

use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request,
    body::{Bytes, Incoming},
    header,
};
use mayfly_orchestrator::view::{DiffView, GraphView, ListingView};

use super::{Answer, Client, ClientError, decoded, escaped, refusal};

/// Which states are compared.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    pub from: Option<&'a str>,
    pub to: Option<&'a str>,
}

impl Span<'_> {
    fn query(&self, more: &str) -> String {
        let named = [("from", self.from), ("to", self.to)];
        let given = named
            .iter()
            .filter_map(|(name, tick)| tick.map(|tick| format!("{name}={}", escaped(tick))));
        let mut parts: Vec<String> = given.collect();
        parts.push(more.to_owned());
        parts.join("&")
    }
}

/// What `cat` met.
#[derive(Debug)]
pub enum Passed {
    /// All bytes of a file.
    Whole,
    /// Whoever reads them has gone away.
    Unwanted,
    /// No file, but this.
    Other(ListingView),
}

impl Client {
    pub async fn diff(&self, agent: &str, span: Span<'_>, text: bool) -> Answer<DiffView> {
        let query = span.query(&format!("text={text}"));
        self.get(&format!("/v1/agents/{}/diff?{query}", escaped(agent)))
            .await
    }

    /// As `git diff` writes it.
    pub async fn patch(&self, agent: &str, span: Span<'_>) -> Answer<Bytes> {
        let query = span.query("format=unified");
        let path = format!("/v1/agents/{}/diff?{query}", escaped(agent));
        self.exchange(Method::GET, &path, None, &[]).await
    }

    pub async fn graph(&self, agent: &str) -> Answer<GraphView> {
        self.get(&format!("/v1/agents/{}/graph", escaped(agent)))
            .await
    }

    /// What lies at a path, page by page; without a tick, in the head.
    pub async fn files(
        &self,
        agent: &str,
        tick: Option<&str>,
        path: &[u8],
        recursive: bool,
    ) -> Answer<ListingView> {
        let path = files_path(agent, tick, path);
        let path = format!("{path}list=true&recursive={recursive}&limit=1000");
        let mut all: ListingView = self.get(&path).await?;
        while let Some(next) = all.next.take() {
            let next = format!("{path}&after={}", escaped(&next));
            let page: ListingView = self.get(&next).await?;
            all.entries.extend(page.entries);
            (all.next, all.more) = (page.next, page.more);
        }
        Ok(all)
    }

    /// Writes a file's bytes to `out`; `begun` tells whether any were.
    pub async fn cat(
        &self,
        agent: &str,
        tick: Option<&str>,
        path: &[u8],
        out: &mut (dyn Write + Send),
        begun: &mut bool,
    ) -> Answer<Passed> {
        let request = Request::get(files_path(agent, tick, path))
            .header(header::HOST, "localhost")
            .header(header::CONNECTION, "close")
            .body(Full::<Bytes>::default())
            .map_err(|error| ClientError::Strange(error.to_string()))?;
        self.exchanged(request, async |response| {
            pass_on(response, out, begun).await
        })
        .await
    }
}

async fn pass_on(
    response: hyper::Response<Incoming>,
    out: &mut (dyn Write + Send),
    begun: &mut bool,
) -> Result<Answer<Passed>, hyper::Error> {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_file = kind.is_some_and(|kind| kind == "application/octet-stream");
    let mut body = response.into_body();
    if !status.is_success() || !is_file {
        let bytes = body.collect().await?.to_bytes();
        return Ok(match status.is_success() {
            true => decoded(&bytes).map(Passed::Other),
            false => Err(refusal(status, &bytes)),
        });
    }
    while let Some(frame) = body.frame().await {
        let Ok(bytes) = frame?.into_data() else {
            continue;
        };
        *begun = true;
        match out.write_all(&bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                return Ok(Ok(Passed::Unwanted));
            }
            Err(error) => return Ok(Err(ClientError::Output(error))),
        }
    }
    Ok(Ok(Passed::Whole))
}

/// Up to and with the `?` of a query.
fn files_path(agent: &str, tick: Option<&str>, path: &[u8]) -> String {
    let escape = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'/' => {
            char::from(*byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    let path: String = path.iter().map(escape).collect();
    let tick = tick.map_or_else(String::new, |tick| format!("tick={}&", escaped(tick)));
    let agent = escaped(agent);
    format!("/v1/agents/{agent}/files{path}?{tick}")
}
