//! An engine of canned answers, for what a healthy one never says.

use std::{
    collections::VecDeque,
    io::{Read, Write},
    net::TcpListener,
    sync::{Arc, Mutex},
    thread,
};

/// What is in the list of answers for none at all.
pub(crate) const SILENCE: (u16, &str) = (0, "");

/// Answers `GET /version` with a range of versions and everything else from a list.
pub(crate) struct Daemon {
    pub(crate) address: String,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Daemon {
    pub(crate) fn new(versions: (&str, &str), answers: &[(u16, &str)]) -> Daemon {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("tcp://{}", listener.local_addr().expect("an address"));
        let version = format!(
            r#"{{"Version":"0","ApiVersion":"{}","MinAPIVersion":"{}"}}"#,
            versions.1, versions.0
        );
        let mut answers: VecDeque<(u16, String)> = answers
            .iter()
            .map(|(status, text)| (*status, format!(r#"{{"message":"{text}"}}"#)))
            .collect();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let log = heard.clone();
        thread::spawn(move || {
            let mut waiting = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let mut request = Vec::new();
                while !request.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
                    let mut bytes = [0; 1024];
                    match stream.read(&mut bytes) {
                        Ok(0) | Err(_) => break,
                        Ok(size) => request.extend_from_slice(&bytes[..size]),
                    }
                }
                let request = String::from_utf8_lossy(&request).into_owned();
                let line = request.lines().next().unwrap_or_default().to_owned();
                let (status, body) = if line.contains("/version") {
                    (200, version.clone())
                } else {
                    log.lock().expect("a log").push(line);
                    answers.pop_front().unwrap_or((404, "{}".to_owned()))
                };
                if status == SILENCE.0 {
                    waiting.push(stream);
                    continue;
                }
                write!(
                    stream,
                    "HTTP/1.1 {status} x\r\nContent-Type: application/json\r\n\
                     Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                )
                .ok();
            }
        });
        Daemon { address, heard }
    }

    /// Request lines but those for the version.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.lock().expect("a log").clone()
    }
}
