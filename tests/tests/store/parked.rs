//! The newest files lie where nobody can have them: a person is asked.

use std::{sync::Arc, time::Duration};

use mayfly_domain::{
    Author, Channel, Event, Happened, Place, PostId, Posted, Pressed, chat::Button,
};
use mayfly_orchestrator::{
    inbox::access::{Access, EVERYONE},
    sandbox::fake::Fake,
};
use mayfly_tests::{
    chat::{Chat, NAME},
    world::{Setup, World},
};

use crate::{Shared, empty, sha256, until_base_stored};

const ELSEWHERE: &str = "its only copy is on worker elsewhere";

struct Scene {
    world: World,
    chat: Arc<Chat>,
    events: u32,
    /// Layer, digest and time of the newest state.
    newest: Vec<String>,
}

fn channel() -> Channel {
    Channel {
        platform: NAME.to_owned(),
        workspace: "w".to_owned(),
        channel: "c".to_owned(),
    }
}

fn ada() -> Author {
    Author {
        id: "ada".to_owned(),
        name: "Ada".to_owned(),
    }
}

impl Scene {
    /// Two states; the newer one's only copy is on a worker that does not answer.
    async fn new(shared: &Shared) -> Scene {
        let mut access = Access::default();
        access.audience.allowed_users = vec![EVERYONE.to_owned()];
        access.allowed_channels = vec![EVERYONE.to_owned()];
        let chat = Chat::new(Duration::from_secs(600));
        let setup = Setup {
            store: shared.config(),
            platforms: vec![chat.clone()],
            accesses: [(NAME.to_owned(), access)].into(),
            ..Setup::default()
        };
        let world = World::fake(setup, Fake::new).await;
        let mut scene = Scene {
            world,
            chat,
            events: 0,
            newest: Vec::new(),
        };
        scene.says("echo one > f; echo first").await;
        scene.until_said("first").await;
        scene.says("echo two > f; echo second").await;
        scene.until_said("second").await;
        until_base_stored(&scene.world).await;
        let newest =
            "SELECT l.id, l.digest, l.stored_at FROM ticks t JOIN layers l ON l.id = t.layer
                      ORDER BY t.id DESC LIMIT 1";
        let newest = scene.world.sql(newest);
        scene.newest = newest.split('|').map(str::to_owned).collect();
        let gone = "stored_at = NULL, digest = NULL, holder = 'elsewhere'";
        empty(scene.world.data_dir());
        scene.world.change(&format!(
            "UPDATE layers SET {gone} WHERE id = '{}'",
            scene.newest[0]
        ));
        scene
    }

    async fn says(&mut self, text: &str) {
        self.events += 1;
        let (id, channel) = (self.events.to_string(), channel());
        let posted = Posted {
            thread: channel.thread("t"),
            id: PostId {
                channel,
                id: id.clone(),
            },
            place: Place::Thread,
            author: ada(),
            by_bot: false,
            roles: Vec::new(),
            text: text.to_owned(),
            to_us: self.events == 1,
            files: Vec::new(),
            twin: None,
            words_of: None,
            group: None,
            answers: None,
            at: mayfly_orchestrator::clock::unix_ms(),
        };
        self.chat.happens(Event {
            key: id,
            happened: Happened::Posted(Box::new(posted)),
        });
    }

    async fn presses(&mut self, on: &str, button: &Button) {
        self.events += 1;
        let channel = channel();
        let pressed = Pressed {
            button: button.id.clone(),
            thread: channel.thread("t"),
            on: PostId {
                channel,
                id: on.to_owned(),
            },
            by: ada(),
            roles: Vec::new(),
            answer_to: "x".to_owned(),
        };
        self.chat.happens(Event {
            key: format!("press {}", self.events),
            happened: Happened::Pressed(pressed),
        });
    }

    async fn until_said(&self, part: &str) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while !self.chat.texts("t").iter().any(|text| text.contains(part)) {
            let texts = self.chat.texts("t");
            assert!(tokio::time::Instant::now() < deadline, "{part}: {texts:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The question below the parked message, which says so, with its two buttons.
    async fn question(&mut self, why: &str) -> (String, Vec<Button>) {
        self.says("cat f; echo third").await;
        self.until_said(why).await;
        let parked = "SELECT outcome FROM messages ORDER BY seq DESC LIMIT 1";
        assert_eq!(self.world.sql(parked), "parked");
        assert_eq!(
            self.world.sql("SELECT count(*) FROM ticks"),
            "2",
            "no tick began"
        );
        let shown = self.chat.shown("t").pop().expect("the question");
        let labels: Vec<&str> = shown.buttons.iter().map(|b| b.label.as_str()).collect();
        let first = self.world.sql("SELECT id FROM ticks ORDER BY id LIMIT 1");
        let short = first.replace('-', "");
        let go_on = format!("Go on from {}", &short[short.len() - 8..]);
        assert_eq!(labels, ["Wait", &go_on]);
        (shown.id, shown.buttons)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_says_that_it_waits_and_it_runs_when_the_files_are_there() {
    let shared = Shared::folder();
    let mut scene = Scene::new(&shared).await;
    let (question, buttons) = scene.question(ELSEWHERE).await;
    scene.presses(&question, &buttons[0]).await;
    scene.until_said("It waits").await;
    let open = "SELECT count(*) FROM messages WHERE outcome IS NULL AND wait_noticed = 2";
    scene.world.until_sql(open, "1").await;
    let texts = scene.chat.texts("t").len();
    let ready = scene.world.commands().ready().await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while scene.world.commands().ready().await.ready {
        assert!(tokio::time::Instant::now() < deadline, "{ready:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(scene.world.sql(open), "1", "it waits on");
    assert_eq!(scene.chat.texts("t").len(), texts, "and is not told again");
    let [layer, digest, at] = &scene.newest[..] else {
        panic!("{:?}", scene.newest)
    };
    let back = format!("digest = '{digest}', stored_at = {at}, holder = NULL");
    scene
        .world
        .change(&format!("UPDATE layers SET {back} WHERE id = '{layer}'"));
    scene.until_said("two\nthird").await;
    scene.world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_goes_on_from_the_tick_before() {
    let shared = Shared::folder();
    let mut scene = Scene::new(&shared).await;
    let (question, buttons) = scene.question(ELSEWHERE).await;
    assert!(buttons[1].danger);
    scene.presses(&question, &buttons[1]).await;
    scene.until_said("one\nthird").await;
    // A button is good once.
    scene.presses(&question, &buttons[0]).await;
    let done = "SELECT count(*) FROM orders WHERE state != 'done'";
    scene.world.until_sql(done, "0").await;
    assert_eq!(scene.world.sql("SELECT count(*) FROM ticks"), "3");
    scene.world.end().await;
}

/// What the store has is what was put there, and is no layer: trying again for ever would help nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_person_is_asked_where_an_object_cannot_be_unpacked() {
    let shared = Shared::folder();
    let mut scene = Scene::new(&shared).await;
    let broken = b"no layer at all";
    let digest = sha256(broken);
    let layer = scene.newest[0].clone();
    shared.put(&format!("layers/{layer}.{digest}"), broken);
    let stored = format!(
        "digest = '{digest}', packed = {}, stored_at = 1",
        broken.len()
    );
    let change = format!("UPDATE layers SET {stored} WHERE id = '{layer}'");
    scene.world.change(&change);
    let (question, buttons) = scene.question("has of it cannot be unpacked").await;
    scene.presses(&question, &buttons[1]).await;
    scene.until_said("one\nthird").await;
    scene.world.end().await;
}

/// Other bytes than were put may have been cut on their way, but not again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_person_is_asked_where_an_object_stays_wrong() {
    let shared = Shared::folder();
    let mut scene = Scene::new(&shared).await;
    let [layer, digest, at] = &scene.newest[..] else {
        panic!("{:?}", scene.newest)
    };
    let object = format!("layers/{layer}.{digest}");
    let mut other = shared.get(&object).expect("it was put");
    other[0] ^= 1;
    shared.put(&object, &other);
    let back = format!("digest = '{digest}', stored_at = {at}, holder = NULL");
    let change = format!("UPDATE layers SET {back} WHERE id = '{layer}'");
    scene.world.change(&change);
    let (question, buttons) = scene
        .question("gives other bytes than were put there")
        .await;
    scene.presses(&question, &buttons[1]).await;
    scene.until_said("one\nthird").await;
    scene.world.end().await;
}
