//! `!fork` when the platform's answer or the server is lost: one fork with one conversation, or a
//! question where the platform cannot tell; never two, never silence.

use std::time::Duration;

use mayfly_tests::{
    conversation::{Conversation, on_discord, on_slack, on_telegram},
    fake::Fault,
    server::Server,
};

use crate::{
    platforms::{until, until_quiet},
    points::{FORK_ANSWER, FORKS},
};

/// Longer than any adapter waits for an answer.
const SLOW: Duration = Duration::from_secs(14);

/// What the person who wants a fork is told.
const HERE: &str = "goes on here";
const PERHAPS: &str = "cannot tell whether its conversation was opened";

struct Scene<C> {
    server: Server,
    there: C,
}

impl<C: Conversation> Scene<C> {
    /// An agent that has said something.
    fn new(mut there: C) -> Self {
        let mut server = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"));
        for (name, value) in there.environment() {
            server.set_env(name, &value);
        }
        server.start();
        there.begin("echo hello");
        until(&server, &there, "hello");
        until_quiet(&server);
        Scene { server, there }
    }

    /// The newest that was said with these words in it.
    fn said(&self, words: &str) -> String {
        until(&self.server, &self.there, words);
        let texts = self.there.texts().into_iter().rev();
        texts
            .into_iter()
            .find(|text| text.contains(words))
            .expect("it was said")
    }

    /// Where the fork goes on it answers, and there is no other.
    fn goes_on(mut self, told: &str, opened: usize) {
        until_quiet(&self.server);
        assert_eq!(self.there.opened(), opened, "{:?}", self.there.texts());
        let agents = self.server.sql("SELECT count(*) FROM agents");
        assert_eq!(agents, "2");
        let here = self.there.texts();
        let told_here = here.iter().filter(|text| text.contains(HERE)).count();
        assert_eq!(told_here, 1, "{here:?}");
        self.there.follow(told);
        self.there.say("echo from the fork");
        until(&self.server, &self.there, "from the fork");
        until_quiet(&self.server);
        let of_the_fork = "SELECT count(*) FROM messages m JOIN agents a ON a.id = m.agent
            WHERE a.forked_from IS NOT NULL";
        assert_eq!(self.server.sql(of_the_fork), "1");
        assert_eq!(self.server.sql("SELECT count(*) FROM agents"), "2");
        self.server.stop();
    }

    fn dies_at(&mut self, point: &str) {
        self.server.stop();
        self.server.start_with_fault(point);
        self.there.say("!fork");
        self.server.wait_dead();
        self.server.start();
    }
}

/// The call goes wrong, and the fork has its one conversation all the same.
fn opens_once(there: impl Conversation, faults: Vec<Fault>) {
    let mut scene = Scene::new(there);
    scene.there.opening_fails(faults);
    scene.there.say("!fork");
    let told = scene.said(HERE);
    scene.goes_on(&told, 1);
}

/// Nobody can tell what became of the call, so a person decides.
fn asks(there: impl Conversation, fault: Fault, stand: usize) {
    let mut scene = Scene::new(there);
    scene.there.opening_fails(vec![fault]);
    scene.there.say("!fork");
    decides(scene, stand);
}

fn decides(mut scene: Scene<impl Conversation>, stand: usize) {
    let asked = scene.said(PERHAPS);
    until_quiet(&scene.server);
    assert_eq!(scene.there.opened(), stand, "{asked}");
    scene.there.press("Open again");
    let told = scene.said(HERE);
    scene.goes_on(&told, stand + 1);
}

/// Fine after a while; what was lost, and what came too late.
fn faults() -> Vec<Vec<Fault>> {
    vec![
        vec![Fault::TooMany(1)],
        vec![Fault::Cut, Fault::Lost],
        vec![Fault::Lost, Fault::TooMany(1), Fault::Lost],
    ]
}

#[test]
fn fm_07_a_fork_on_slack_is_opened_once_whatever_becomes_of_the_call() {
    for faults in faults() {
        opens_once(on_slack(), faults);
    }
}

#[test]
fn fm_07_a_fork_on_slack_is_opened_once_where_the_answer_comes_too_late() {
    opens_once(on_slack(), vec![Fault::Slow(SLOW)]);
}

#[test]
fn fm_07_a_fork_on_discord_is_opened_once_whatever_becomes_of_the_call() {
    for faults in faults() {
        opens_once(on_discord(), faults);
    }
}

#[test]
fn fm_07_a_fork_on_discord_is_opened_once_where_the_answer_comes_too_late() {
    opens_once(on_discord(), vec![Fault::Slow(SLOW)]);
}

#[test]
fn fm_07_a_fork_on_telegram_is_opened_or_a_question() {
    opens_once(on_telegram(), vec![Fault::TooMany(1)]);
    asks(on_telegram(), Fault::Lost, 1);
    asks(on_telegram(), Fault::Cut, 0);
}

#[test]
fn fm_07_a_fork_on_telegram_is_a_question_where_the_answer_comes_too_late() {
    asks(on_telegram(), Fault::Slow(SLOW), 1);
}

/// The server dies with a fork that has no conversation yet, and with one that nobody has recorded.
fn survives<C: Conversation>(on: impl Fn() -> C) {
    for point in FORKS {
        let mut scene = Scene::new(on());
        scene.dies_at(point);
        let told = scene.said(HERE);
        scene.goes_on(&told, 1);
    }
}

#[test]
fn fm_07_a_fork_on_slack_is_opened_once_where_the_server_dies() {
    survives(on_slack);
}

#[test]
fn fm_07_a_fork_on_discord_is_opened_once_where_the_server_dies() {
    survives(on_discord);
}

#[test]
fn fm_07_a_fork_on_telegram_is_opened_or_a_question_where_the_server_dies() {
    let mut scene = Scene::new(on_telegram());
    scene.dies_at("order.forked");
    let told = scene.said(HERE);
    scene.goes_on(&told, 1);
    let mut scene = Scene::new(on_telegram());
    scene.dies_at("order.opened");
    decides(scene, 1);
}

/// The fork is in the database, and the server does not learn so.
#[test]
fn fm_07_a_fork_is_opened_once_where_the_databases_answer_is_lost() {
    let mut scene = Scene::new(on_slack());
    scene.server.stop();
    scene.server.start_with_fault(FORK_ANSWER);
    scene.there.say("!fork");
    let told = scene.said(HERE);
    scene.goes_on(&told, 1);
}

/// Back or not: who asked for it is told that nobody knows, and where to look.
#[test]
fn a_rollback_whose_answer_is_lost_is_not_called_undone() {
    let mut scene = Scene::new(on_slack());
    scene.server.stop();
    scene.server.start_with_fault("rollback.answer");
    scene.there.say("!rollback");
    scene.said("Go back to the files");
    scene.there.press("Roll back");
    let told = scene.said("may have been done or not");
    assert!(told.contains("!history"), "{told}");
    assert_eq!(scene.server.sql("SELECT head IS NULL FROM agents"), "1");
    scene.server.stop();
}
