//! An S3 server that others wrote (moto), of the test's own; what it holds is gone with it.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use mayfly_orchestrator::depot::StoreConfig;
use tempfile::TempDir;

/// How long a start may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Its one bucket.
const BUCKET: &str = "mayfly";
/// It asks whose a request is, and takes the answer on trust.
const SIGNED: &str = "AWS4-HMAC-SHA256 Credential=id/20261130/us-east-1/s3/aws4_request, \
                      SignedHeaders=host, Signature=00";

/// See the module.
#[derive(Debug)]
pub struct S3Server {
    address: String,
    process: Child,
    _folder: TempDir,
}

impl S3Server {
    /// Starts one with an empty bucket.
    pub fn start() -> S3Server {
        let install = Path::new(env!("CARGO_MANIFEST_DIR")).join("store/install");
        let output = Command::new(&install).output().expect("it starts");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {told}", install.display());
        let venv = String::from_utf8(output.stdout).expect("a path");
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let folder = TempDir::with_prefix("mayfly-s3").expect("a folder can be made");
        let log = std::fs::File::create(folder.path().join("log")).expect("a log");
        let process = Command::new(format!("{}/bin/moto_server", venv.trim()))
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn();
        let mut server = S3Server {
            address: format!("127.0.0.1:{port}"),
            process: process.expect("moto_server is installed"),
            _folder: folder,
        };
        let began = Instant::now();
        while server.try_request("PUT", "", b"").is_err() {
            let ended = server.process.try_wait();
            assert!(
                matches!(ended, Ok(None)) && began.elapsed() < PATIENCE,
                "moto does not start: {}",
                std::fs::read_to_string(server._folder.path().join("log")).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        server
    }

    /// `127.0.0.1:PORT`
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A configuration that reaches it by this address: its own, or that of something before it.
    pub fn config(&self, address: &str) -> StoreConfig {
        StoreConfig {
            url: format!("s3://{BUCKET}/some/prefix"),
            endpoint: format!("http://{address}"),
            access_key_id: "id".to_owned(),
            secret_access_key: "secret".to_owned(),
            ..StoreConfig::default()
        }
    }

    /// An object's bytes, by its name below the prefix.
    pub fn get(&self, name: &str) -> Option<Vec<u8>> {
        let (status, body) = self.request("GET", &path(name), b"");
        (status == 200).then_some(body)
    }

    /// Puts other bytes there.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        assert_eq!(self.request("PUT", &path(name), bytes).0, 200);
    }

    /// Takes it away.
    pub fn delete(&self, name: &str) {
        assert_eq!(self.request("DELETE", &path(name), b"").0, 204);
    }

    /// All names below the prefix, in order.
    pub fn names(&self) -> Vec<String> {
        let (status, body) = self.request("GET", "?list-type=2&prefix=some/prefix/", b"");
        assert_eq!(status, 200);
        let text = String::from_utf8(body).expect("XML");
        let keys = text.split("<Key>some/prefix/").skip(1);
        let keys = keys.filter_map(|rest| rest.split("</Key>").next());
        let mut names: Vec<String> = keys.map(str::to_owned).collect();
        names.sort();
        names
    }

    fn request(&self, method: &str, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
        self.try_request(method, path, body)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    fn try_request(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> std::io::Result<(u16, Vec<u8>)> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let head = format!(
            "{method} /{BUCKET}{path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\
             Authorization: {SIGNED}\r\nConnection: close\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let broken = || std::io::Error::other("no HTTP answer");
        let at = answer.windows(4).position(|four| four == b"\r\n\r\n");
        let at = at.ok_or_else(broken)?;
        let status = String::from_utf8_lossy(&answer[..at]);
        let status = status.split(' ').nth(1).and_then(|text| text.parse().ok());
        Ok((status.ok_or_else(broken)?, answer.split_off(at + 4)))
    }
}

fn path(name: &str) -> String {
    format!("/some/prefix/{name}")
}

impl Drop for S3Server {
    fn drop(&mut self) {
        // It is ours, and may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
