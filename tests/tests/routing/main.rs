//! What events of a platform add up to: which posts are one message, whose, and which agent answers.

mod conversations;
mod messages;
mod pairing;
mod rights;
mod time;
mod together;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use mayfly_domain::{
    Author, Channel, Event, Happened, Place, PostId, Posted, RemoteFile, Twin, chat::Sign,
};
use mayfly_orchestrator::{
    agent::profile::{Profile, SHELL},
    inbox::access::{Access, ChannelRule, EVERYONE},
    sandbox::fake::Fake,
};
use mayfly_tests::{
    chat::{Chat, NAME},
    world::{Setup, World},
};

const LONG: Duration = Duration::from_secs(600);

/// A place on the platform, with people in it.
struct Scene {
    world: World,
    chat: Arc<Chat>,
    keys: AtomicI64,
}

fn open_to_all() -> Access {
    let mut access = Access::default();
    access.audience.allowed_users = vec![EVERYONE.to_owned()];
    access.allowed_channels = vec![EVERYONE.to_owned()];
    access
}

fn setup(chat: &Arc<Chat>, access: Access) -> Setup {
    Setup {
        platforms: vec![chat.clone()],
        accesses: [(NAME.to_owned(), access)].into(),
        ..Setup::default()
    }
}

fn channel(name: &str) -> Channel {
    Channel {
        platform: NAME.to_owned(),
        workspace: "w".to_owned(),
        channel: name.to_owned(),
    }
}

fn now() -> i64 {
    mayfly_orchestrator::clock::unix_ms()
}

/// Ada writes this in a channel, to us.
fn mention(id: &str, text: &str) -> Posted {
    let channel = channel("c1");
    Posted {
        thread: channel.thread(id),
        id: PostId {
            channel,
            id: id.to_owned(),
        },
        place: Place::Channel,
        author: Author {
            id: "ada".to_owned(),
            name: "Ada".to_owned(),
        },
        by_bot: false,
        roles: Vec::new(),
        text: text.to_owned(),
        to_us: true,
        files: Vec::new(),
        twin: None,
        words_of: None,
        group: None,
        answers: None,
        at: now(),
    }
}

/// Ada goes on in a thread.
fn follow_up(thread: &str, id: &str, text: &str) -> Posted {
    let mut posted = mention(id, text);
    posted.thread = posted.id.channel.thread(thread);
    posted.place = Place::Thread;
    posted.to_us = false;
    posted
}

fn file(id: &str, name: &str) -> RemoteFile {
    RemoteFile {
        id: id.to_owned(),
        name: name.to_owned(),
        size: None,
        media_type: None,
        url: None,
    }
}

impl Scene {
    async fn new() -> Scene {
        Scene::with(open_to_all()).await
    }

    async fn with(access: Access) -> Scene {
        Scene::on(access, Profile::default()).await.0
    }

    /// With this as the profile `shell`, and the engine.
    async fn on(access: Access, shell: Profile) -> (Scene, Fake) {
        let chat = Chat::new(LONG);
        let mut setup = setup(&chat, access);
        setup.profiles = vec![(SHELL.to_owned(), shell)];
        let mut engine = None;
        let world = World::fake(setup, |supervisor, lease| {
            let fake = Fake::new(supervisor, lease);
            engine.insert(fake).clone()
        })
        .await;
        let scene = Scene {
            world,
            chat,
            keys: AtomicI64::default(),
        };
        (scene, engine.expect("it was made"))
    }

    fn happens(&self, happened: Happened) {
        let key = format!("e{}", self.keys.fetch_add(1, Ordering::Relaxed));
        self.chat.happens(Event { key, happened });
    }

    fn posted(&self, posted: Posted) {
        self.happens(Happened::Posted(Box::new(posted)));
    }

    fn edited(&self, posted: Posted) {
        self.happens(Happened::Edited(Box::new(posted)));
    }

    /// Waits until everything that happened is applied and every message has its outcome.
    async fn quiet(&self) {
        let seen = self.keys.load(Ordering::Relaxed).to_string();
        self.world
            .until_sql(
                "SELECT count(*) FROM arrivals WHERE state != 'new' AND seq > 0",
                &seen,
            )
            .await;
        let open = "SELECT (SELECT count(*) FROM messages WHERE outcome IS NULL)
            + (SELECT count(*) FROM orders WHERE state != 'done')
            + (SELECT count(*) FROM deliveries WHERE state = 'owed')";
        self.world.until_sql(open, "0").await;
    }

    async fn texts(&self, thread: &str) -> Vec<String> {
        self.quiet().await;
        self.chat.texts(thread)
    }

    fn count(&self, table: &str) -> String {
        self.world.sql(&format!("SELECT count(*) FROM {table}"))
    }

    async fn end(self) {
        self.world.end().await;
    }
}
