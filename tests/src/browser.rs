//! The distribution's Chromium, steered over `chromedriver`, with a profile of its own. What its
//! console says is part of what is tested.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    time::Duration,
};

use fantoccini::{Client, ClientBuilder, Locator, elements::Element, wd::Capabilities};
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::http::post;

/// Longest a test waits for something to be seen.
const PATIENCE: Duration = Duration::from_secs(60);

const FLAGS: [&str; 10] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1200,900",
];

/// See the module.
pub struct Browser {
    client: Option<Client>,
    session: String,
    driver: Driver,
    _profile: TempDir,
}

impl Browser {
    /// Starts one, on an empty page.
    pub async fn start() -> Browser {
        let driver = Driver::start();
        let profile = tempfile::Builder::new()
            .prefix("mb")
            .tempdir()
            .expect("a temporary folder");
        let mut flags: Vec<String> = FLAGS.map(str::to_owned).to_vec();
        flags.push(format!("--user-data-dir={}", profile.path().display()));
        let wanted = json!({
            "goog:chromeOptions": { "args": flags },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let Value::Object(wanted) = wanted else {
            unreachable!("it is an object")
        };
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(Capabilities::from(wanted))
            .connect(&format!("http://{}", driver.address))
            .await
            .unwrap_or_else(|error| panic!("no browser: {error}"));
        let session = client.session_id().await.expect("asked").expect("an id");
        Browser {
            client: Some(client),
            session,
            driver,
            _profile: profile,
        }
    }

    fn client(&self) -> &Client {
        self.client.as_ref().expect("it has not ended")
    }

    /// Opens an address, as somebody who types it.
    pub async fn open(&self, address: &str) {
        let opened = self.client().goto(address).await;
        opened.unwrap_or_else(|error| panic!("{address}: {error}"));
    }

    /// Where it is.
    pub async fn address(&self) -> String {
        let address = self.client().current_url().await;
        address.expect("it is somewhere").to_string()
    }

    /// What a script gives back.
    pub async fn run(&self, script: &str) -> Value {
        let done = self.client().execute(script, Vec::new()).await;
        done.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// The first element of a selector, as soon as there is one.
    pub async fn find(&self, selector: &str) -> Element {
        let found = self.client().wait().at_most(PATIENCE);
        let found = found.for_element(Locator::Css(selector)).await;
        match found {
            Ok(element) => element,
            Err(error) => panic!("no {selector}: {error}; {}", self.shown().await),
        }
    }

    /// Presses what a selector finds.
    pub async fn press(&self, selector: &str) {
        let pressed = self.find(selector).await.click().await;
        pressed.unwrap_or_else(|error| panic!("{selector}: {error}"));
    }

    /// Types into what a selector finds.
    pub async fn write(&self, selector: &str, text: &str) {
        let written = self.find(selector).await.send_keys(text).await;
        written.unwrap_or_else(|error| panic!("{selector}: {error}"));
    }

    /// All that can be read now.
    pub async fn shown(&self) -> String {
        let text = self.run("return document.body.innerText").await;
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until a script gives `true`.
    pub async fn until(&self, what: &str, script: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.run(script).await != Value::Bool(true) {
            if Instant::now() > deadline {
                panic!("{what} was not seen; {}", self.shown().await);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the last text of a selector is this one.
    pub async fn until_last(&self, selector: &str, wanted: &str) {
        let (selector, text) = (json!(selector), json!(wanted));
        let script = format!(
            "const all = [...document.querySelectorAll({selector})];
             return all.at(-1)?.innerText.trim() === {text}"
        );
        self.until(wanted, &script).await;
    }

    /// How wide and high the window is.
    pub async fn resize(&self, width: u32, height: u32) {
        let resized = self.client().set_window_size(width, height).await;
        resized.expect("it can be resized");
    }

    /// What the console said since it was last asked: errors of scripts and of the network, and what
    /// the content security policy kept from happening.
    pub fn console(&self) -> Vec<String> {
        let path = format!("/session/{}/se/log", self.session);
        let answer = exchange(&self.driver.address, &post(&path, r#"{"type":"browser"}"#));
        let entries = answer["value"].as_array().cloned();
        let said = |entry: &Value| entry["message"].as_str().unwrap_or_default().to_owned();
        entries.expect("a list").iter().map(said).collect()
    }

    /// Ends it.
    pub async fn end(mut self) {
        let client = self.client.take().expect("ended once");
        client.close().await.expect("it ends");
    }
}

/// `chromedriver` keeps connections open, so its answer ends where it says.
fn exchange(address: &str, request: &[u8]) -> Value {
    let mut stream = TcpStream::connect(address).expect("chromedriver listens");
    let patience = stream.set_read_timeout(Some(PATIENCE));
    patience.expect("a time-out");
    stream.write_all(request).expect("it takes requests");
    let mut answer = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        answer.read_line(&mut line).expect("a head");
        let Some((name, value)) = line.split_once(':') else {
            if line.trim().is_empty() {
                break;
            }
            continue;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().expect("a number");
        }
    }
    let mut body = vec![0; length];
    answer.read_exact(&mut body).expect("a body");
    serde_json::from_slice(&body).expect("JSON")
}

struct Driver {
    child: Child,
    address: String,
}

impl Driver {
    fn start() -> Driver {
        let mut child = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("chromedriver is installed: tests/run does it");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("started successfully on port ")?;
            rest.trim_end_matches('.').parse::<u16>().ok()
        });
        let port = port.expect("chromedriver says where it listens");
        Driver {
            child,
            address: format!("127.0.0.1:{port}"),
        }
    }
}

/// With the browsers it started, also when the test failed.
impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
