//! How many messages a second are accepted for good: each in a transaction that is on the disk before its
//! sender is told.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use mayfly_domain::{AgentId, Author};
use mayfly_orchestrator::{command::Send, sandbox::fake::Fake};

use super::{figure::Report, points::ms};
use crate::{
    postgres::Cluster,
    world::{Rows, Setup, World},
};

/// How long each is measured.
const SPAN: Duration = Duration::from_secs(5);
/// Senders at once; each waits for its answer before it sends again.
const SENDERS: [usize; 3] = [1, 16, 64];
/// Milliseconds per message where many send: 1,000 a second.
const EACH: f64 = 1.0;

/// Measures all of it with the data dir in this folder, on SQLite and on a PostgreSQL server of its own that
/// writes as durably.
pub async fn run(parent: &Path) -> Report {
    let mut report = Report::default();
    let cluster = Cluster::start(&["fsync=on", "full_page_writes=on"]);
    for senders in SENDERS {
        let goal = (senders > 1).then_some(EACH);
        measure(
            &mut report,
            parent,
            ("SQLite", Rows::AsWanted),
            senders,
            goal,
        )
        .await;
        let url = cluster.database(&format!("accept{senders}"));
        measure(
            &mut report,
            parent,
            ("PostgreSQL", Rows::At(url)),
            senders,
            None,
        )
        .await;
    }
    report
}

async fn measure(
    report: &mut Report,
    parent: &Path,
    (name, rows): (&str, Rows),
    senders: usize,
    goal: Option<f64>,
) {
    let setup = Setup {
        rows,
        ..Setup::default()
    };
    let world = World::fake_in(setup, Fake::new, parent).await;
    let agents: Vec<AgentId> = join_all((0..senders).map(|_| world.shell())).await;
    // What is accepted is not run: it would be the ticks that are measured.
    world.rest().await;
    let began = Instant::now();
    let sending = agents.iter().map(|agent| sender(&world, *agent, began));
    let took: Vec<f64> = join_all(sending).await.into_iter().flatten().collect();
    let each = ms(began.elapsed()) / took.len() as f64;
    let figure = format!("{name}, {senders} at once");
    report.value(&format!("accept, {figure}"), "ms", goal, each, took.len());
    report.samples(&format!("until accepted, {figure}"), "ms", None, &took);
    world.end().await;
}

async fn sender(world: &World, agent: AgentId, began: Instant) -> Vec<f64> {
    let mut took = Vec::new();
    while began.elapsed() < SPAN {
        let send = Send {
            text: "how are you?".to_owned(),
            files: Vec::new(),
            author: Author::local("tester"),
            idempotency_key: None,
            sandbox: None,
        };
        let sent = Instant::now();
        world.commands().send(agent, send).await.expect("accepted");
        took.push(ms(sent.elapsed()));
    }
    took
}
