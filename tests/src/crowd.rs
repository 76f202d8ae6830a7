//! Many agents with a history, copied by rows and folders from a few whose ticks have really run.
//!
//! No server may run meanwhile. Ids of a copy end in its number; files are further names of the
//! first ones, as merged layers have them too.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::engine;

/// What is made of the agents that are there.
#[derive(Debug, Clone, Copy)]
pub struct Crowd<'a> {
    /// Copies of all of them.
    pub copies: u32,
    /// Agents whose history is that of `of` over and over.
    pub deep: u32,
    /// How often.
    pub times: u32,
    /// Id of the agent that has no state but its own.
    pub of: &'a str,
}

const TABLES: [&str; 9] = [
    "agents",
    "threads",
    "messages",
    "ticks",
    "layers",
    "snapshots",
    "merges",
    "deliveries",
    "head_moves",
];

impl Crowd<'_> {
    /// Copies rows, layers and transcripts.
    pub fn make(&self, data_dir: &Path) -> io::Result<()> {
        let before = Before::of(data_dir, self.of);
        run(&data_dir.join("mayfly.db"), &self.script())?;
        for copy in 1..=self.copies {
            before.copy(data_dir, copy, None)?;
        }
        for deep in 0..self.deep {
            let first = self.first_of(deep);
            for copy in first..first + self.times {
                before.copy(data_dir, copy, Some(first))?;
            }
        }
        Ok(())
    }

    /// The number of a deep agent: that of its first copy.
    fn first_of(&self, deep: u32) -> u32 {
        self.copies + 1 + deep * self.times
    }

    fn script(&self) -> String {
        let mut script = "BEGIN;\n".to_owned();
        for table in TABLES {
            script += &format!("CREATE TEMP TABLE of_{table} AS SELECT * FROM {table};\n");
        }
        let all = Rows {
            root: "NULL",
            only: "1",
        };
        script += &all.script(&numbers(1, self.copies), "n", "n", "n");
        let only = format!("agent = '{}'", self.of);
        let head = format!("(SELECT head FROM of_agents WHERE id = '{}')", self.of);
        for deep in 0..self.deep {
            let first = self.first_of(deep);
            let last = first + self.times - 1;
            let root = format!(
                "CASE WHEN n > {first} THEN {} END",
                copied(&head, "(n - 1)")
            );
            let rows = Rows {
                root: &root,
                only: &only,
            };
            let first = first.to_string();
            let numbers = numbers(self.first_of(deep), last);
            script += &rows.script(&numbers, &first, &last.to_string(), "n");
        }
        script + "COMMIT;\n"
    }
}

/// Which rows are copied, and what stands in them.
struct Rows<'a> {
    /// In place of no parent.
    root: &'a str,
    only: &'a str,
}

impl Rows<'_> {
    /// `owner` is the number in agents' and threads' ids, `head` that of their heads', `n` that of
    /// all others.
    fn script(&self, numbers: &str, owner: &str, head: &str, n: &str) -> String {
        let Rows { root, only } = self;
        let of = |column: &str| copied(column, n);
        let layer = format!("printf('%06x', {n}) || substr(layer, 7, 6)");
        let state = format!("layer IN (SELECT layer FROM of_snapshots WHERE {only})");
        let merge = format!("snapshot IN (SELECT id FROM of_snapshots WHERE {only})");
        let message = format!("message IN (SELECT id FROM of_messages WHERE {only})");
        let (agent_of, thread_of) = (copied("agent", owner), copied("thread", owner));
        let by_id = only.replace("agent =", "id =");
        let once = format!("(SELECT * FROM {numbers} WHERE {owner} = n)");
        let copy = |table: &str, changed: &[(&str, String)], which: &str, times: &str| {
            let columns: Vec<&str> = changed.iter().map(|(column, _)| *column).collect();
            let values: Vec<&str> = changed.iter().map(|(_, value)| &value[..]).collect();
            let rest = REST.iter().find(|(name, _)| *name == table);
            let rest = rest.map_or("", |(_, rest)| rest);
            format!(
                "INSERT INTO {table} ({columns}{rest}) SELECT {values}{rest}
                 FROM of_{table}, {times} WHERE {which};\n",
                columns = columns.join(", "),
                values = values.join(", "),
            )
        };
        [
            copy(
                "agents",
                &[
                    ("id", copied("id", owner)),
                    ("head", copied("head", head)),
                    ("forked_from", copied("forked_from", owner)),
                ],
                &by_id,
                &once,
            ),
            copy(
                "threads",
                &[
                    ("id", copied("id", owner)),
                    ("key", format!("replace(key, agent, {agent_of})")),
                    ("agent", agent_of.clone()),
                ],
                only,
                &once,
            ),
            copy(
                "messages",
                &[
                    ("id", of("id")),
                    ("agent", agent_of.clone()),
                    ("thread", thread_of.clone()),
                    ("seq", format!("seq + 100000 * (n - {owner})")),
                ],
                only,
                numbers,
            ),
            copy(
                "ticks",
                &[
                    ("id", of("id")),
                    ("agent", agent_of.clone()),
                    ("message", of("message")),
                    ("retry_of", of("retry_of")),
                    ("before", of("before")),
                    ("after", of("after")),
                    ("names", format!("replace(names, layer, {layer})")),
                    ("layer", layer.clone()),
                ],
                only,
                numbers,
            ),
            copy(
                "snapshots",
                &[
                    ("id", of("id")),
                    ("agent", agent_of.clone()),
                    ("parent", format!("coalesce({}, {root})", of("parent"))),
                    ("tick", of("tick")),
                    ("layer", layer.clone()),
                ],
                only,
                numbers,
            ),
            copy(
                "layers",
                &[("id", layer.replace("layer", "id"))],
                &format!(
                    "{} OR id IN (SELECT layer FROM of_merges WHERE {merge})",
                    state.replacen("layer", "id", 1)
                ),
                numbers,
            ),
            copy(
                "merges",
                &[("snapshot", of("snapshot")), ("layer", layer.clone())],
                &merge,
                numbers,
            ),
            copy(
                "deliveries",
                &[
                    ("id", of("id")),
                    ("thread", thread_of),
                    ("message", of("message")),
                    ("tick", of("tick")),
                ],
                &message,
                numbers,
            ),
            copy(
                "head_moves",
                &[
                    ("agent", agent_of),
                    ("from_snapshot", of("from_snapshot")),
                    ("to_snapshot", of("to_snapshot")),
                ],
                only,
                numbers,
            ),
        ]
        .concat()
    }
}

/// Columns that a copy has as they are.
const REST: [(&str, &str); 9] = [
    ("agents", ", profile, sandbox, image, base, generation, created_at"),
    ("threads", ", next_seq"),
    (
        "messages",
        ", author_id, author_name, text, created_at, claimable_at, attempts, outcome, settled_at",
    ),
    (
        "ticks",
        ", worker, epoch, generation, phase, outcome, changes, notice, exit_code, effects, image,
         removed_at, notes, phase_ms, output_bytes, layer_bytes, layer_inodes, started_at, ended_at",
    ),
    ("snapshots", ", base, session, created_at"),
    ("layers", ", bytes, inodes, created_at"),
    ("merges", ", created_at"),
    ("deliveries", ", kind, text, state, created_at, sent_at"),
    ("head_moves", ", at, reason"),
];

/// An id of the copy with this number; null stays null.
fn copied(column: &str, number: &str) -> String {
    format!("substr({column}, 1, 30) || printf('%06x', {number})")
}

fn numbers(first: u32, last: u32) -> String {
    format!(
        "(WITH RECURSIVE k (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM k WHERE n < {last})
          SELECT n FROM k)"
    )
}

fn run(database: &Path, script: &str) -> io::Result<()> {
    let mut shell = Command::new("sqlite3")
        .args(["-bail".as_ref(), database.as_os_str()])
        .stdin(Stdio::piped())
        .spawn()?;
    let mut input = shell.stdin.take().expect("it is piped");
    input.write_all(script.as_bytes())?;
    drop(input);
    let ended = shell.wait()?;
    assert!(ended.success(), "the rows cannot be copied: {script}");
    Ok(())
}

/// Folders and files of the agents that were there.
struct Before {
    layers: Vec<String>,
    /// Those of the agent whose history is repeated.
    deep_layers: Vec<String>,
    /// Agent and tick.
    transcripts: Vec<(String, String)>,
    deep: String,
}

impl Before {
    fn of(data_dir: &Path, deep: &str) -> Before {
        let rows = |query: &str| -> Vec<String> {
            let rows = engine::sql(&data_dir.join("mayfly.db"), query);
            rows.lines().map(str::to_owned).collect()
        };
        let pairs = rows("SELECT agent || '|' || id FROM ticks");
        let pair = |row: &String| {
            let (agent, tick) = row.split_once('|').expect("two columns");
            (agent.to_owned(), tick.to_owned())
        };
        Before {
            layers: rows("SELECT id FROM layers"),
            deep_layers: rows(&format!(
                "SELECT layer FROM snapshots WHERE agent = '{deep}' AND layer NOT NULL UNION
                 SELECT m.layer FROM merges m JOIN snapshots s ON s.id = m.snapshot
                  WHERE s.agent = '{deep}'"
            )),
            transcripts: pairs.iter().map(pair).collect(),
            deep: deep.to_owned(),
        }
    }

    /// `owner` is the number of the agent, where only the one that is repeated is copied.
    fn copy(&self, data_dir: &Path, number: u32, owner: Option<u32>) -> io::Result<()> {
        let layers = match owner {
            None => &self.layers,
            Some(_) => &self.deep_layers,
        };
        let folder = data_dir.join("l");
        for layer in layers {
            link(
                &folder.join(layer),
                &folder.join(format!("{number:06x}{}", &layer[6..])),
            )?;
        }
        let folder = data_dir.join("transcripts");
        let id = |of: &str, number: u32| format!("{}{number:06x}", &of[..30]);
        for (agent, tick) in &self.transcripts {
            if owner.is_some() && *agent != self.deep {
                continue;
            }
            let into = folder.join(id(agent, owner.unwrap_or(number)));
            fs::create_dir_all(&into)?;
            let file = |tick: &str| PathBuf::from(format!("{tick}.jsonl"));
            let from = folder.join(agent).join(file(tick));
            name_again(&from, &into.join(file(&id(tick, number))))?;
        }
        Ok(())
    }
}

/// The same files below other folders.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => link(&entry.path(), &name)?,
            false => name_again(&entry.path(), &name)?,
        }
    }
    Ok(())
}

/// A further name of a file; one that has all the names it may have is made anew and gives its own place up.
fn name_again(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() == io::ErrorKind::TooManyLinks => {
            fs::copy(from, to)?;
            fs::remove_file(from)?;
            fs::hard_link(to, from)
        }
        other => other,
    }
}
