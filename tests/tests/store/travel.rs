//! What a tick leaves goes into the store, and comes back on a machine that lacks it.

use mayfly_orchestrator::{sandbox::fake::Fake, snapshot::DiffWanted};
use mayfly_tests::world::{Setup, World};

use crate::{Shared, count, empty, forget_all, newest_object, sha256, world};

pub(crate) async fn on_docker(shared: &Shared) -> World {
    let setup = Setup {
        store: shared.config(),
        ..Setup::default()
    };
    World::docker_with(setup).await
}

/// Small layers are in the store when the answer is there; each object is what its name says.
async fn an_agent_goes_on_on_an_empty_machine(shared: Shared) {
    let world = world(shared.config()).await;
    let agent = world.shell().await;
    world.say(agent, "echo one > a; echo gone > b").await;
    world.say(agent, "echo two >> a; rm b").await;
    let stored = "SELECT count(*) FROM layers WHERE stored_at IS NOT NULL AND digest IS NOT NULL";
    assert_eq!(world.sql(stored), "2", "before the commit");
    for row in world.sql("SELECT id, digest, packed FROM layers").lines() {
        let [layer, digest, packed] = row.split('|').collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let object = shared.get(&format!("layers/{layer}.{digest}"));
        let object = object.expect("it was put");
        assert_eq!(
            (object.len().to_string(), sha256(&object)),
            (packed.to_owned(), digest.to_owned())
        );
    }
    forget_all(&world).await;
    assert_eq!(world.reply(agent, "cat a; ls").await, "one\ntwo\na");
    assert_eq!(
        count(&world.data_dir().join("l")),
        2,
        "and the last tick changed nothing"
    );
    // Whoever only reads brings it here too.
    empty(world.data_dir());
    let wanted = DiffWanted {
        most: 10,
        renames: false,
        text: false,
    };
    let diff = world.commands().diff(agent, None, None, wanted).await;
    assert!(diff.expect("it is read").changes.is_empty());
    assert_eq!(count(&world.data_dir().join("l")), 2);
    assert_eq!(
        count(&world.data_dir().join("u")),
        0,
        "nothing is left aside"
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_goes_on_from_a_bucket() {
    an_agent_goes_on_on_an_empty_machine(Shared::bucket()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_goes_on_from_a_shared_folder() {
    an_agent_goes_on_on_an_empty_machine(Shared::folder()).await;
}

/// On real sandboxes: what the program sees is what it left, to the nanosecond. Counts of links are left
/// out: they count names in layers that only lie on the same disk.
#[tokio::test(flavor = "multi_thread")]
async fn modes_links_times_and_owners_come_back_from_a_bucket() {
    const ODD: &str = "mkdir -p d/e z; echo secret > z/in; chmod 000 z; echo r > ro; chmod 0440 ro
        echo x > d/x; ln d/x d/y; ln -s nowhere d/s; truncate -s 9M hole; echo gone > gone
        touch -d '2001-02-03 04:05:06.789012345' old
        python3 -c 'import os; os.setxattr(\"old\", \"user.note\", b\"\\x00\\xff\")'";
    const NEXT: &str = "rm gone; mv d f; mkdir d; echo new > d/n";
    const SEEN: &str = "find . -exec stat -c '%n %F %a %u %g %s %y %N' {} + | sort
        cat ro d/n f/x; stat -c %i f/x f/y | sort -u | wc -l
        python3 -c 'import os; print(os.getxattr(\"old\", \"user.note\"))'";
    let shared = Shared::bucket();
    let world = on_docker(&shared).await;
    let agent = world.shell().await;
    world.say(agent, ODD).await;
    world.say(agent, NEXT).await;
    let before = world.reply(agent, SEEN).await;
    assert!(before.contains("06.789012345"), "{before}");
    forget_all(&world).await;
    assert_eq!(world.reply(agent, SEEN).await, before);
    world.end().await;
}

/// A large one goes in parts, after the reply; until then its row names who has it.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_layer_follows_the_reply_in_parts() {
    let shared = Shared::bucket();
    let world = on_docker(&shared).await;
    let agent = world.shell().await;
    let sum = world
        .reply(agent, "head -c 20000000 /dev/urandom > big; sha256sum big")
        .await;
    let holder = world.sql("SELECT holder FROM layers");
    assert_eq!(holder, world.service().worker().identity.id);
    world
        .until_sql(
            "SELECT count(*) FROM layers WHERE stored_at IS NOT NULL",
            "1",
        )
        .await;
    let object = shared.get(&newest_object(&world)).expect("it was put");
    assert!(object.len() > 20_000_000 && object.len() < 20_100_000);
    forget_all(&world).await;
    assert_eq!(world.reply(agent, "sha256sum big").await, sum);
    world.end().await;
}

/// A merged layer gets its row when it is in the store: what every row names can be had.
#[tokio::test(flavor = "multi_thread")]
async fn a_merged_layer_travels_too() {
    let shared = Shared::folder();
    let world = world(shared.config()).await;
    let agent = world.shell().await;
    for n in 1..=13 {
        world.say(agent, &format!("echo {n} > f{n}")).await;
    }
    world
        .until_sql(
            "SELECT CASE WHEN count(*) > 0 THEN 1 ELSE 0 END FROM merges m
             JOIN layers l ON l.id = m.layer WHERE l.stored_at IS NOT NULL",
            "1",
        )
        .await;
    let without = "SELECT count(*) FROM merges m JOIN layers l ON l.id = m.layer
                   WHERE l.stored_at IS NULL";
    assert_eq!(world.sql(without), "0");
    empty(world.data_dir());
    assert_eq!(world.reply(agent, "cat f1 f7 f13").await, "1\n7\n13");
    world.end().await;
}

/// Without a store nothing is packed and nothing is asked.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_store_everything_is_local() {
    let world = World::fake(Setup::default(), Fake::new).await;
    let agent = world.shell().await;
    world.say(agent, "echo one > a").await;
    assert_eq!(world.reply(agent, "cat a").await, "one");
    let packed = "SELECT count(*) FROM layers WHERE digest IS NOT NULL";
    assert_eq!(world.sql(packed), "0");
    assert_eq!(world.sql("SELECT count(*) FROM store"), "0");
    world.end().await;
}
