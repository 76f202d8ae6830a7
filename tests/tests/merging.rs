//! A chain is merged while everything else goes on: rollbacks, forks, readers, collections.

use std::{path::Path, time::Duration};

use mayfly_domain::AgentId;
use mayfly_orchestrator::{
    agent::profile::Profile,
    command::RequestError,
    db::depot::NewLayer,
    retention::RetentionOverride,
    sandbox::fake::Fake,
    snapshot::{Slot, merging},
    view::TickView,
};
use mayfly_tests::world::{Setup, World};

const TICKS: usize = 14;

/// An agent whose tick N wrote N into `f`; only so many of the newest states are kept.
async fn chained(keep_ticks: u64) -> (World, AgentId, Vec<TickView>) {
    let mut setup = Setup::default();
    let profile = Profile {
        limits: setup.limits.clone(),
        retention: RetentionOverride {
            keep_ticks: Some(keep_ticks),
            ..RetentionOverride::default()
        },
        ..Profile::default()
    };
    setup.profiles.push(("kept".to_owned(), profile));
    let world = World::fake(setup, Fake::new).await;
    let agent = world.agent("kept").await.unwrap();
    for n in 0..TICKS {
        world
            .reply(agent, &format!("echo {n} > f; echo {n} > f{n}"))
            .await;
    }
    let ticks = world.commands().ticks(agent).await.unwrap();
    (world, agent, ticks)
}

/// The number in `f` of the agent's state, read as an export does: with a pin, from the folders.
async fn read(world: &World, agent: AgentId, tick: &TickView) -> Option<String> {
    let tools = &world.service().worker().tools;
    let pinned = tools.db.pin(agent, &[tick.after]).await.unwrap()?;
    let state = pinned.states[0].clone();
    // Long enough for a collection to come between.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let lowers = tools.store.lowers(&state.base, &state.layers, "work");
    assert_eq!(
        lowers.len(),
        state.layers.len() + 1,
        "a layer went away under a reader"
    );
    let found = lowers
        .iter()
        .map(|lower| lower.join("f"))
        .find(|path| path.exists());
    Some(
        std::fs::read_to_string(found.expect("f is in each state"))
            .unwrap()
            .trim()
            .to_owned(),
    )
}

fn refused_as_gone(error: &RequestError) -> bool {
    matches!(error, RequestError::Conflict(text)
        if text.contains("not kept any more") || text.contains("changed meanwhile"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_is_raced_by_rollbacks_forks_readers_and_collections() {
    let (world, agent, ticks) = chained(12).await;
    let tools = world.service().worker().tools.clone();
    let merges = async {
        for n in 0..40 {
            merging::merge(&tools, agent).await.unwrap();
            let state = ticks[n % TICKS].after.unwrap();
            merging::merge_state(&tools, agent, state).await.unwrap();
        }
    };
    let rollbacks = async {
        for n in 0..60 {
            let to = ticks[(n * 5) % TICKS].id;
            if let Err(error) = world.commands().rollback(agent, Some(to)).await {
                assert!(refused_as_gone(&error), "{error}");
            }
        }
    };
    let forks = async {
        let mut made = Vec::new();
        for n in 0..24 {
            let at = (n * 3) % TICKS;
            match world.commands().fork(agent, Some(ticks[at].id)).await {
                Ok(fork) => made.push((fork.id, at)),
                Err(error) => assert!(refused_as_gone(&error), "{error}"),
            }
        }
        made
    };
    let readers = async {
        let mut read_some = 0;
        for n in 0..40 {
            let at = (n * 7) % TICKS;
            if let Some(found) = read(&world, agent, &ticks[at]).await {
                assert_eq!(found, at.to_string());
                read_some += 1;
            }
        }
        read_some
    };
    let collections = async {
        for _ in 0..60 {
            world.gc().await;
        }
    };
    let ((), (), forks, read_some, ()) =
        tokio::join!(merges, rollbacks, forks, readers, collections);
    assert!(
        forks.len() > 10 && read_some > 20,
        "{} {read_some}",
        forks.len()
    );
    for (fork, at) in forks.into_iter().step_by(3) {
        assert_eq!(world.reply(fork, "cat f").await, at.to_string());
    }
    let last = &ticks[TICKS - 1];
    world
        .commands()
        .rollback(agent, Some(last.id))
        .await
        .unwrap();
    let all = "cat f; cat f0 f7 f13";
    assert_eq!(world.reply(agent, all).await, "13\n0\n7\n13");
    assert_no_strays(&world).await;
    world.end().await;
}

/// A layer without a row, or a row without a layer, is a leak or a hole.
async fn assert_no_strays(world: &World) {
    world.gc().await;
    let rows = world.sql("SELECT id FROM layers ORDER BY id");
    let mut folders = names(&world.data_dir().join("l"));
    folders.sort();
    assert_eq!(folders.join("\n"), rows);
    assert_eq!(names(&world.data_dir().join("u")), Vec::<String>::new());
}

/// The state expires while its chain is being merged: the merged layer is no one's.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_expires_meanwhile_gets_no_merged_layer() {
    let (world, agent, ticks) = chained(12).await;
    let tools = &world.service().worker().tools;
    world.gc().await;
    let expired = ticks[0].after.unwrap();
    assert!(tools.db.is_expired(expired).await.unwrap());
    let layer = mayfly_domain::LayerId::new();
    let new_layer = NewLayer {
        id: &layer,
        size: Default::default(),
        holder: None,
        parcel: None,
    };
    assert!(!tools.db.insert_merge(expired, &new_layer).await.unwrap());
    merging::merge_state(tools, agent, expired).await.unwrap();
    assert_no_strays(&world).await;
    world.end().await;
}

/// More names of one file than the file system allows: the merged layer holds a copy.
#[tokio::test(flavor = "multi_thread")]
async fn too_many_links_become_a_copy_and_the_chain_goes_on() {
    let world = World::docker().await;
    let agent = world.shell().await;
    let link = "echo content >f; mkdir l; python3 -c 'import os\n\
                for n in range(40000): os.link(\"f\", f\"l/{n}\")'; ls l | wc -l";
    assert_eq!(world.reply(agent, link).await, "40000");
    for n in 0..13 {
        world.reply(agent, &format!("echo {n} >g{n}")).await;
    }
    world
        .until_sql("SELECT count(*) > 0 FROM merges", "1")
        .await;
    let look = "ls l | wc -l; cat l/0 l/39999 f; test l/0 -ef l/39999 && echo linked";
    assert_eq!(
        world.reply(agent, look).await,
        "40000\ncontent\ncontent\ncontent\nlinked"
    );
    world.end().await;
}

/// What a tick mounts is written down with its claim, and never more than the limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_tick_keeps_what_it_mounts() {
    let (world, agent, ticks) = chained(1).await;
    let most = "SELECT max(json_array_length(lowers)) <= 16 FROM ticks";
    assert_eq!(world.sql(most), "1");
    let running = world.post(agent, "sleep 1; cat f0 f13").await;
    let open = "SELECT count(*) FROM ticks WHERE outcome IS NULL";
    world.until_sql(open, "1").await;
    let lowers = "SELECT lowers FROM ticks WHERE outcome IS NULL";
    let lowers: Vec<String> = serde_json::from_str(&world.sql(lowers)).unwrap();
    let head = ticks[TICKS - 1].after;
    let tools = &world.service().worker().tools;
    merging::merge(tools, agent).await.unwrap();
    world.gc().await;
    assert_eq!(world.commands().agent(agent).await.unwrap().head, head);
    assert!(lowers.len() > 1, "{lowers:?}");
    for layer in &lowers {
        assert!(
            world.data_dir().join("l").join(layer).is_dir(),
            "{layer} is mounted"
        );
    }
    let settled = world.outcome(&running).await;
    assert_eq!(settled.reply.unwrap().text, "0\n13");
    world.end().await;
}

/// A merged layer shows what its chain shows, to the slot.
#[tokio::test(flavor = "multi_thread")]
async fn a_merged_chain_is_one_layer() {
    let (world, agent, ticks) = chained(12).await;
    let tools = &world.service().worker().tools;
    merging::merge(tools, agent).await.unwrap();
    let layers = tools.db.layers_of(ticks[TICKS - 1].after).await.unwrap();
    assert_eq!(layers.len(), 1);
    let slots: Vec<String> = Slot::defaults().into_iter().map(|slot| slot.name).collect();
    for found in names(&world.data_dir().join("l").join(layers[0].as_str())) {
        assert!(slots.contains(&found), "{found}");
    }
    world.end().await;
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
