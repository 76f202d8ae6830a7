//! A process that stands still in the middle of a removal takes nothing from those who need it again.

use std::{cell::Cell, fs, slice, time::Duration};

use mayfly_domain::BlobHash;
use mayfly_orchestrator::{
    clock::{
        boot_time,
        simulated::{self, Now},
        unix_ms,
    },
    faults,
};
use mayfly_tests::world::World;

use crate::{Shared, count, folder, keeping::age, world};

const HELLO: &[u8] = b"hello";

async fn put(world: &World) -> BlobHash {
    let blobs = &world.service().worker().tools.blobs;
    blobs.put(HELLO.to_vec()).await.expect("stored")
}

fn name(hash: &BlobHash) -> String {
    format!("blobs/{}/{hash}", &hash.as_str()[..2])
}

/// What somebody puts again is not removed.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_removes_what_was_just_put() {
    let shared = Shared::folder();
    let world = world(shared.config()).await;
    let tools = &world.service().worker().tools;
    let object = name(&put(&world).await);
    assert_eq!(shared.get(&object).as_deref(), Some(HELLO));
    tools
        .db
        .doom(slice::from_ref(&object))
        .await
        .expect("marked");
    put(&world).await;
    world.change("UPDATE doomed SET at = 1");
    assert_eq!(tools.travel.sweep().await.expect("swept"), 0);
    assert!(shared.get(&object).is_some());
    world.end().await;
}

/// What is put while somebody may be removing it outlives the removal, whenever that comes.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_during_a_removal_is_there_after_it() {
    let shared = Shared::folder();
    let world = world(shared.config()).await;
    let tools = &world.service().worker().tools;
    let hash = put(&world).await;
    let object = name(&hash);
    tools
        .db
        .doom(slice::from_ref(&object))
        .await
        .expect("marked");
    assert!(tools.db.begin_removal(&object).await.expect("begun"));
    let again = tools.db.begin_removal(&object).await.expect("asked");
    assert!(!again, "one removes");
    // That one stands still for so long that all others take it for dead.
    world.change("UPDATE doomed SET removing_at = 1");
    put(&world).await;
    let objects = tools.travel.objects().expect("there is a store");
    objects.remove(&object).await.expect("it goes on");
    tools.db.removed(&object).await.expect("told");
    fs::remove_dir_all(world.data_dir().join("blobs").join(&hash.as_str()[..2]))
        .expect("it is ours");
    let read = tools.blobs.get(&hash).await.expect("it is in the store");
    assert_eq!(read, HELLO);
    // And once no row needs it, it leaves the store as any other.
    let anew = folder(&shared).join("anew").join(hash.as_str());
    let [copy] = &fs::read_dir(&anew)
        .expect("it is there")
        .collect::<Vec<_>>()[..]
    else {
        panic!("one copy")
    };
    age(&copy.as_ref().expect("readable").path());
    tools.travel.mark_unnamed().await.expect("marked");
    world.change("UPDATE doomed SET at = 1");
    tools.travel.sweep().await.expect("swept");
    world.until_sql("SELECT count(*) FROM doomed", "0").await;
    assert_eq!(count(&anew), 0);
    world.end().await;
}

thread_local! {
    static STANDS_STILL: Cell<bool> = const { Cell::new(false) };
}

fn set(boot: Duration) {
    simulated::set(Now {
        unix_ms: unix_ms(),
        boot,
    });
}

/// The right to remove something is used at once or not at all.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_stood_still_before_a_removal_leaves_it_to_others() {
    let shared = Shared::folder();
    let world = world(shared.config()).await;
    let object = name(&put(&world).await);
    world.rest().await;
    let tools = &world.service().worker().tools;
    tools
        .db
        .doom(slice::from_ref(&object))
        .await
        .expect("marked");
    world.change("UPDATE doomed SET at = 1");
    faults::watch(|point| {
        if point == "depot.removing" && STANDS_STILL.get() {
            set(boot_time() + Duration::from_secs(3600));
        }
    });
    let boot = boot_time();
    STANDS_STILL.set(true);
    assert_eq!(tools.travel.sweep().await.expect("swept"), 0);
    STANDS_STILL.set(false);
    assert!(shared.get(&object).is_some());
    set(boot);
    world.change("UPDATE doomed SET removing_at = 1");
    assert_eq!(tools.travel.sweep().await.expect("swept"), 1);
    assert!(shared.get(&object).is_none());
    world.end().await;
}
