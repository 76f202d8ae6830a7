//! Everything at once: one worker dies, one freezes past its lease, the bot is started anew, and people go on
//! writing.

use mayfly_tests::{
    fake::Served,
    fake_telegram::{BOT, FakeTelegram, Person},
    server::Server,
};
use rustix::process::Signal;

use super::fleet::{Fleet, signal, worker_of};

const PEOPLE: i64 = 20;
const EACH: i64 = 10;

/// Each person's private chat with the bot is one agent.
fn people(telegram: &Served<FakeTelegram>) -> Vec<(Person, i64)> {
    let person = |n: i64| Person(2000 + n);
    let chat = |person: Person| (person, telegram.platform.private(person));
    (0..PEOPLE).map(person).map(chat).collect()
}

fn write(telegram: &Served<FakeTelegram>, people: &[(Person, i64)], which: std::ops::Range<i64>) {
    for number in which {
        for (person, chat) in people {
            let text = format!("sleep 0.5; printf {number} >>log; cat log");
            telegram.platform.write(*chat, *person, &text);
        }
    }
}

/// The worker has a program that runs now.
fn until_busy(fleet: &Fleet, worker: &Server) {
    let runs = format!(
        "SELECT count(*) > 0 FROM ticks WHERE outcome IS NULL AND phase = 'running' AND worker = '{}'",
        worker_of(worker.data_dir())
    );
    fleet.until_sql(worker, &runs, "t");
}

/// 200 messages of 20 people: each is answered once, in its order, and nothing is left.
#[test]
fn qu_05_in_a_storm_each_message_is_answered_once_in_its_order() {
    let fleet = Fleet::new();
    let telegram = FakeTelegram::start();
    let people = people(&telegram);
    let mut bot = fleet.bot(&telegram.url());
    let mut workers = [0; 3].map(|_| fleet.process("worker"));
    bot.start();
    workers.iter_mut().for_each(Server::start);
    write(&telegram, &people, 0..EACH / 2);
    let [dies, freezes, _] = &mut workers;
    until_busy(&fleet, dies);
    dies.kill();
    until_busy(&fleet, freezes);
    signal(freezes, Signal::STOP);
    write(&telegram, &people, EACH / 2..EACH);
    assert!(bot.stop().success());
    bot.start();
    let frozen = worker_of(freezes.data_dir());
    let open = format!("SELECT count(*) FROM ticks WHERE worker = '{frozen}' AND outcome IS NULL");
    fleet.until_sql(&bot, &open, "0");
    signal(freezes, Signal::CONT);
    assert!(!freezes.wait_dead().success(), "it goes on");
    dies.start();
    freezes.start();
    let all = (PEOPLE * EACH).to_string();
    fleet.until_sql(
        &bot,
        "SELECT count(*) FROM messages WHERE outcome IS NOT NULL",
        &all,
    );
    fleet.until_sql(
        &bot,
        "SELECT count(*) FROM deliveries WHERE state <> 'sent'",
        "0",
    );
    // Posts of progress that are too old to become the reply go after it.
    fleet.until_sql(&bot, "SELECT count(*) FROM progress", "0");
    fleet.until_sql(
        &bot,
        "SELECT count(*) FROM ticks WHERE removed_at IS NULL",
        "0",
    );

    for (query, wanted) in [
        (
            "SELECT count(*) FROM messages WHERE outcome = 'answered'",
            &*all,
        ),
        ("SELECT count(*) FROM deliveries", &all),
        (
            "SELECT count(DISTINCT message) FROM deliveries WHERE kind = 'answer'",
            &all,
        ),
        ("SELECT count(*) FROM ticks WHERE outcome = 'done'", &all),
        (
            "SELECT count(*) > 1 FROM ticks WHERE outcome = 'interrupted'",
            "t",
        ),
        // One at a time, and in the order of the lane.
        (
            "SELECT count(*) FROM ticks a JOIN ticks b ON a.agent = b.agent AND a.id < b.id
              WHERE b.started_at < a.ended_at",
            "0",
        ),
        (
            "SELECT count(*) FROM ticks a JOIN messages m ON m.id = a.message
              JOIN ticks b ON a.agent = b.agent JOIN messages n ON n.id = b.message
              WHERE a.outcome = 'done' AND m.seq < n.seq AND a.ended_at > b.started_at",
            "0",
        ),
        ("SELECT count(*) FROM pins", "0"),
    ] {
        assert_eq!(fleet.sql(query), wanted, "{query}: {}", bot.log());
    }
    // Each has the files of the one before, on whichever worker that was.
    let digits = |last: i64| (0..=last).map(|number| number.to_string()).collect();
    let wanted: Vec<String> = (0..EACH).map(digits).collect();
    for (_, chat) in &people {
        let posts = telegram.platform.shown(*chat).into_iter();
        let mut texts: Vec<String> = posts
            .filter(|post| post.from == BOT)
            .map(|post| post.text)
            .collect();
        // A young post of progress becomes the reply, so one may stand above an earlier message's.
        texts.sort_by_key(String::len);
        assert_eq!(texts, wanted, "{}", bot.log());
    }
    for server in workers.iter_mut().chain([&mut bot]) {
        assert!(server.stop().success(), "{}", server.log());
    }
    assert_eq!(
        fleet.sql("SELECT count(*) FROM workers WHERE expires_at > 0"),
        "0"
    );
}
