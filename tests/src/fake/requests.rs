//! Requests that a fake platform makes.

use std::{net::SocketAddr, time::Duration};

use http_body_util::{BodyExt as _, Full};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The platforms wait so long for an answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Sends it and returns the answer's status; otherwise why there is none, in the platforms' words.
pub(crate) async fn post(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, String)],
    body: &[u8],
) -> Result<u16, &'static str> {
    let sent = tokio::time::timeout(PATIENCE, sent(address, path, headers, body));
    match sent.await {
        Ok(sent) => sent.ok_or("connection_failed"),
        Err(_) => Err("http_timeout"),
    }
}

#[allow(clippy::disallowed_methods)]
async fn sent(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, String)],
    body: &[u8],
) -> Option<u16> {
    let stream = TcpStream::connect(address).await.ok()?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    let connection = tokio::spawn(connection);
    let mut request = Request::post(path).header("host", "bot.example");
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let request = request.body(Full::new(Bytes::copy_from_slice(body)));
    let answer = sender.send_request(request.expect("a request")).await;
    let answer = answer.ok()?;
    let status = answer.status().as_u16();
    // An answer that is not whole is none.
    let whole = answer.into_body().collect().await.is_ok();
    connection.abort();
    whole.then_some(status)
}
