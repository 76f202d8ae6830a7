//! What must be true when the dust has settled.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use crate::{fleet::Fleet, load::Load, truth::until, witness};

/// Until the dust has settled.
pub(crate) const PATIENCE: Duration = Duration::from_secs(150);

/// Nobody works, owes or holds anything any more.
const OWED: [(&str, &str); 4] = [
    (
        "open messages",
        "SELECT count(*) FROM messages WHERE outcome IS NULL",
    ),
    (
        "open ticks",
        "SELECT count(*) FROM ticks WHERE outcome IS NULL",
    ),
    (
        "unproved removals",
        "SELECT count(*) FROM ticks WHERE removed_at IS NULL",
    ),
    (
        "owed deliveries",
        "SELECT count(*) FROM deliveries WHERE state = 'owed'",
    ),
];

/// None of these may be found.
const WRONG: [(&str, &str); 3] = [
    (
        "messages with another number of words than one",
        "SELECT count(*) FROM messages m WHERE 1 <> (SELECT count(*) FROM deliveries d
           WHERE d.message = m.id AND d.kind <> 'waiting')",
    ),
    (
        "messages that were done twice",
        "SELECT count(*) FROM messages m WHERE 1 < (SELECT count(*) FROM ticks t
           WHERE t.message = m.id AND t.outcome = 'done')",
    ),
    (
        "messages that were done out of order",
        "SELECT count(*) FROM ticks a JOIN messages m ON m.id = a.message
           JOIN ticks b ON b.agent = a.agent JOIN messages n ON n.id = b.message
          WHERE a.outcome = 'done' AND b.outcome = 'done' AND m.seq < n.seq AND a.generation > b.generation",
    ),
];

/// As many outcomes as messages, told once, in each agent's order, on files that hold each message once, by ticks of
/// which no two of an agent ran at once; nothing is open or left after this time.
pub(crate) fn one_outcome_each(fleet: &Fleet, load: &Load, patience: Duration) {
    let truth = fleet.truth();
    for (what, query) in OWED {
        until(patience, || match truth.count(query) {
            0 => Ok(()),
            left => Err(format!("{left} {what}: {}", logs(fleet))),
        });
    }
    for (what, query) in WRONG {
        assert_eq!(truth.count(query), 0, "{what}: {}", logs(fleet));
    }
    let kept = truth.count("SELECT count(*) FROM messages");
    assert_eq!(kept, load.posted(), "messages that were accepted");
    in_order(fleet, load);
    one_at_a_time(fleet);
    for worker in &fleet.workers {
        for folder in ["u", "t"] {
            let folder = worker.data_dir().join(folder);
            until(patience, || {
                let left: Vec<_> = std::fs::read_dir(&folder).into_iter().flatten().collect();
                match left.is_empty() {
                    true => Ok(()),
                    false => Err(format!("{left:?}: {}", worker.log())),
                }
            });
        }
    }
}

/// An agent's n-th answer shows what was answered up to it, each once.
fn in_order(fleet: &Fleet, load: &Load) {
    let rows = fleet.truth().ask(
        "SELECT m.agent, m.outcome, replace(coalesce(d.text, ''), '\n', ' ')
           FROM messages m JOIN deliveries d ON d.message = m.id AND d.kind <> 'waiting'
          ORDER BY m.agent, m.seq",
    );
    let mut of_agents: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for row in rows.lines() {
        let mut columns = row.splitn(3, '|');
        let mut next = || columns.next().expect("three columns");
        let (agent, outcome, text) = (next(), next(), next());
        of_agents.entry(agent).or_default().push((outcome, text));
    }
    for (agent, count) in load.of_agents() {
        let told = of_agents.remove(agent).unwrap_or_default();
        assert_eq!(told.len(), count, "agent {agent}");
        let mut log = Vec::new();
        for (number, (outcome, text)) in told.iter().enumerate() {
            if *outcome != "answered" {
                assert_eq!(
                    (*outcome, *text),
                    ("answered", ""),
                    "message {} of {agent}",
                    number + 1
                );
            }
            log.push((number + 1).to_string());
            let found: Vec<&str> = text.split_whitespace().collect();
            assert_eq!(found, log, "message {} of {agent}", number + 1);
        }
    }
    assert!(of_agents.is_empty(), "{of_agents:?}");
}

/// By what programs said and the kernel showed, also of ticks whose files were discarded.
fn one_at_a_time(fleet: &Fleet) {
    let spans = witness::spans(fleet);
    let heard: HashSet<&str> = spans.iter().map(|span| span.tick.as_str()).collect();
    let done = fleet
        .truth()
        .ask("SELECT id FROM ticks WHERE outcome = 'done'");
    for tick in done.lines() {
        assert!(
            heard.contains(tick),
            "tick {tick} says nothing of when it ran"
        );
    }
    let two = witness::two_at_once(&spans);
    assert_eq!(two, None, "{}", logs(fleet));
}

fn logs(fleet: &Fleet) -> String {
    let logs = fleet.workers.iter().map(|worker| worker.log());
    logs.collect::<Vec<_>>().join("\n\n")
}
