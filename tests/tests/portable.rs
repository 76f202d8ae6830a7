//! An agent that travels: out of one installation, into another that never saw its image, and on.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
};

use mayfly_domain::AgentId;
use mayfly_orchestrator::{
    command::{
        RequestError,
        portable::{ExportAs, ExportTo, ImportFrom},
    },
    sandbox::fake::Fake,
    snapshot::oci::Compress,
    view::{ImportView, TickView},
};
use mayfly_tests::world::{Setup, World};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

async fn world() -> World {
    World::fake(Setup::default(), Fake::new).await
}

async fn export(world: &World, agent: AgentId, how: ExportAs, to: ExportTo) {
    let prepared = world.commands().prepare_export(agent, None, how).await;
    prepared.unwrap().write(to).await.unwrap();
}

async fn import(world: &World, from: &std::path::Path) -> Result<ImportView, RequestError> {
    let from = ImportFrom::Path(from.to_owned());
    world.commands().import(from).await
}

/// What `agent log` shows, but for what a removal of earlier layers may change.
async fn log(world: &World, agent: AgentId) -> Vec<TickView> {
    world.commands().ticks(agent).await.unwrap()
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_goes_on_where_it_is_imported() {
    let (here, there) = (world().await, world().await);
    let agent = here.shell().await;
    here.reply(agent, "echo one > note; echo said one").await;
    here.reply(agent, "echo two >> note; mkdir d; echo x > d/x")
        .await;
    here.reply(agent, "exit 3").await;
    let out = folder();
    for compress in [Compress::Gzip, Compress::Zstd, Compress::None] {
        let how = ExportAs {
            compress,
            ..ExportAs::default()
        };
        let to = out.path().join(format!("{compress:?}.tar"));
        export(&here, agent, how, ExportTo::File(to)).await;
    }
    let view = import(&there, &out.path().join("Gzip.tar")).await.unwrap();
    assert_eq!(view.agent.id, agent, "nobody has the id there");
    assert_eq!(log(&here, agent).await, log(&there, agent).await);
    let tick = log(&here, agent).await[0].id;
    let transcript = |world: &World| {
        let commands = world.commands().clone();
        async move { commands.tick(tick).await.unwrap().transcript }
    };
    assert_eq!(transcript(&here).await, transcript(&there).await);
    let first = here
        .commands()
        .message(log(&here, agent).await[0].message)
        .await
        .unwrap();
    let same = there.commands().message(first.id).await.unwrap();
    assert_eq!(first, same);
    assert_eq!(
        there.reply(agent, "cat note d/x").await.trim(),
        "one\ntwo\nx"
    );
    // Back to the state after its first tick, which was another installation's.
    there.commands().rollback(agent, Some(tick)).await.unwrap();
    assert_eq!(there.reply(agent, "cat note").await.trim(), "one");
    // A second import is another agent, with a history of its own.
    let again = import(&there, &out.path().join("Zstd.tar")).await.unwrap();
    assert_ne!(again.agent.id, agent);
    assert_eq!(again.was, agent);
    let titles = |ticks: Vec<TickView>| -> Vec<String> {
        ticks.into_iter().map(|tick| tick.title).collect()
    };
    let copy = again.agent.id;
    assert_eq!(
        titles(log(&here, agent).await),
        titles(log(&there, copy).await)
    );
    assert_eq!(there.reply(copy, "cat note").await.trim(), "one\ntwo");
    assert_eq!(
        there.sql("SELECT count(*) FROM bases"),
        "1",
        "one base is enough"
    );
    here.end().await;
    there.end().await;
}

/// Another name of as many letters, the same ones, so that its header's sum still holds; then every
/// document that names a changed one by its digest.
fn misplace(layout: &Path, name: &str, other: &str) {
    let blobs = layout.join("blobs/sha256");
    let mut changes = VecDeque::from([(name.to_owned(), other.to_owned())]);
    while let Some((from, to)) = changes.pop_front() {
        let stored = std::fs::read_dir(&blobs).unwrap();
        let stored = stored.map(|entry| entry.unwrap().path());
        let places: Vec<PathBuf> = stored.chain([layout.join("index.json")]).collect();
        for path in places {
            let mut content = std::fs::read(&path).unwrap();
            let found = content.windows(from.len());
            let Some(at) = found.into_iter().position(|part| part == from.as_bytes()) else {
                continue;
            };
            content[at..at + to.len()].copy_from_slice(to.as_bytes());
            std::fs::write(&path, &content).unwrap();
            let old = path.file_name().unwrap().to_str().unwrap().to_owned();
            if old != "index.json" {
                let new = hex::encode(Sha256::digest(&content));
                std::fs::rename(&path, blobs.join(&new)).unwrap();
                changes.push_back((old, new));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sn_12_a_broken_archive_leaves_no_row_and_no_file() {
    let (here, there) = (world().await, world().await);
    let agent = here.shell().await;
    let noise: String = (0..25_000)
        .map(|_| format!("{:08x}", rand::random::<u32>()))
        .collect();
    let said = here
        .reply(agent, &format!("echo {noise} > noise; echo kept"))
        .await;
    assert_eq!(said.trim(), "kept");
    let out = folder();
    let path = out.path().join("a.tar");
    export(
        &here,
        agent,
        ExportAs::default(),
        ExportTo::File(path.clone()),
    )
    .await;
    let whole = std::fs::read(&path).unwrap();
    for at in [whole.len() / 3, whole.len() / 2, whole.len() - 3000] {
        let mut broken = whole.clone();
        broken[at] ^= 1;
        std::fs::write(&path, &broken).unwrap();
        let error = import(&there, &path).await.unwrap_err();
        assert!(matches!(error, RequestError::Invalid(_)), "{error}");
    }
    // One that is broken only behind its base, by somebody who has made all digests right again.
    let layout = out.path().join("layout");
    let how = ExportAs {
        compress: Compress::None,
        ..ExportAs::default()
    };
    export(&here, agent, how, ExportTo::Folder(layout.clone())).await;
    misplace(&layout, "work/noise", "wrok/noise");
    let error = import(&there, &layout).await.unwrap_err().to_string();
    assert!(error.contains("outside of the slots"), "{error}");
    for table in [
        "agents",
        "layers",
        "bases",
        "snapshots",
        "ticks",
        "messages",
    ] {
        let count = there.sql(&format!("SELECT count(*) FROM {table}"));
        assert_eq!(count, "0", "{table}");
    }
    for place in ["l", "u", "b", "t", "transcripts"] {
        let left = std::fs::read_dir(there.data_dir().join(place));
        let left = left.map(|entries| entries.count()).unwrap_or_default();
        assert_eq!(left, 0, "{place}");
    }
    here.end().await;
    there.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_pinned_until_it_is_written_and_a_removed_agent_is_still_exported() {
    let world = world().await;
    let agent = world.shell().await;
    world.reply(agent, "echo kept > file").await;
    let prepared = world
        .commands()
        .prepare_export(agent, None, ExportAs::default())
        .await
        .unwrap();
    world.commands().remove_agent(agent, false).await.unwrap();
    mayfly_orchestrator::reconcile::garbage(&world.service().worker().tools)
        .await
        .unwrap();
    let out = folder();
    let to = out.path().join("layout");
    prepared.write(ExportTo::Folder(to.clone())).await.unwrap();
    let view = import(&world, &to).await.unwrap();
    assert_eq!(world.reply(view.agent.id, "cat file").await.trim(), "kept");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn imports_of_one_archive_at_once_while_garbage_is_collected_are_agents_of_their_own() {
    let (here, there) = (world().await, world().await);
    let agent = here.shell().await;
    for n in 0..4 {
        here.reply(agent, &format!("echo {n} >> note; echo {n} > f{n}"))
            .await;
    }
    let out = folder();
    let path = out.path().join("a.tar");
    let to = ExportTo::File(path.clone());
    export(&here, agent, ExportAs::default(), to).await;
    let collect = async {
        for _ in 0..20 {
            there.gc().await;
            let tools = &there.service().worker().tools;
            mayfly_orchestrator::reconcile::folders(tools)
                .await
                .unwrap();
            tokio::task::yield_now().await;
        }
    };
    let imports = futures_util::future::join_all((0..4).map(|_| import(&there, &path)));
    let (imports, ()) = tokio::join!(imports, collect);
    let ids: Vec<AgentId> = imports
        .into_iter()
        .map(|done| done.unwrap().agent.id)
        .collect();
    let kept = ids.iter().filter(|id| **id == agent).count();
    assert_eq!(kept, 1, "one has the ids of the archive: {ids:?}");
    there.gc().await;
    for id in &ids {
        let titles = log(&there, *id).await.len();
        assert_eq!(titles, 4);
        assert_eq!(
            there.reply(*id, "cat note f0 f3").await.trim(),
            "0\n1\n2\n3\n0\n3"
        );
    }
    assert_eq!(there.sql("SELECT count(*) FROM agents"), "4");
    here.end().await;
    there.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fifth_export_at_once_is_refused_until_one_has_ended() {
    let world = world().await;
    let agent = world.shell().await;
    world.reply(agent, "echo one > note").await;
    let commands = world.commands();
    let prepare = || commands.prepare_export(agent, None, ExportAs::default());
    let mut under_way = Vec::new();
    for _ in 0..4 {
        under_way.push(prepare().await.unwrap());
    }
    let refused = prepare().await.err().unwrap();
    assert!(
        matches!(&refused, RequestError::Unavailable(told) if told.contains("4 exports")),
        "{refused}"
    );
    let out = folder();
    let one = under_way.pop().unwrap();
    one.write(ExportTo::File(out.path().join("a.tar")))
        .await
        .unwrap();
    prepare().await.unwrap();
    drop(under_way);
    world.end().await;
}

/// What was merged into a message travels with it, and is run with it again where that is tried again.
#[tokio::test(flavor = "multi_thread")]
async fn p1_what_was_merged_stays_with_its_message_where_it_is_imported() {
    let (here, there) = (world().await, world().await);
    let agent = here.shell().await;
    let first = here.say(agent, "echo first").await.id;
    let second = here.say(agent, "echo second").await.id;
    here.change(&format!(
        "UPDATE messages SET outcome = 'parked', reason = 'test' WHERE id = '{first}'"
    ));
    here.change(&format!(
        "UPDATE messages SET outcome = 'merged', merged_into = '{first}' WHERE id = '{second}'"
    ));
    here.change(&format!(
        "DELETE FROM deliveries WHERE message = '{second}'"
    ));
    let out = folder();
    let to = || out.path().join("a.tar");
    let how = ExportAs::default;
    export(&here, agent, how(), ExportTo::File(to())).await;
    // The first copy keeps its ids, the second gets new ones.
    for _ in 0..2 {
        let copy = import(&there, &to()).await.unwrap().agent.id;
        let parked = there.commands().parked().await.unwrap();
        let parked = parked.iter().find(|message| message.agent == copy).unwrap();
        let again = there
            .commands()
            .retry(&parked.id.to_string())
            .await
            .unwrap();
        let answered = there.outcome(&again).await;
        assert_eq!(
            answered.reply.unwrap().text,
            "first\nsecond",
            "of agent {copy}"
        );
    }
    // One that is open stays where it is, and so does what was merged into it.
    here.rest().await;
    here.change(&format!(
        "UPDATE messages SET outcome = NULL WHERE id = '{first}'"
    ));
    let to = out.path().join("b.tar");
    export(&here, agent, how(), ExportTo::File(to.clone())).await;
    let alone = import(&there, &to).await.unwrap().agent.id;
    let messages = format!("SELECT count(*) FROM messages WHERE agent = '{alone}'");
    assert_eq!(there.sql(&messages), "0");
    here.change(&format!(
        "UPDATE messages SET outcome = 'parked' WHERE id = '{first}'"
    ));
    here.end().await;
    there.end().await;
}
