//! Who may do what: secrets that do not belong to a role are refused, one process speaks with a platform.

use std::time::{Duration, Instant};

use mayfly_tests::{
    fake_telegram::{FakeTelegram, Person, TOKEN},
    http::{get, on_socket},
    server::Server,
};

use super::fleet::{Fleet, worker_of};

const ADA: Person = Person(1001);

fn refused(server: &Server) -> String {
    let done = server.mayfly(&["serve", "--simulate"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(5), "{said}");
    said
}

/// Each names the key, where it is from and the role.
#[test]
fn a_secret_of_another_role_is_refused_by_name() {
    let fleet = Fleet::new();
    for (variable, key) in [
        ("TELEGRAM_BOT_TOKEN", "telegram.bot_token"),
        ("SLACK_BOT_TOKEN", "slack.bot_token"),
        ("SLACK_APP_TOKEN", "slack.app_token"),
        ("SLACK_SIGNING_SECRET", "slack.signing_secret"),
        ("DISCORD_TOKEN", "discord.bot_token"),
    ] {
        let worker = fleet.process("worker").env(variable, TOKEN);
        let said = refused(&worker);
        let begins = format!("{key} (environment {variable}): role worker");
        assert!(said.contains(&begins), "{said}");
        assert!(!said.contains("AAFake"), "{said}");
    }
    let key = "MAYFLY__PROFILES__SHELL__ENV__OPENAI_API_KEY";
    let said = refused(&fleet.process("bot").env(key, "sk-none"));
    assert!(
        said.contains("profiles.shell.env.OPENAI_API_KEY") && said.contains("role bot"),
        "{said}"
    );
}

#[test]
fn a_role_without_what_it_shares_is_refused_with_the_way_out() {
    for role in ["bot", "worker"] {
        let alone = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"))
            .env("MAYFLY__SERVE__ROLE", role);
        let said = refused(&alone);
        assert!(said.contains("database.url: role"), "{said}");
        assert!(said.contains("queue.url: role"), "{said}");
        assert!(said.contains("store.url: role"), "{said}");
        assert!(said.contains("role all"), "{said}");
    }
    let other = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"))
        .env("MAYFLY__SERVE__ROLE", "boss");
    assert!(refused(&other).contains("serve.role"));
}

/// A bot makes agents without an engine; their base is made by whichever worker has their first message.
#[test]
fn a_bot_has_no_engine_and_its_agents_run_on_workers() {
    let fleet = Fleet::new();
    let telegram = FakeTelegram::start();
    let mut bot = fleet.bot(&telegram.url());
    let mut worker = fleet.process("worker");
    bot.start();
    worker.start();
    assert!(
        worker.log().contains("mayfly listens on /"),
        "{}",
        worker.log()
    );
    assert!(!worker.log().contains("http://"), "{}", worker.log());
    let chat = telegram.platform.private(ADA);
    telegram.platform.write(chat, ADA, "echo from a worker");
    let texts = || {
        telegram
            .platform
            .shown(chat)
            .into_iter()
            .map(|post| post.text)
    };
    bot.until("a reply", || {
        let texts: Vec<String> = texts().collect();
        match texts.iter().any(|text| text.contains("from a worker")) && texts.len() == 2 {
            true => Ok(()),
            false => Err(format!("{texts:?}")),
        }
    });
    let ran = fleet.sql("SELECT worker FROM ticks");
    assert_eq!(ran, worker_of(worker.data_dir()));
    // Also where a command makes it.
    let agent = bot.agent();
    let sent = bot.json(&["agent", "send", &agent, "echo here"]);
    assert_eq!(sent["reply"]["text"], "here", "{sent}");
    let bases =
        fleet.sql("SELECT count(*) FROM agents a JOIN bases b ON b.id = a.base AND b.uid > 0");
    assert_eq!(bases, "2");
    let ready = |server: &Server| on_socket(server.data_dir(), &get("/readyz"));
    for server in [&bot, &worker] {
        assert_eq!(ready(server).status, 200, "{:?}", ready(server));
    }
    assert!(worker.stop().success());
    assert!(bot.stop().success());
}

/// The second one says so once and waits. It goes on at once where the first ends, and after its lease where it is
/// killed.
#[test]
fn ev_08_one_process_speaks_with_a_platform_and_the_next_takes_over() {
    let fleet = Fleet::new();
    let telegram = FakeTelegram::start();
    let chat = telegram.platform.private(ADA);
    let mut worker = fleet.process("worker");
    worker.start();
    let (mut first, mut second) = (fleet.bot(&telegram.url()), fleet.bot(&telegram.url()));
    first.start();
    fleet.until_sql(&first, "SELECT count(*) FROM holds", "2");
    let held = fleet.sql("SELECT string_agg(name, ' ') FROM holds");
    assert!(
        held.contains("telegram:") && !held.contains("AAFake"),
        "{held}"
    );
    second.start();
    let waits = format!(
        "another mayfly (worker {}) speaks",
        worker_of(first.data_dir())
    );
    second.until("it says that it waits", || {
        match second.log().contains(&waits) {
            true => Ok(()),
            false => Err(second.log()),
        }
    });
    assert_eq!(on_socket(second.data_dir(), &get("/readyz")).status, 503);
    let mut said = 0;
    let mut say = |by: &Server| {
        said += 1;
        telegram
            .platform
            .write(chat, ADA, &format!("echo number {said}"));
        let began = Instant::now();
        by.until("a reply", || {
            let posts = telegram.platform.shown(chat);
            let texts: Vec<String> = posts.into_iter().map(|post| post.text).collect();
            match texts
                .last()
                .is_some_and(|text| *text == format!("number {said}"))
            {
                true => Ok(()),
                false => Err(format!("{texts:?}")),
            }
        });
        began.elapsed()
    };
    say(&first);
    assert!(first.stop().success());
    let took = say(&second);
    assert!(took < Duration::from_secs(10), "at once: {took:?}");
    let log = second.log();
    let told = log
        .lines()
        .filter(|line| line.contains("WARN") && line.contains(&waits));
    assert_eq!(told.count(), 1, "{log}");
    first.start();
    let epoch = fleet.sql(&format!(
        "SELECT epoch FROM workers WHERE id = '{}'",
        worker_of(second.data_dir())
    ));
    second.kill();
    let took = say(&first);
    // The lease, five seconds past it, the reconciler's period and the platform's own time-out for a poller.
    assert!(
        took > Duration::from_secs(25),
        "before its lease was over: {took:?}"
    );
    assert!(took < Duration::from_secs(60), "{took:?}");
    let now = fleet.sql(&format!(
        "SELECT epoch FROM workers WHERE id = '{}'",
        worker_of(second.data_dir())
    ));
    assert_ne!(now, epoch, "it was declared dead");
    let posts = telegram.platform.shown(chat).len();
    assert_eq!(posts, 6, "three messages, each with one answer");
    assert!(first.stop().success());
    assert!(worker.stop().success());
}

/// One process speaks with all platforms: a bot for another one's token waits, and says what that means.
#[test]
fn ev_08_a_bot_with_another_token_says_that_nobody_speaks_by_it() {
    let fleet = Fleet::new();
    let telegram = FakeTelegram::start();
    let mut first = fleet.bot(&telegram.url());
    first.start();
    fleet.until_sql(&first, "SELECT count(*) FROM holds", "2");
    let mut other = fleet.bot(&telegram.url()).env(
        "TELEGRAM_BOT_TOKEN",
        "4200000002:AAFake-other_of_nobody_0123456789abcdef",
    );
    other.start();
    other.until("it says what is missing", || {
        let log = other.log();
        match log.contains("until then nobody speaks by its token of telegram") {
            true => Ok(()),
            false => Err(log),
        }
    });
    assert!(!other.log().contains("AAFake"), "{}", other.log());
    assert!(other.stop().success());
    assert!(first.stop().success());
}
