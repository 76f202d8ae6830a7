//! The judge is judged: what a fault would leave is done to a run that went well, one thing at a time.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::atomic::AtomicBool,
    time::Duration,
};

use mayfly_tests::engine;

use crate::{
    fleet::Fleet,
    judge,
    kind::Kind,
    load::Load,
    witness::{self, Span},
};

const MESSAGES: usize = 8;

/// What is done to the first message, and what the judge says to it.
const MISDEEDS: [(&str, &str); 11] = [
    (
        "DELETE FROM deliveries WHERE message = (SELECT min(id) FROM messages);
         DELETE FROM messages WHERE id = (SELECT min(id) FROM messages)",
        "messages that were accepted",
    ),
    (
        "DELETE FROM deliveries WHERE message = (SELECT min(id) FROM messages)",
        "another number of words",
    ),
    (
        "CREATE TEMP TABLE twice AS SELECT * FROM deliveries WHERE message = (SELECT min(id) FROM messages);
         UPDATE twice SET id = 'twice'; INSERT INTO deliveries SELECT * FROM twice",
        "another number of words",
    ),
    (
        "CREATE TEMP TABLE twice AS SELECT * FROM ticks WHERE message = (SELECT min(id) FROM messages);
         UPDATE twice SET id = 'twice'; INSERT INTO ticks SELECT * FROM twice",
        "done twice",
    ),
    (
        "UPDATE messages SET seq = -seq WHERE agent = (SELECT agent FROM messages WHERE seq = 1 ORDER BY id LIMIT 1)
            AND seq < 3;
         UPDATE messages SET seq = 3 + seq WHERE seq < 0",
        "out of order",
    ),
    (
        "UPDATE messages SET outcome = NULL WHERE id = (SELECT min(id) FROM messages)",
        "open messages",
    ),
    (
        "UPDATE messages SET outcome = 'parked' WHERE id = (SELECT min(id) FROM messages)",
        "\"parked\"",
    ),
    (
        "UPDATE ticks SET outcome = NULL WHERE message = (SELECT min(id) FROM messages)",
        "open ticks",
    ),
    (
        "UPDATE ticks SET removed_at = NULL WHERE message = (SELECT min(id) FROM messages)",
        "unproved removals",
    ),
    (
        "UPDATE deliveries SET state = 'owed' WHERE message = (SELECT min(id) FROM messages)",
        "owed deliveries",
    ),
    // Its files were not those that the message before left.
    (
        "UPDATE deliveries SET text = '2' WHERE text LIKE '1_2'",
        "message 2 of",
    ),
];

#[test]
fn the_judge_sees_what_is_lost_doubled_out_of_order_or_left() {
    let mut fleet = Fleet::start(Kind::Own);
    let mut load = Load::new(&fleet, 2);
    load.post_until(&AtomicBool::new(true), MESSAGES);
    judge::one_outcome_each(&fleet, &load, judge::PATIENCE);
    assert_eq!(fleet.workers[0].stop().code(), Some(0));
    let data_dir = fleet.workers[0].data_dir().to_owned();
    let database = data_dir.join("mayfly.db");
    engine::change(&database, "PRAGMA wal_checkpoint(TRUNCATE)");
    let whole = fs::read(&database).expect("a database");
    for (misdeed, said) in MISDEEDS {
        engine::change(&database, misdeed);
        let told = verdict(&fleet, &load).expect(misdeed);
        assert!(told.contains(said), "{misdeed}: {told}");
        restore(&database, &whole);
    }
    let left = data_dir.join("u/left");
    fs::create_dir_all(&left).expect("it is ours");
    let told = verdict(&fleet, &load).expect("a folder is left");
    assert!(told.contains("u/left"), "{told}");
    fs::remove_dir(&left).expect("just made");
    two_ticks_at_once(&fleet, &load);
    assert_eq!(verdict(&fleet, &load), None);
    fleet.workers[0].start();
    fleet.end();
}

/// One says that it ran when the one before it did; then nobody knows when it ran.
fn two_ticks_at_once(fleet: &Fleet, load: &Load) {
    let (agent, _) = load.of_agents().next().expect("an agent");
    let folder = fleet.workers[0].data_dir().join("transcripts").join(agent);
    let entries = fs::read_dir(folder).expect("it has run").flatten();
    let mut transcripts: Vec<_> = entries.map(|entry| entry.path()).collect();
    transcripts.sort();
    let [first, second] = [0, 1].map(|n| fs::read(&transcripts[n]).expect("a transcript"));
    fs::write(&transcripts[1], &first).expect("it is ours");
    let told = verdict(fleet, load).expect("two say that they ran at once");
    assert!(told.contains("two ticks ran at once"), "{told}");
    fs::write(&transcripts[1], b"").expect("it is ours");
    let told = verdict(fleet, load).expect("one says nothing");
    assert!(told.contains("says nothing of when it ran"), "{told}");
    fs::write(&transcripts[1], &second).expect("it is ours");
}

#[test]
fn one_that_outlived_several_is_held_against_each() {
    let span = |agent: &str, tick: &str, from, to| Span {
        agent: agent.to_owned(),
        tick: tick.to_owned(),
        from,
        to,
    };
    let mut spans = vec![
        span("a", "1", 10, 20),
        span("a", "1", 9, 21),
        span("a", "2", 21, 30),
        span("b", "3", 5, 25),
        span("a", "4", 40, 41),
    ];
    assert_eq!(witness::two_at_once(&spans), None);
    spans.push(span("a", "1", 20, 42));
    let told = witness::two_at_once(&spans).expect("it lived on");
    assert!(told.contains("\"1\"") && told.contains("\"2\""), "{told}");
    spans.truncate(4);
    spans.extend([span("b", "5", 6, 7), span("b", "6", 24, 26)]);
    assert!(witness::two_at_once(&spans).is_some());
    spans.remove(4);
    let told = witness::two_at_once(&spans).expect("it lived on");
    assert!(told.contains("\"3\"") && told.contains("\"6\""), "{told}");
}

/// What the judge finds wrong.
fn verdict(fleet: &Fleet, load: &Load) -> Option<String> {
    let judged = catch_unwind(AssertUnwindSafe(|| {
        judge::one_outcome_each(fleet, load, Duration::ZERO);
    }));
    let told = judged.err()?;
    Some(*told.downcast::<String>().expect("a sentence"))
}

fn restore(database: &Path, whole: &[u8]) {
    for beside in ["mayfly.db-wal", "mayfly.db-shm"] {
        let _ = fs::remove_file(database.with_file_name(beside));
    }
    fs::write(database, whole).expect("it is written");
}
