//! Reconcilers: each restores one invariant, idempotently, and takes no input. They close ticks
//! first and delete second. [`orphans`] runs at start, and again and again from then on, [`strays`] from then on until it has been
//! through once, [`folders`] whenever something may have been left, the others by period.
//!
//! | invariant | how |
//! |---|---|
//! | no lease that is long over | [`the_dead`] ends its worker's epoch |
//! | no open tick without a living worker | [`orphans`] closes it by the crash policy |
//! | no sandbox of a closed tick | [`leftovers`] removes it, then its folders |
//! | no stray on the engine | [`strays`] removes what no open tick names |
//! | no folder without a row | [`folders`] removes layers and uppers nobody names |
//! | no lane with work that the queue does not know | [`lanes`] offers it, one process in turn |
//! | no lane that the queue has put aside | [`put_aside`] parks its next message |
//! | no chain near the mount limit | [`chains`] merges it |
//! | no image in use that a prune loses | [`keep_images`] marks it, archives it, forgets it |
//! | no platform event that nobody can repeat any more | [`old_events`] forgets it |
//! | no state beyond its profile's retention, no layer, base or blob that nothing needs | [`garbage`] removes it |

use std::{sync::atomic::Ordering, time::Duration};

use futures_util::future::join_all;
use mayfly_domain::{AgentId, LayerId};

use crate::{
    clock::{self, STALE},
    db::ticks::Tick,
    faults,
    images::ImagesError,
    observe,
    sandbox::Found,
    snapshot::merging,
    tick::{TickError, Tools, blocking, destroy},
    worker::Worker,
};

/// Between two rounds.
const PERIOD: Duration = Duration::from_secs(5);
/// Longest pause until it is asked again whose turn it is to tell the queue who waits. A queue that was emptied knows it again
/// after this, or after twice this and [`TURN`](crate::queue::TURN) where whoever had the turn died: 4 s.
const ASK: Duration = Duration::from_secs(1);
/// How long a worker has to have its lease, and to run, before it declares others dead.
const STEADY: Duration = Duration::from_secs(20);
/// How often folders are looked for whose rows another worker has removed.
const FORGOTTEN_BY_OTHERS: Duration = Duration::from_secs(10 * 60);
/// Folders whose rows are looked up at once.
const LOOKED_UP: usize = 500;
/// How long a platform's events are kept after they were applied, in milliseconds: a week.
const KEPT_EVENTS: i64 = 7 * 24 * 60 * 60 * 1000;
/// Rows forgotten in one round.
const FORGOTTEN: i64 = 1000;
/// Why a message is parked that no worker survived.
const DIED: &str = "every worker that took it died before it could begin";
/// Init ends a sandbox that hears of no worker for 15 s; this worker's last start is dead since before this one began.
pub(crate) const ENDS_BY_ITSELF: Duration = Duration::from_secs(STALE.as_secs() + 3);
/// Patience with an engine while a start waits for it.
const SHORTLY: Duration = Duration::from_secs(2);
/// Patience of one removal; the next round goes on.
const PATIENCE: Duration = Duration::from_secs(10);

/// Brings a fresh start to a clean state before the first tick: what an earlier start left open
/// is closed and runs again by the crash policy. What it left on the engine is removed by
/// [`serve`], which needs the engine's answer.
pub async fn at_start(worker: &Worker) -> Result<(), TickError> {
    let tools = &worker.tools;
    orphans(tools).await?;
    tools.db.release_pins_of_the_dead().await?;
    faults::point("reconcile.closed");
    tools
        .host_disk
        .make_ballast()
        .unwrap_or_else(|error| tracing::warn!(%error, "no ballast"));
    lanes(worker).await
}

/// Goes on until the process comes to rest.
pub async fn serve(worker: Worker) -> Result<(), TickError> {
    let tools = &worker.tools;
    let stopping = tools.supervisor.stopping();
    // What a dead start left without a row: looked for until it could be looked for once.
    let mut strays_left = true;
    let mut looked = clock::boot_time();
    while !stopping.is_cancelled() {
        if !worker.role.has_engine() {
            note("blobs", tools.keeper.round().await);
            note("old events", old_events(tools).await);
            let _ = stopping
                .run_until_cancelled(tokio::time::sleep(PERIOD))
                .await;
            continue;
        }
        if tools.db.is_shared() && clock::boot_time().saturating_sub(looked) > FORGOTTEN_BY_OTHERS {
            looked = clock::boot_time();
            tools.left.store(true, Ordering::Release);
        }
        note("leftovers", leftovers(tools).await);
        strays_left = strays_left && !note("strays", strays(tools).await);
        // Taken before the look: what is left from now on is for the next.
        if tools.left.swap(false, Ordering::AcqRel) && !note("folders", folders(tools).await) {
            tools.left.store(true, Ordering::Release);
        }
        note("chains", chains(tools).await);
        note("garbage", garbage(tools).await);
        note("old events", old_events(tools).await);
        let ballast = tools.host_disk.clone();
        let _ = tokio::task::spawn_blocking(move || ballast.make_ballast()).await;
        // A new outcome may have made a chain longer.
        let settled = worker
            .bell
            .until(PERIOD, || async { Ok::<Option<()>, ()>(None) });
        let _ = stopping.run_until_cancelled(settled).await;
    }
    Ok(())
}

/// Tells the queue who waits until the process comes to rest: a loop of its own, because nobody waits for a
/// merge or an engine then.
pub async fn keep_lanes(worker: Worker) -> Result<(), TickError> {
    let stopping = worker.tools.supervisor.stopping();
    let rounds = async {
        loop {
            let pause = match note("lanes", lanes(&worker).await) {
                // Not all processes at one moment.
                true => ASK.mul_f64(rand::random_range(0.5..1.0)),
                // Whoever cannot read who waits leaves the next turn to another.
                false => PERIOD,
            };
            tokio::time::sleep(pause).await;
        }
    };
    let _: Option<()> = stopping.run_until_cancelled(rounds).await;
    Ok(())
}

/// Looks after what died, in workers and in the queue, until the process comes to rest: a loop of its own, because
/// it may wait for an engine's answer.
pub async fn keep_watch(worker: Worker) -> Result<(), TickError> {
    let stopping = worker.tools.supervisor.stopping();
    let rounds = async {
        loop {
            note("dead workers", dead_workers(&worker).await);
            note("lanes put aside", put_aside(&worker).await);
            tokio::time::sleep(PERIOD).await;
        }
    };
    let _: Option<()> = stopping.run_until_cancelled(rounds).await;
    Ok(())
}

async fn dead_workers(worker: &Worker) -> Result<(), TickError> {
    let db = &worker.tools.db;
    if db.is_shared() {
        the_dead(worker).await?;
    }
    let freed = orphans(&worker.tools).await?;
    if db.is_shared() {
        db.release_pins_of_the_dead().await?;
    }
    for lane in &freed {
        worker.lanes.offer(*lane, Duration::ZERO).await;
    }
    if !freed.is_empty() {
        worker.bell.ring();
    }
    Ok(())
}

/// Keeps images in use at hand until the process comes to rest: a loop of its own, because an
/// archive takes long to write.
pub async fn keep_images(worker: Worker) -> Result<(), TickError> {
    let images = &worker.tools.images;
    let stopping = worker.tools.supervisor.stopping();
    // That the engine is down is said where a message waits for it.
    let note = |what, result: Result<(), ImagesError>| match result {
        Err(ImagesError::Backend(error)) if error.is_away() => false,
        other => note(what, other.map_err(TickError::from)),
    };
    let rounds = async {
        loop {
            note("marks of images", images.forget().await);
            note("images", images.keep(worker.is_at_rest()).await);
            tokio::time::sleep(PERIOD).await;
        }
    };
    let _: Option<()> = stopping.run_until_cancelled(rounds).await;
    Ok(())
}

/// Answers whether it was done.
fn note(what: &'static str, result: Result<(), TickError>) -> bool {
    match result {
        Ok(()) => true,
        Err(error) => {
            let error = observe::chain(&error);
            tracing::warn!(what, error, "left to the next round");
            false
        }
    }
}

/// Forgets what platforms told long ago: longer than any of them repeats an event or hands over what
/// was missed. Some at a time.
pub async fn old_events(tools: &Tools) -> Result<(), TickError> {
    let now = tools.db.wall_clock().await?;
    tools.db.forget_events(now - KEPT_EVENTS, FORGOTTEN).await?;
    Ok(())
}

/// Ends the epochs of workers whose lease is long over, and what they held: a worker that was frozen or cut
/// off cannot write any more when it comes back.
pub async fn the_dead(worker: &Worker) -> Result<(), TickError> {
    let tools = &worker.tools;
    // After the database was away all leases are over. Whoever comes first leaves the others the time to
    // renew theirs.
    if !worker.is_steady(STEADY) {
        return Ok(());
    }
    for dead in tools.db.declare_dead().await? {
        tracing::warn!(worker = dead, "declared dead: its lease is over");
    }
    Ok(())
}

/// Closes what is open of starts that are over, by the crash policy; answers whose lanes are free by that.
pub async fn orphans(tools: &Tools) -> Result<Vec<AgentId>, TickError> {
    let mut freed = Vec::new();
    let found = tools.db.orphans().await?;
    let ended = join_all(found.iter().map(|tick| has_ended(tools, tick))).await;
    for (tick, ended) in found.into_iter().zip(ended) {
        if !ended {
            tracing::debug!(tick = %tick.id, "not closed yet: its sandbox may still be ending");
            continue;
        }
        let Some(message) = tools.db.message(tick.message).await? else {
            continue;
        };
        let closing = destroy::crashed(&message, tick.id, tools.attempts, &tick.effects);
        let closed = tools.db.close_tick(tick.id, tick.generation, &closing);
        // Else another worker has closed it, or the tick itself has.
        if closed.await? {
            tracing::warn!(tick = %tick.id, agent = %tick.agent, "closed: its worker had died");
            freed.push(tick.agent);
        }
        faults::point("reconcile.orphan");
    }
    Ok(freed)
}

/// Whether nothing of it runs any more. A start that comes quickly after the last one's death may find a sandbox
/// that has not noticed it yet: the engine is asked, until init has ended it in any case.
async fn has_ended(tools: &Tools, tick: &Tick) -> bool {
    let ours = !tools.db.is_shared() || tick.worker == tools.owner.worker;
    let by_itself = clock::boot_time().saturating_sub(tools.began) > ENDS_BY_ITSELF;
    let removed = tokio::time::timeout(SHORTLY, tools.backend.remove(&tick.names, SHORTLY));
    !ours || by_itself || matches!(removed.await, Ok(Ok(_)))
}

/// Removes the sandboxes of closed ticks, then what they wrote. One that cannot be removed does
/// not keep the others.
pub async fn leftovers(tools: &Tools) -> Result<(), TickError> {
    let mut last = Ok(());
    let unremoved = tools.db.unremoved().await?;
    if !unremoved.is_empty() {
        // What is away is not waited for: the round has more to do.
        tools.backend.engine().await?;
    }
    for tick in unremoved {
        if let Err(error) = leftover(tools, &tick).await {
            let away = matches!(&error, TickError::Backend(error) if error.is_away());
            last = Err(error);
            if away {
                break;
            }
        }
    }
    last
}

async fn leftover(tools: &Tools, tick: &Tick) -> Result<(), TickError> {
    tools.backend.remove(&tick.names, PATIENCE).await?;
    faults::point("reconcile.gone");
    if !tools.db.knows_layer(&tick.layer).await? {
        remove_folders(tools, &tick.layer).await?;
    }
    faults::point("reconcile.removed");
    tools.db.mark_removed(tick.id).await?;
    tools.keeper.touch(tick.agent);
    Ok(())
}

async fn remove_folders(tools: &Tools, layer: &LayerId) -> Result<(), TickError> {
    let (store, layer) = (tools.store.clone(), layer.clone());
    let removed = blocking(move || {
        store
            .discard(&layer)
            .and_then(|()| store.remove_layer(&layer))
    });
    Ok(removed.await??)
}

/// Removes things with our labels and prefix that no open tick names.
pub async fn strays(tools: &Tools) -> Result<(), TickError> {
    let _alone = tools.making.write().await;
    let mut found = tools.backend.found(&tools.owner).await?;
    // Read after the engine was asked: whatever it names had a row before it was made.
    let open: Vec<String> = tools
        .db
        .open_names()
        .await?
        .into_iter()
        .flat_map(|names| names.volumes.into_iter().chain([names.container]))
        .collect();
    // Containers first: a volume in use cannot be removed.
    found.sort_by_key(|found| matches!(found, Found::Volume(_)));
    // One that cannot be removed does not keep the others.
    let mut last = Ok(());
    for stray in found {
        let name = match &stray {
            Found::Container(name) | Found::Volume(name) => name,
        };
        if !open.contains(name) {
            if let Err(error) = tools.backend.remove(&stray.names(), PATIENCE).await {
                let away = error.is_away();
                last = Err(error.into());
                if away {
                    break;
                }
                continue;
            }
            tracing::warn!(name, "stray removed");
            faults::point("reconcile.stray");
        }
    }
    last
}

/// Removes layer, upper and base folders that no row names: a crash came between a rename and its
/// row, or an error before a removal.
pub async fn folders(tools: &Tools) -> Result<(), TickError> {
    let _alone = tools.making.write().await;
    let store = tools.store.clone();
    let (layers, bases) = blocking(move || -> Result<_, crate::snapshot::StoreError> {
        store.empty_trash()?;
        store.discard_unfinished_bases()?;
        let mut layers = [store.list_layers()?, store.list_unsealed()?].concat();
        layers.sort_unstable();
        Ok((layers, store.list_bases()?))
    })
    .await??;
    for layers in layers.chunks(LOOKED_UP) {
        let unnamed = tools.db.unnamed_layers(layers).await?;
        for layer in tools.db.unread(unnamed).await {
            remove_folders(tools, layer).await?;
            faults::point("reconcile.folder");
        }
    }
    let known = tools.db.bases().await?;
    for base in bases {
        if !known.iter().any(|row| row.id == base) {
            let store = tools.store.clone();
            blocking(move || store.remove_base(&base)).await??;
        }
    }
    Ok(())
}

/// Offers every lane with work, where it is this process's turn: the queue may have lost it.
pub async fn lanes(worker: &Worker) -> Result<(), TickError> {
    Ok(worker.lanes.refill().await?)
}

/// Parks what the queue has put aside.
pub async fn put_aside(worker: &Worker) -> Result<(), TickError> {
    for lane in worker.lanes.dead().await {
        // Only one of several workers takes it back in.
        if !worker.lanes.forgive(lane).await {
            continue;
        }
        tracing::error!(agent = %lane, "its next message is parked: it ended every worker that took it");
        worker.tools.db.park_next(lane, DIED).await?;
        worker.bell.ring();
    }
    Ok(())
}

/// Merges chains that come near the mount limit, and those that hold much for states that have
/// expired.
pub async fn chains(tools: &Tools) -> Result<(), TickError> {
    let at_least = merging::MERGE_FROM as i64;
    // One broken chain does not keep the others long.
    let mut last: Result<(), TickError> = Ok(());
    for due in tools.keeper.chains_due() {
        let long = match tools.db.heads_with_layers(at_least, due).await {
            Ok(long) => long,
            Err(error) => {
                tools.keeper.chains_again(due);
                last = last.and(Err(error.into()));
                continue;
            }
        };
        for agent in long {
            let merged = merging::merge(tools, agent).await;
            if merged.is_err() {
                tools.keeper.chains_again(Some(agent));
            }
            last = last.and(merged);
        }
    }
    for (agent, state) in tools.keeper.worth_merging() {
        let merged = merging::merge_state(tools, agent, state).await;
        if merged.is_err() {
            tools.keeper.merge_again(agent, state);
        }
        last = last.and(merged);
    }
    last
}

/// Lets states expire and removes what no kept state, open tick or pin needs; see [`retention`].
///
/// [`retention`]: crate::retention
pub async fn garbage(tools: &Tools) -> Result<(), TickError> {
    tools.keeper.round().await
}
