//! Requests as bytes on a connection, so that they can be wrong in every way.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use serde_json::Value;

/// Longest wait for a byte of an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// One answer, read to the end of its connection.
#[derive(Debug)]
pub struct Answer {
    /// 0 if the connection ended without an answer.
    pub status: u16,
    /// Names in small letters.
    pub headers: Vec<(String, String)>,
    /// Without the head; chunks are not put together.
    pub body: String,
}

impl Answer {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {:?}", self.status, self.body))
    }

    /// The sentence of a typed problem of this status and kind; anything else fails the test.
    pub fn problem(&self, status: u16, kind: &str) -> String {
        assert_eq!(self.status, status, "{}", self.body);
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{}",
            self.body
        );
        let problem = self.json();
        assert_eq!(problem["type"], format!("urn:mayfly:{kind}"), "{problem}");
        assert_eq!(problem["status"], status, "{problem}");
        assert!(problem["title"].is_string(), "{problem}");
        problem["detail"].as_str().expect("a sentence").to_owned()
    }
}

/// A request on the socket of a data dir.
pub fn on_socket(data_dir: &Path, request: &[u8]) -> Answer {
    let stream = UnixStream::connect(data_dir.join("mayfly.sock")).expect("a server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    exchange(stream, request)
}

/// A request on TCP.
pub fn on_tcp(address: &str, request: &[u8]) -> Answer {
    let stream = TcpStream::connect(address).expect("a server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    exchange(stream, request)
}

/// `head` is request line and headers without `Host`, `Connection` and length; lines end in `\n`.
pub fn request(head: &str, body: &[u8]) -> Vec<u8> {
    let (line, headers) = head.split_once('\n').unwrap_or((head, ""));
    let named = |line: &str| line.to_ascii_lowercase().starts_with("host:");
    let host = match headers.lines().any(named) {
        true => "",
        false => "host: localhost\n",
    };
    let length = body.len();
    let text = format!(
        "{line} HTTP/1.1\n{host}connection: close\ncontent-length: {length}\n{}\n",
        headers
            .lines()
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    );
    let mut bytes = text.replace('\n', "\r\n").into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// A request with a JSON body.
pub fn post(path: &str, body: &str) -> Vec<u8> {
    request(
        &format!("POST {path}\ncontent-type: application/json"),
        body.as_bytes(),
    )
}

/// A request without a body.
pub fn get(path: &str) -> Vec<u8> {
    request(&format!("GET {path}"), b"")
}

/// Sends and reads to the end. A peer that answers before it has read everything is heard.
pub fn exchange<S: Read + Write>(mut stream: S, request: &[u8]) -> Answer {
    let _ = stream.write_all(request);
    read(stream)
}

/// Reads an answer to the connection's end.
pub fn read(mut stream: impl Read) -> Answer {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    }
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let mut lines = head.lines();
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    Answer {
        status: status.unwrap_or(0),
        headers: lines.filter_map(header).collect(),
        body: body.to_owned(),
    }
}
