//! What an agent's states cost is added up once and remembered: the figure is right after everything
//! that changes it.

use std::collections::BTreeMap;

use mayfly_domain::AgentId;
use mayfly_orchestrator::{
    agent::profile::Profile,
    command::portable::{ExportAs, ExportTo, ImportFrom},
    retention::RetentionOverride,
    sandbox::fake::Fake,
    snapshot::merging,
};
use mayfly_tests::world::{Setup, World};

/// What a read tells about each of these, own and shared; it must be what the rows add up to.
async fn told(world: &World, agents: &[AgentId]) -> BTreeMap<AgentId, (u64, u64)> {
    let db = &world.service().worker().tools.db;
    let mut all = BTreeMap::new();
    for agent in agents {
        let view = world.commands().agent_with_disk(*agent).await.unwrap();
        let disk = view.disk.unwrap();
        let figure = (disk.own_bytes, disk.shared_bytes);
        let summed = db.relatives(*agent).await.unwrap().disk_of(*agent);
        assert_eq!(figure, summed, "own and shared bytes of {agent}");
        all.insert(*agent, figure);
    }
    all
}

/// A world whose profile `kept` keeps the head only.
async fn world() -> World {
    let mut setup = Setup::default();
    let profile = Profile {
        limits: setup.limits.clone(),
        retention: RetentionOverride {
            keep_ticks: Some(1),
            ..RetentionOverride::default()
        },
        ..Profile::default()
    };
    setup.profiles.push(("kept".to_owned(), profile));
    World::fake(setup, Fake::new).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_states_cost_is_right_after_each_change() {
    let world = world().await;
    let commands = world.commands();
    let keeper = world.agent("kept").await.unwrap();
    let agent = world.shell().await;
    for n in 0..4 {
        world.reply(keeper, &format!("echo {n} > f{n}")).await;
        world.reply(agent, &format!("echo {n} > f{n}")).await;
    }
    let before = told(&world, &[agent, keeper]).await;
    world.reply(agent, "echo more > g").await;
    let after = told(&world, &[agent, keeper]).await;
    assert!(after[&agent].0 > before[&agent].0, "a tick: {after:?}");

    let fork = commands.fork(agent, None).await.unwrap().id;
    let forked = told(&world, &[agent, fork]).await;
    assert_eq!(forked[&agent], (0, after[&agent].0), "a fork: {forked:?}");
    world.reply(fork, "echo fork > f").await;
    let ran = told(&world, &[agent, fork]).await;
    assert!(ran[&fork].0 > 0, "its own tick: {ran:?}");
    assert_eq!(ran[&agent], forked[&agent]);

    // From here on nothing but this test is at work.
    world.rest().await;
    commands.rollback(fork, None).await.unwrap();
    told(&world, &[agent, fork]).await;
    commands.remove_agent(fork, true).await.unwrap();
    let alone = told(&world, &[agent]).await;
    assert_eq!(alone[&agent].1, 0, "rm of the fork: {alone:?}");

    let full = told(&world, &[keeper]).await;
    let view = world.gc().await;
    assert!(view.states > 0, "{view:?}");
    told(&world, &[agent, keeper]).await;
    merging::merge(&world.service().worker().tools, keeper)
        .await
        .unwrap();
    assert_eq!(world.sql("SELECT count(*) FROM merges"), "1");
    let merged = told(&world, &[keeper]).await;
    assert_ne!(merged, full, "a merge");
    world.gc().await;
    let collected = told(&world, &[keeper]).await;
    assert_ne!(collected, merged, "a collection");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_imported_agent_costs_is_told_beside_its_origin() {
    let world = world().await;
    let agent = world.shell().await;
    for n in 0..3 {
        world.reply(agent, &format!("echo {n} > f{n}")).await;
    }
    let before = told(&world, &[agent]).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.tar");
    let prepared = world
        .commands()
        .prepare_export(agent, None, ExportAs::default());
    let prepared = prepared.await.unwrap();
    prepared.write(ExportTo::File(file.clone())).await.unwrap();
    let imported = world.commands().import(ImportFrom::Path(file)).await;
    let copy = imported.unwrap().agent.id;
    assert_ne!(copy, agent);
    let both = told(&world, &[agent, copy]).await;
    assert_eq!(both[&agent], before[&agent]);
    assert!(both[&copy].0 > 0, "{both:?}");
    // The first read of the copy was before its tick.
    world.reply(copy, "echo more > g").await;
    let on = told(&world, &[agent, copy]).await;
    assert!(on[&copy].0 > both[&copy].0, "{on:?}");
    world.end().await;
}

/// Its layer is in a merged form, and the state is not gone: a younger one stands on it.
#[tokio::test(flavor = "multi_thread")]
async fn what_states_cost_is_right_after_one_layer_is_forgotten() {
    let world = world().await;
    let (commands, tools) = (world.commands(), &world.service().worker().tools);
    let agent = world.shell().await;
    for n in 0..4 {
        world.reply(agent, &format!("echo {n} > f{n}")).await;
    }
    let ticks = commands.ticks(agent).await.unwrap();
    let first = commands.fork(agent, Some(ticks[0].id)).await.unwrap().id;
    world.rest().await;
    let second = ticks[1].after;
    let pinned = tools.db.pin(agent, &[second]).await.unwrap().unwrap();
    merging::merge_state(tools, agent, second.unwrap())
        .await
        .unwrap();
    let days = 100 * 24 * 60 * 60 * 1000_i64;
    world.change(&format!(
        "UPDATE snapshots SET created_at = created_at - {days}"
    ));
    let read = world.gc().await;
    assert!(read.states > 0 && read.layers == 0, "{read:?}");
    let before = told(&world, &[agent, first]).await;
    drop(pinned);
    assert_eq!(world.gc().await.layers, 1);
    let after = told(&world, &[agent, first]).await;
    assert_ne!(after, before);
    world.end().await;
}
