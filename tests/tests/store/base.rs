//! A base that the store lost, or gives as something else, is extracted from its image again and put anew.

use mayfly_domain::{AgentId, MessageOutcome};
use mayfly_tests::world::World;

use crate::{
    Shared, empty, sha256, shared_world, travel::on_docker, until_base_stored, until_told, world,
};

const OBJECT: &str = "SELECT 'bases/' || id || '.' || digest FROM bases";

/// An agent of which nothing lies here, and the object of its base with the bytes that were put.
async fn only_stored(world: &World, shared: &Shared) -> (AgentId, String, Vec<u8>) {
    let agent = world.shell().await;
    world.say(agent, "echo one > f").await;
    until_base_stored(world).await;
    let object = world.sql(OBJECT);
    let bytes = shared.get(&object).expect("it was put");
    empty(world.data_dir());
    (agent, object, bytes)
}

async fn is_made_anew(world: World, shared: Shared, harm: impl Fn(&Shared, &str, &[u8])) {
    let (agent, object, bytes) = only_stored(&world, &shared).await;
    harm(&shared, &object, &bytes);
    assert_eq!(world.reply(agent, "cat f").await, "one");
    until_base_stored(&world).await;
    let anew = world.sql(OBJECT);
    let found = shared.get(&anew).expect("it was put again");
    assert!(anew.ends_with(&sha256(&found)), "{anew} is something else");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_the_store_lost_is_put_again() {
    let lose = |shared: &Shared, name: &str, _: &[u8]| match shared {
        Shared::Bucket(server) => server.delete(name),
        Shared::Folder(_) => panic!("it is a bucket"),
    };
    let shared = Shared::bucket();
    is_made_anew(world(shared.config()).await, shared, lose).await;
}

/// The same image gives the same bytes under the same name, and the wrong ones are as many: no size tells that it has
/// to be put over.
#[tokio::test(flavor = "multi_thread")]
async fn a_base_of_other_bytes_is_put_over() {
    let flip = |shared: &Shared, name: &str, bytes: &[u8]| {
        let mut other = bytes.to_vec();
        other[0] ^= 1;
        shared.put(name, &other);
    };
    let shared = Shared::bucket();
    is_made_anew(on_docker(&shared).await, shared, flip).await;
}

/// The next message is parked, with the base and the way out.
async fn is_asked_about(world: World, agent: AgentId) {
    let parked = world.say(agent, "cat f").await;
    assert_eq!(parked.outcome, Some(MessageOutcome::Parked));
    let base = world.sql("SELECT id FROM bases");
    let told = parked.reply.expect("a notice").text;
    assert!(
        told.contains(&format!("base {base} of this state is missing")),
        "{told}"
    );
    assert!(told.contains("mayfly agent new"), "{told}");
    world.end().await;
}

/// No image has it: waiting would be for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_parked_where_nobody_has_its_base() {
    let shared = Shared::bucket();
    let world = world(shared.config()).await;
    let (agent, object, bytes) = only_stored(&world, &shared).await;
    world.change("UPDATE bases SET image = image || '#imported'");
    shared.put(&object, &bytes[..bytes.len() / 2]);
    is_asked_about(world, agent).await;
}

/// It came with an import, and where it lay is no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_parked_where_nobody_ever_stored_its_base() {
    let shared = Shared::folder();
    let world = world(shared.config()).await;
    let (agent, _, _) = only_stored(&world, &shared).await;
    world.change("UPDATE bases SET image = image || '#imported', stored_at = NULL, digest = NULL");
    is_asked_about(world, agent).await;
}

/// Another worker may have it, and puts it in a moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_another_worker_may_have_is_waited_for() {
    let shared = Shared::folder();
    let world = shared_world(shared.config()).await;
    let (agent, object, bytes) = only_stored(&world, &shared).await;
    let stored = world.sql("SELECT digest, stored_at FROM bases");
    let [digest, at] = &stored.split('|').collect::<Vec<_>>()[..] else {
        panic!("{stored}")
    };
    world.change("UPDATE bases SET image = image || '#imported', stored_at = NULL, digest = NULL");
    let waiting = world.post(agent, "cat f").await;
    until_told(&world, &waiting).await;
    shared.put(&object, &bytes);
    world.change(&format!(
        "UPDATE bases SET digest = '{digest}', stored_at = {at}"
    ));
    let answered = world.outcome(&waiting).await;
    assert_eq!(answered.outcome, Some(MessageOutcome::Answered));
    world.end().await;
}
