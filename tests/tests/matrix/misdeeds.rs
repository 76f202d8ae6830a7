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
    fleet::{Fleet, Kind},
    judge,
    load::Load,
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
    assert_eq!(verdict(&fleet, &load), None);
    fleet.workers[0].start();
    fleet.end();
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
