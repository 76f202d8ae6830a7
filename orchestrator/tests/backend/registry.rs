//! A registry with one image, as far as an engine asks for it.

use std::{
    collections::HashMap,
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use sha2::{Digest, Sha256};

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

pub(crate) struct Registry {
    /// Under which it gives its image, by digest.
    pub(crate) name: String,
    open: Arc<AtomicBool>,
}

type Blobs = HashMap<String, (&'static str, Vec<u8>)>;

impl Registry {
    /// Serves an image of the engine. Engines allow plain HTTP to this address.
    pub(crate) fn of(image: &str) -> Registry {
        let folder = tempfile::tempdir().expect("a folder");
        let unpack = format!(
            "docker save {image} | tar -x -C '{}'",
            folder.path().display()
        );
        let done = Command::new("sh").args(["-c", &unpack]).status();
        assert!(done.expect("sh").success());
        let (manifest, blobs) = contents(folder.path());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let open = Arc::new(AtomicBool::new(true));
        let (blobs, still_open) = (Arc::new(blobs), open.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if !still_open.load(Ordering::SeqCst) {
                    return;
                }
                let blobs = blobs.clone();
                thread::spawn(move || answer(stream, &blobs));
            }
        });
        Registry {
            name: format!("{address}/mine/image@{manifest}"),
            open,
        }
    }

    pub(crate) fn close(&self) {
        self.open.store(false, Ordering::SeqCst);
    }
}

/// The manifest's digest, and everything by digest.
fn contents(folder: &Path) -> (String, Blobs) {
    let text = fs::read_to_string(folder.join("manifest.json")).expect("an archive of an image");
    let listed: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let mut blobs = Blobs::new();
    let mut entry = |kind: &str, path: &serde_json::Value| {
        let bytes = fs::read(folder.join(path.as_str().expect("a path"))).expect("a blob");
        let (size, digest) = (bytes.len(), digest(&bytes));
        blobs.insert(digest.clone(), ("application/octet-stream", bytes));
        serde_json::json!({ "mediaType": kind, "size": size, "digest": digest })
    };
    let config = entry(
        "application/vnd.docker.container.image.v1+json",
        &listed[0]["Config"],
    );
    let layers: Vec<_> = listed[0]["Layers"]
        .as_array()
        .expect("layers")
        .iter()
        .map(|layer| entry("application/vnd.docker.image.rootfs.diff.tar.gzip", layer))
        .collect();
    let manifest = serde_json::json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers,
    });
    let manifest = manifest.to_string().into_bytes();
    let name = digest(&manifest);
    blobs.insert(name.clone(), (MANIFEST, manifest));
    (name, blobs)
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

fn answer(mut stream: TcpStream, blobs: &Blobs) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => request.push(byte[0]),
            _ => return,
        }
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let found = blobs.get(path.rsplit('/').next().unwrap_or(""));
    let (status, kind, body): (u16, &str, &[u8]) = match found {
        Some((kind, body)) => (200, kind, body),
        None if path == "/v2/" => (200, "application/json", b"{}"),
        None => (404, "application/json", b"{}"),
    };
    let head = format!(
        "HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Docker-Content-Digest: {}\r\nConnection: close\r\n\r\n",
        body.len(),
        digest(body)
    );
    let _ = stream.write_all(head.as_bytes());
    if method != "HEAD" {
        let _ = stream.write_all(body);
    }
}
