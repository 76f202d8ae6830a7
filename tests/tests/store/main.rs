//! The layer store: a bucket on a server that others wrote, and a folder that is shared.

mod away;
mod base;
mod clocks;
mod files;
mod frozen;
mod holder;
mod keeping;
mod parked;
mod travel;
mod whole;

use std::{fs, path::Path};

use mayfly_orchestrator::{depot::StoreConfig, sandbox::fake::Fake, view::MessageView};
use mayfly_tests::{
    s3_server::S3Server,
    world::{Rows, Setup, World},
};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// Where layers go in a test.
enum Shared {
    Bucket(S3Server),
    Folder(TempDir),
}

impl Shared {
    fn bucket() -> Shared {
        Shared::Bucket(S3Server::start())
    }

    fn folder() -> Shared {
        Shared::Folder(TempDir::with_prefix("mayfly-shared").expect("a folder"))
    }

    fn config(&self) -> StoreConfig {
        match self {
            Shared::Bucket(server) => server.config(server.address()),
            Shared::Folder(folder) => StoreConfig {
                url: format!("file://{}", folder.path().display()),
                ..StoreConfig::default()
            },
        }
    }

    fn get(&self, name: &str) -> Option<Vec<u8>> {
        match self {
            Shared::Bucket(server) => server.get(name),
            Shared::Folder(folder) => fs::read(folder.path().join(name)).ok(),
        }
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        match self {
            Shared::Bucket(server) => server.put(name, bytes),
            Shared::Folder(folder) => {
                fs::write(folder.path().join(name), bytes).expect("it is ours");
            }
        }
    }
}

/// A world on the simulated engine with this store.
async fn world(store: StoreConfig) -> World {
    let setup = Setup {
        store,
        ..Setup::default()
    };
    World::fake(setup, Fake::new).await
}

/// The object of the layer of an agent's newest state, as its row says.
fn newest_object(world: &World) -> String {
    world.sql(
        "SELECT 'layers/' || id || '.' || digest FROM layers WHERE stored_at IS NOT NULL
         ORDER BY id DESC LIMIT 1",
    )
}

/// A world on the simulated engine and PostgreSQL, where others may be at work too.
async fn shared_world(store: StoreConfig) -> World {
    let setup = Setup {
        store,
        rows: Rows::OnPostgres,
        ..Setup::default()
    };
    World::fake(setup, Fake::new).await
}

/// Waits until the base of the only image is in the store.
async fn until_base_stored(world: &World) {
    let stored = "SELECT count(*) FROM bases WHERE stored_at IS NOT NULL";
    world.until_sql(stored, "1").await;
}

/// What is in the store is here no more, as on a machine that has never seen an agent.
async fn forget_all(world: &World) {
    until_base_stored(world).await;
    empty(world.data_dir());
}

/// Waits until the thread of a message was told that it waits.
async fn until_told(world: &World, message: &MessageView) {
    let told = format!(
        "SELECT wait_noticed FROM messages WHERE id = '{}'",
        message.id
    );
    world.until_sql(&told, "1").await;
}

/// The folder of a store that is one.
fn folder(shared: &Shared) -> &Path {
    match shared {
        Shared::Folder(folder) => folder.path(),
        Shared::Bucket(_) => panic!("it is a bucket"),
    }
}

/// As a machine that has never seen an agent: no layer, no base.
fn empty(data_dir: &Path) {
    for folder in ["l", "b"] {
        for entry in fs::read_dir(data_dir.join(folder)).expect("readable") {
            fs::remove_dir_all(entry.expect("readable").path()).expect("it is ours");
        }
    }
}

fn count(folder: &Path) -> usize {
    fs::read_dir(folder).expect("readable").count()
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
