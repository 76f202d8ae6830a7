//! An agent with one committed file on a server that is about to die, and what must be true when
//! the dust has settled.

use std::{
    collections::BTreeSet,
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use mayfly_tests::{engine, postgres, server::Server};
use serde_json::{Value, json};

/// Longest a test waits for the dust to settle.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// A message that was posted, whether or not the server lived to say so.
#[derive(Debug, Clone)]
pub(crate) struct Posted {
    /// Idempotency key and token at once.
    pub(crate) token: String,
    /// Which agent.
    pub(crate) agent: String,
    /// What was asked for.
    pub(crate) text: String,
}

/// See the module.
pub(crate) struct Scene {
    /// The data dir and, while it runs, the server.
    pub(crate) server: Server,
    /// The agent; none was made if empty.
    pub(crate) agent: String,
    /// The engine's address, where it is not the usual one.
    pub(crate) engine: Option<String>,
    /// Messages so far; a copy of a data dir goes on with other tokens.
    pub(crate) posted: usize,
}

impl Scene {
    /// A data dir that knows nothing yet, without a server.
    pub(crate) fn empty() -> Scene {
        Scene::on(Server::new(env!("CARGO_BIN_EXE_mayfly-under-test")))
    }

    /// On a data dir of the caller's choice.
    pub(crate) fn on(server: Server) -> Scene {
        Scene {
            server,
            agent: String::new(),
            engine: None,
            posted: 0,
        }
    }

    /// With an agent whose head has one file; the server is stopped again.
    pub(crate) fn new() -> Scene {
        let mut scene = Scene::empty();
        scene.server.start();
        scene.settle_in();
        scene.server.stop();
        scene
    }

    /// Makes the agent and its first file.
    pub(crate) fn settle_in(&mut self) {
        self.agent = self.server.agent();
        assert_eq!(self.say("echo one > first; echo ok"), "ok");
    }

    /// One request on the socket; an error if the server goes away before its answer is whole.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        key: &str,
        body: Option<&Value>,
    ) -> io::Result<(u16, Value)> {
        let mut stream = UnixStream::connect(self.server.data_dir().join("mayfly.sock"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let key = match key {
            "" => String::new(),
            key => format!("idempotency-key: {key}\r\n"),
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{key}\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or(io::ErrorKind::InvalidData)?;
        let value = serde_json::from_str(body).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        Ok((status, value))
    }

    /// Posts to the agent. `$T` in the text is a token that no other message has.
    pub(crate) fn post(&mut self, text: &str) -> Posted {
        let agent = self.agent.clone();
        self.post_to(&agent, text)
    }

    /// Posts to an agent; whether the server says that it is accepted does not matter here.
    pub(crate) fn post_to(&mut self, agent: &str, text: &str) -> Posted {
        self.posted += 1;
        let token = format!("token-{}-", self.posted);
        let posted = Posted {
            text: text.replace("$T", &token),
            agent: agent.to_owned(),
            token,
        };
        // No answer where the server dies of it; a refusal is a mistake of the test.
        if let Ok((status, view)) = self.send(&posted) {
            assert!((200..300).contains(&status), "{status} {view}");
        }
        posted
    }

    /// The message that is posted at each point: a line more in a file, a file to send, an answer.
    pub(crate) fn post_line(&mut self) -> Posted {
        self.post("echo $T >> log; mkdir -p send; echo $T > send/f; echo got $T")
    }

    /// Sends, or sends again.
    pub(crate) fn send(&self, posted: &Posted) -> io::Result<(u16, Value)> {
        let path = format!("/v1/agents/{}/messages", posted.agent);
        let body = json!({ "text": posted.text });
        self.ask("POST", &path, &posted.token, Some(&body))
    }

    /// Sends what may not have been accepted again, as every client does.
    pub(crate) fn send_again(&self, posted: &Posted) {
        let (status, view) = self.send(posted).expect("the server answers");
        assert!((200..300).contains(&status), "{status} {view}");
    }

    /// Posts, waits, and returns the reply without the last newline.
    pub(crate) fn say(&mut self, text: &str) -> String {
        let posted = self.post(text);
        self.reply(&posted)
    }

    /// Waits for the reply of a message.
    pub(crate) fn reply(&self, posted: &Posted) -> String {
        self.until_settled(posted);
        let told = format!(
            "SELECT text FROM deliveries WHERE kind <> 'waiting' AND message = {}",
            id_of(posted)
        );
        self.server.sql(&told)
    }

    /// Waits for a message's outcome.
    pub(crate) fn until_settled(&self, posted: &Posted) {
        let query = format!(
            "SELECT count(*) FROM messages WHERE outcome IS NOT NULL AND id = {}",
            id_of(posted)
        );
        self.until_sql(&query, "1");
    }

    /// Waits until a query gives this answer.
    pub(crate) fn until_sql(&self, query: &str, wanted: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.server.sql(query);
            if found == wanted {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{query}: {found:?}, not {wanted:?}: {}",
                self.server.log()
            );
            sleep(LOOK);
        }
    }

    /// Waits until the program of a message runs in a sandbox.
    pub(crate) fn until_running(&self, posted: &Posted) {
        let query = format!(
            "SELECT count(*) FROM ticks WHERE outcome IS NULL AND phase = 'running' AND message = {}",
            id_of(posted)
        );
        self.until_sql(&query, "1");
    }

    /// One column of the message's row.
    pub(crate) fn of(&self, posted: &Posted, column: &str) -> String {
        let id = id_of(posted);
        self.server
            .sql(&format!("SELECT {column} FROM messages WHERE id = {id}"))
    }

    /// One outcome, one answer, its line once in the file, by exactly one tick that is done.
    pub(crate) fn assert_answered_once(&mut self, posted: &Posted) {
        self.send_again(posted);
        self.assert_one(posted, "answered", "answer");
        let done = format!(
            "SELECT count(*) FROM ticks WHERE outcome = 'done' AND message = {}",
            id_of(posted)
        );
        assert_eq!(self.server.sql(&done), "1", "ticks of {}", posted.token);
        let counted = format!("grep -c {} log; cat first", posted.token);
        assert_eq!(self.say(&counted), "1\none", "after {}", posted.token);
    }

    /// One message, this one outcome, told exactly once.
    pub(crate) fn assert_one(&self, posted: &Posted, outcome: &str, kind: &str) {
        self.until_settled(posted);
        let arrived = format!(
            "SELECT group_concat(coalesce(outcome, 'open')) FROM messages WHERE text LIKE '%{}%' \
             AND text NOT LIKE 'grep %'",
            posted.token
        );
        assert_eq!(self.server.sql(&arrived), outcome, "{}", posted.token);
        let told = format!(
            "SELECT group_concat(kind || ' ' || state) FROM deliveries WHERE kind <> 'waiting' \
             AND message = {}",
            id_of(posted)
        );
        self.until_sql(&told, &format!("{kind} sent"));
    }

    /// Waits until nothing is left that no row names: containers, volumes, mounts, sockets, upper
    /// folders, trash, layers, bases; and no claim, delivery or removal is owed.
    pub(crate) fn assert_tidy(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = self.left();
            if left.is_empty() {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "left: {left:#?}: {}",
                self.server.log()
            );
            sleep(4 * LOOK);
        }
    }

    fn left(&self) -> Vec<String> {
        let sql = |query: &str| self.server.sql(query);
        let data_dir = self.server.data_dir();
        let mut left = Vec::new();
        for (what, query) in [
            ("open ticks", "SELECT id FROM ticks WHERE outcome IS NULL"),
            (
                "unproved removals",
                "SELECT id FROM ticks WHERE removed_at IS NULL",
            ),
            (
                "open messages",
                "SELECT id FROM messages WHERE outcome IS NULL",
            ),
            (
                "owed deliveries",
                "SELECT id FROM deliveries WHERE state = 'owed'",
            ),
        ] {
            left.extend(sql(query).lines().map(|id| format!("{what}: {id}")));
        }
        for (folder, table) in [("l", "layers"), ("b", "bases")] {
            let rows = sql(&format!("SELECT id FROM {table}"));
            let rows: BTreeSet<String> = rows.lines().map(str::to_owned).collect();
            let found = names(&data_dir.join(folder));
            let differ = rows.symmetric_difference(&found);
            left.extend(differ.map(|id| format!("{folder}/{id} is only a row or only a folder")));
        }
        for folder in ["u", "t"] {
            left.extend(
                names(&data_dir.join(folder))
                    .iter()
                    .map(|name| format!("{folder}/{name}")),
            );
        }
        let prefix = self.server.prefix();
        let short = prefix
            .trim_start_matches("mayfly-")
            .trim_end_matches('-')
            .to_owned();
        left.extend(names(&Path::new("/run/mayfly").join(short)));
        left.extend(self.on_engine(&prefix));
        let path = data_dir.to_str().expect("test paths are UTF-8").to_owned();
        let overlays = engine::mounts(&path);
        left.extend(
            overlays
                .into_iter()
                .filter(|line| line.starts_with("overlay")),
        );
        left
    }

    fn on_engine(&self, prefix: &str) -> Vec<String> {
        let Some(host) = &self.engine else {
            return [engine::containers(prefix), engine::volumes(prefix)].concat();
        };
        let containers = ["-H", host, "ps", "-a", "--format", "{{.Names}}"];
        let volumes = ["-H", host, "volume", "ls", "--format", "{{.Name}}"];
        let listed = engine::run("docker", &containers) + &engine::run("docker", &volumes);
        let ours = listed.lines().filter(|name| name.starts_with(prefix));
        ours.map(str::to_owned).collect()
    }

    /// Ends what runs; a database that was killed and restarted is whole.
    pub(crate) fn end(mut self) {
        self.assert_tidy();
        self.server.stop();
        if !postgres::wanted() {
            assert_eq!(self.server.sql("PRAGMA integrity_check"), "ok");
        }
        assert_eq!(self.left(), Vec::<String>::new());
        if self.engine.is_none() {
            engine::forget_images(&self.server.prefix());
        }
    }
}

/// The id of a posted message, as SQL.
pub(crate) fn id_of(posted: &Posted) -> String {
    format!(
        "(SELECT message FROM arrivals WHERE key = '{}')",
        posted.token
    )
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
