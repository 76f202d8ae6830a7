//! What has to be true of the rows at the end, read by other hands than those that wrote them.

use std::path::Path;

use crate::agents::sql;

/// A sentence, and a query that finds what contradicts it.
const RULES: [(&str, &str); 8] = [
    (
        "P1: every message has an outcome",
        "SELECT id FROM messages WHERE outcome IS NULL",
    ),
    (
        "P1: a message has one reply, or is part of another",
        "SELECT m.id, m.outcome, count(d.id) FROM messages m
         LEFT JOIN deliveries d ON d.message = m.id AND d.kind IN ('answer', 'notice')
         GROUP BY m.id HAVING count(d.id) <> (m.outcome <> 'merged')",
    ),
    (
        "P1: answers are those of ticks that are done, notices all others",
        "SELECT d.id FROM deliveries d LEFT JOIN ticks t ON t.id = d.tick
         WHERE (d.kind = 'answer') <> (COALESCE(t.outcome, '') = 'done')",
    ),
    (
        "P1: what is merged is merged into what has an outcome of its own",
        "SELECT m.id FROM messages m LEFT JOIN messages o ON o.id = m.merged_into
         WHERE (m.outcome = 'merged') <> (COALESCE(o.outcome, 'merged') <> 'merged')",
    ),
    (
        "P2: no tick is open",
        "SELECT id FROM ticks WHERE outcome IS NULL",
    ),
    (
        "P2: each claim is a generation of its own",
        "SELECT a.id FROM agents a WHERE a.generation > 0 AND a.generation <>
           (SELECT count(DISTINCT t.generation) FROM ticks t WHERE t.agent = a.id)",
    ),
    (
        "P3: a tick is done where its state, its layer and its answer are there",
        "SELECT t.id FROM ticks t LEFT JOIN snapshots s ON s.tick = t.id
         LEFT JOIN layers l ON l.id = t.layer
         LEFT JOIN deliveries d ON d.tick = t.id AND d.kind = 'answer'
         WHERE (t.outcome = 'done') <> (s.id IS NOT NULL AND s.id = t.after)
           OR (t.outcome = 'done') <> (d.id IS NOT NULL)
           OR (l.id IS NOT NULL) <> (COALESCE(s.layer, '') = t.layer)",
    ),
    (
        "P3: each state stands on the one before it, and the head is the last",
        "SELECT t.id FROM ticks t JOIN snapshots s ON s.tick = t.id JOIN agents a ON a.id = t.agent
         WHERE COALESCE(s.parent, '') <> COALESCE((SELECT p.after FROM ticks p WHERE p.agent = t.agent
             AND p.after IS NOT NULL AND p.generation < t.generation
             ORDER BY p.generation DESC LIMIT 1), '')
           OR (a.head <> s.id AND NOT EXISTS (SELECT 1 FROM ticks n WHERE n.agent = t.agent
             AND n.after IS NOT NULL AND n.generation > t.generation))",
    ),
];

/// The first rule that does not hold, with some of what contradicts it.
pub(crate) fn rows(database: &Path, messages: usize) -> Result<(), String> {
    for (rule, query) in RULES {
        let found = sql(database, &format!("SELECT * FROM ({query}) LIMIT 5;\n"));
        if !found.is_empty() {
            return Err(format!("{rule}, but not:\n{found}"));
        }
    }
    let stored = sql(database, "SELECT count(*) FROM messages;\n");
    match stored.trim() == messages.to_string() {
        true => Ok(()),
        false => Err(format!(
            "P1: {messages} messages were accepted, and there are {stored}"
        )),
    }
}
