//! The agents of a scene, who writes to them, and their rows.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use mayfly_domain::{AgentId, Author, ThreadKey};

/// People who write to many agents at once: to how many, in halves of all places that there are.
pub(crate) const HOGS: [u64; 3] = [1, 2, 4];
/// Everybody else.
const PEOPLE: u64 = 500;

/// The number of an agent.
pub(crate) fn number(id: AgentId) -> u64 {
    let text = id.to_string();
    u64::from_str_radix(&text[24..], 16).unwrap_or(u64::MAX)
}

/// Where one writes to an agent.
pub(crate) fn thread(number: u64) -> ThreadKey {
    ThreadKey {
        platform: "simulated".to_owned(),
        workspace: "w".to_owned(),
        channel: "c".to_owned(),
        thread: number.to_string(),
    }
}

/// Somebody who is not among the [`HOGS`].
pub(crate) fn person(number: u64) -> Author {
    named(format!("p{}", number % PEOPLE))
}

/// One of the [`HOGS`].
pub(crate) fn hog(which: usize) -> Author {
    named(format!("hog{which}"))
}

fn named(id: String) -> Author {
    let name = id.clone();
    Author { id, name }
}

/// Whether what waits of this agent goes into one tick.
pub(crate) fn merges(id: AgentId) -> bool {
    number(id).is_multiple_of(4)
}

/// Makes rows for so many agents.
pub(crate) fn insert(database: &Path, many: u64) {
    let script = format!(
        "PRAGMA synchronous=OFF; BEGIN;
         INSERT INTO bases (id, image, uid, gid, created_at) VALUES ('0123456789ab', 'image', 1, 1, 0);
         CREATE TEMP TABLE n AS WITH RECURSIVE n(i) AS
           (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {many}) SELECT i FROM n;
         INSERT INTO agents (id, profile, image, base, created_at)
           SELECT printf('00000000-0000-7000-8000-%012x', i), 'shell', 'image', '0123456789ab', 0 FROM n;
         INSERT INTO threads (id, key, agent)
           SELECT printf('00000000-0000-7000-9000-%012x', i), 'simulated/w/c/' || i,
             printf('00000000-0000-7000-8000-%012x', i) FROM n;
         COMMIT; PRAGMA wal_checkpoint(TRUNCATE);\n"
    );
    sql(database, &script);
}

/// What the database answers to statements, one row a line.
pub(crate) fn sql(database: &Path, script: &str) -> String {
    let mut shell = Command::new("sqlite3")
        .args(["-bail", "-cmd", ".timeout 60000"])
        .arg(database)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sqlite3 is installed");
    let mut into = shell.stdin.take().expect("piped");
    into.write_all(script.as_bytes()).expect("sqlite3 reads");
    drop(into);
    let output = shell.wait_with_output().expect("sqlite3 ends");
    assert!(output.status.success(), "sqlite3 refused: {script}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
