//! What stays and what goes: states by count, age and bytes, then the layers that no kept state
//! needs, bases and blobs that nobody names, and images that no agent stands on.
//!
//! A head is never removed. What an open tick has mounted, what a fork stands on and what a reader
//! has pinned stays. Rows go first, in one transaction; folders are renamed into the trash second
//! and removed third, so any crash between leaves only folders that no row names. Runs for dormant
//! agents as for busy ones.

pub mod costs;
pub mod plan;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use mayfly_domain::{AgentId, BaseId, LayerId, SnapshotId};
use serde::{Deserialize, Serialize};
use tokio::sync::RwLock;

use crate::{
    agent::profile::Profiles,
    blobs::Blobs,
    clock,
    db::{Db, doomed::GRACE_MS},
    faults,
    images::Images,
    role::Role,
    snapshot::{Slot, Store},
    tick::{TickError, blocking},
    view::GcView,
};
use costs::{Cost, Costs};
use plan::{Family, Member, Plan};

/// How far back an agent's states can be gone back to. 0 is without limit; the head always stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// The newest states of an agent, its head among them.
    pub keep_ticks: u64,
    /// States not older than this.
    pub keep_days: u64,
    /// Mebibytes that the changes of kept states may take.
    pub keep_mib: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Retention {
            keep_ticks: 200,
            keep_days: 90,
            keep_mib: 4096,
        }
    }
}

impl Retention {
    fn keeps(&self, place: usize, age_ms: i64, bytes: u64) -> bool {
        let within =
            |limit: u64, unit: u64, value: u64| limit == 0 || value <= limit.saturating_mul(unit);
        within(self.keep_ticks, 1, place as u64 + 1)
            && within(self.keep_days, DAY_MS as u64, age_ms.max(0) as u64)
            && within(self.keep_mib, 1 << 20, bytes)
    }
}

/// What a profile says in place of the installation's rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionOverride {
    /// See [`Retention`].
    pub keep_ticks: Option<u64>,
    /// See [`Retention`].
    pub keep_days: Option<u64>,
    /// See [`Retention`].
    pub keep_mib: Option<u64>,
}

impl RetentionOverride {
    /// What is not said here is as in `rule`.
    pub fn over(self, rule: Retention) -> Retention {
        Retention {
            keep_ticks: self.keep_ticks.unwrap_or(rule.keep_ticks),
            keep_days: self.keep_days.unwrap_or(rule.keep_days),
            keep_mib: self.keep_mib.unwrap_or(rule.keep_mib),
        }
    }
}

impl From<Retention> for RetentionOverride {
    fn from(rule: Retention) -> Self {
        RetentionOverride {
            keep_ticks: Some(rule.keep_ticks),
            keep_days: Some(rule.keep_days),
            keep_mib: Some(rule.keep_mib),
        }
    }
}

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// A jump of the clock by more than this holds everything.
const JUMP_MS: i64 = DAY_MS;
/// So long a process has to run on a steady clock until it believes a jump.
const BELIEVED: Duration = Duration::from_secs(60 * 60);
/// How often all agents are looked at, dormant ones too.
const ALL: Duration = Duration::from_secs(60 * 60);
/// Families looked at in one round of that: nobody waits for a hundred thousand.
const AT_ONCE: i64 = 500;
/// How often what lies beside layers is looked at.
const REST: Duration = Duration::from_secs(10 * 60);

/// A request to collect by hand.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ask {
    /// Only say what would go.
    pub dry_run: bool,
    /// The clock is right although it jumped.
    pub trust_clock: bool,
}

/// See the module; cheap to clone.
#[derive(Clone)]
pub struct Keeper {
    db: Db,
    store: Arc<Store>,
    blobs: Blobs,
    images: Images,
    /// What has no engine has no layers.
    has_layers: bool,
    making: Arc<RwLock<()>>,
    rules: Arc<BTreeMap<String, Retention>>,
    seen: Arc<Mutex<Seen>>,
    costs: Arc<Costs>,
    /// One collection at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Agents of which something changed.
    touched: BTreeSet<AgentId>,
    /// The same, for the length of their chains; and when all were looked at last.
    chains: BTreeSet<AgentId>,
    all_chains: Option<Duration>,
    /// When all were looked at last, by the boot clock.
    all: Option<Duration>,
    /// How far that is, where one round was not enough.
    reached: Option<AgentId>,
    rest: Option<Duration>,
    /// When the jump was first seen: boot clock, and wall clock in unix ms.
    jumped: Option<(Duration, i64)>,
    /// States that were found worth merging.
    merge: BTreeSet<(AgentId, SnapshotId)>,
}

impl Keeper {
    /// Over these. A profile's own rule is already laid over the installation's.
    pub fn new(
        db: Db,
        store: Arc<Store>,
        blobs: Blobs,
        images: Images,
        making: Arc<RwLock<()>>,
        profiles: &Profiles,
        role: Role,
    ) -> Self {
        let rule =
            |profile: &crate::agent::profile::Profile| profile.retention.over(Retention::default());
        let rules = profiles.0.iter();
        let rules = rules.map(|(name, profile)| (name.clone(), rule(profile)));
        Keeper {
            db,
            store,
            blobs,
            images,
            has_layers: role.has_engine(),
            making,
            rules: Arc::new(rules.collect()),
            seen: Arc::default(),
            costs: Arc::default(),
            turn: Arc::default(),
        }
    }

    /// Something of this agent changed: its layers are looked at in the next round.
    pub fn touch(&self, agent: AgentId) {
        self.seen(|seen| {
            seen.touched.insert(agent);
            seen.chains.insert(agent);
        });
    }

    /// Agents whose chains may have become long; none stands for all agents, from time to time.
    pub fn chains_due(&self) -> Vec<Option<AgentId>> {
        self.seen(|seen| {
            let touched = std::mem::take(&mut seen.chains);
            if is_due(seen.all_chains, ALL) {
                seen.all_chains = Some(clock::boot_time());
                return vec![None];
            }
            touched.into_iter().map(Some).collect()
        })
    }

    /// These could not be looked at: they are due again.
    pub fn chains_again(&self, due: Option<AgentId>) {
        self.seen(|seen| match due {
            Some(agent) => drop(seen.chains.insert(agent)),
            None => seen.all_chains = None,
        });
    }

    /// States that hold much for what has expired, to be merged; each is told once.
    pub fn worth_merging(&self) -> Vec<(AgentId, SnapshotId)> {
        self.seen(|seen| std::mem::take(&mut seen.merge))
            .into_iter()
            .collect()
    }

    /// This one could not be merged: it is told again.
    pub fn merge_again(&self, agent: AgentId, state: SnapshotId) {
        self.seen(|seen| seen.merge.insert((agent, state)));
    }

    /// What is due: agents of which something changed, from time to time all, and the rest.
    pub async fn round(&self) -> Result<(), TickError> {
        let _turn = self.turn.lock().await;
        let due = self.seen(|seen| (is_due(seen.all, ALL), is_due(seen.rest, REST)));
        if !due.0 && !due.1 && self.seen(|seen| seen.touched.is_empty()) {
            return Ok(());
        }
        if let Some(held) = self.held(false).await? {
            tracing::warn!("nothing is removed: {held}");
            return Ok(());
        }
        let touched = self.seen(|seen| std::mem::take(&mut seen.touched));
        let mut view = GcView::default();
        let done = match self.has_layers {
            true => self.layers(touched.iter().copied(), false, &mut view).await,
            false => Ok(()),
        };
        if done.is_err() {
            self.seen(|seen| seen.touched.extend(touched));
        }
        done?;
        if due.0 {
            self.some_of_all(&mut view).await?;
        }
        let now = clock::boot_time();
        if due.1 {
            self.blobs(false, &mut view).await?;
            if self.has_layers {
                self.bases(false, &mut view).await?;
            }
            self.seen(|seen| seen.rest = Some(now));
        }
        Ok(())
    }

    /// Collects everything now, or says what would go.
    pub async fn collect(&self, ask: Ask) -> Result<GcView, TickError> {
        let _turn = self.turn.lock().await;
        let mut view = GcView {
            dry_run: ask.dry_run,
            ..GcView::default()
        };
        view.held = self.held(ask.trust_clock).await?;
        if view.held.is_some() {
            return Ok(view);
        }
        if !self.has_layers {
            self.blobs(ask.dry_run, &mut view).await?;
            return Ok(view);
        }
        let mut reached = None;
        loop {
            let origins = self.db.origins(reached, AT_ONCE).await?;
            let Some(last) = origins.last().copied() else {
                break;
            };
            self.layers(origins.into_iter(), ask.dry_run, &mut view)
                .await?;
            reached = Some(last);
        }
        self.blobs(ask.dry_run, &mut view).await?;
        self.bases(ask.dry_run, &mut view).await?;
        view.images = self.images.unneeded().await?;
        if !ask.dry_run {
            self.images.forget().await?;
        }
        Ok(view)
    }

    /// What an agent's states take on disk, by rows.
    pub async fn cost_of(&self, agent: AgentId) -> Result<Cost, crate::db::DbError> {
        self.costs.of(&self.db, agent).await
    }

    /// Measures what a base takes on disk, and records it: it never changes.
    pub async fn measure_base(&self, base: &BaseId) -> Result<u64, TickError> {
        let (store, id) = (self.store.clone(), base.clone());
        let bytes = blocking(move || store.base_bytes(&id, &Slot::defaults())).await??;
        self.db.set_base_bytes(base, bytes).await?;
        Ok(bytes)
    }

    /// Why nothing may be removed, in one sentence: the clock jumped. A process that has run for an
    /// hour since believes it.
    async fn held(&self, trust: bool) -> Result<Option<String>, TickError> {
        let (newest, seen) = self.db.newest_times().await?;
        let (wall, boot) = (self.db.wall_clock().await?, clock::boot_time());
        let believed = seen.unwrap_or(newest);
        let back = believed.max(newest) - wall > JUMP_MS;
        let forward = wall - believed > JUMP_MS;
        if !back && !forward || trust {
            self.seen(|seen| seen.jumped = None);
            self.db.see_clock(wall).await?;
            return Ok(None);
        }
        let (since, then) = self.seen(|seen| *seen.jumped.get_or_insert((boot, wall)));
        let (ran, told) = (boot.saturating_sub(since), wall - then);
        if (told - ran.as_millis() as i64).abs() > JUMP_MS {
            self.seen(|seen| seen.jumped = Some((boot, wall)));
        } else if forward && ran >= BELIEVED {
            self.seen(|seen| seen.jumped = None);
            self.db.see_clock(wall).await?;
            return Ok(None);
        }
        let shown = |ms: i64| {
            jiff::Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |t| t.to_string())
        };
        Ok(Some(format!(
            "the clock says {}, the newest time known here is {}: set the clock; if it is right, \
             use mayfly gc --trust-clock",
            shown(wall),
            shown(believed.max(newest))
        )))
    }

    /// The next of all families.
    async fn some_of_all(&self, view: &mut GcView) -> Result<(), TickError> {
        if !self.has_layers {
            self.seen(|seen| seen.all = Some(clock::boot_time()));
            return Ok(());
        }
        let reached = self.seen(|seen| seen.reached);
        let origins = self.db.origins(reached, AT_ONCE).await?;
        let (last, many) = (origins.last().copied(), origins.len() as i64);
        self.layers(origins.into_iter(), false, view).await?;
        self.seen(|seen| {
            seen.reached = last.filter(|_| many == AT_ONCE);
            if seen.reached.is_none() {
                seen.all = Some(clock::boot_time());
            }
        });
        Ok(())
    }

    async fn layers(
        &self,
        members: impl Iterator<Item = AgentId>,
        dry_run: bool,
        view: &mut GcView,
    ) -> Result<(), TickError> {
        self.db.release_pins().await?;
        let now = self.db.wall_clock().await?;
        let mut done = HashSet::new();
        for one in members {
            if done.contains(&one) {
                continue;
            }
            let family = self.db.family(one).await?;
            done.extend(family.members.iter().map(|member| member.agent));
            let mut plan = self.plan(&family, now);
            if plan.is_empty() {
                self.remember_merges(&family, &plan);
                continue;
            }
            if dry_run {
                self.count(&plan, view).await?;
                continue;
            }
            plan = self
                .db
                .collect(one, |family| {
                    let plan = self.plan(family, now);
                    self.remember_merges(family, &plan);
                    plan
                })
                .await?;
            faults::point("garbage.forgotten");
            self.count(&plan, view).await?;
            self.remove(plan.forget).await?;
        }
        Ok(())
    }

    fn plan(&self, family: &Family, now: i64) -> Plan {
        let rule = |member: &Member| self.rules.get(&member.profile).copied();
        family.plan(rule, now)
    }

    fn remember_merges(&self, family: &Family, plan: &Plan) {
        let worth = plan.merge.iter().filter_map(|state| {
            let member = family.states.get(state)?.agent;
            Some((member, *state))
        });
        self.seen(|seen| seen.merge.extend(worth));
    }

    /// Bytes are those whose last name goes, so they are counted before it does.
    async fn count(&self, plan: &Plan, view: &mut GcView) -> Result<(), TickError> {
        view.states += plan.expire.len() as u64;
        view.layers += plan.forget.len() as u64;
        let (store, layers) = (self.store.clone(), plan.forget.clone());
        view.bytes += blocking(move || store.bytes_freed(&layers)).await??;
        Ok(())
    }

    async fn remove(&self, layers: Vec<LayerId>) -> Result<(), TickError> {
        for layer in layers {
            let store = self.store.clone();
            blocking(move || store.remove_layer(&layer)).await??;
        }
        Ok(())
    }

    /// Blobs that no delivery and no message names, and that nobody stored anew meanwhile.
    async fn blobs(&self, dry_run: bool, view: &mut GcView) -> Result<(), TickError> {
        self.db.release_pins().await?;
        let before = self.db.wall_clock().await? - GRACE_MS;
        for (hash, bytes) in self.blobs.older_than(before).await? {
            if self.db.names_blob(&hash).await? {
                continue;
            }
            if !dry_run {
                if !self.db.forget_upload(&hash).await? {
                    continue;
                }
                faults::point("garbage.blob");
                if !self.blobs.remove_older(&hash, before).await? {
                    continue;
                }
                self.blobs.doom(&hash).await?;
            }
            view.blobs += 1;
            view.bytes += bytes;
        }
        Ok(())
    }

    /// Bases that no agent stands on. Not while one is being made: it may be one of them.
    async fn bases(&self, dry_run: bool, view: &mut GcView) -> Result<(), TickError> {
        let Ok(_alone) = self.making.try_write() else {
            return Ok(());
        };
        let before = self.db.wall_clock().await? - GRACE_MS;
        let there: HashSet<BaseId> = self.store.list_bases()?.into_iter().collect();
        for base in self.db.unused_bases(before).await? {
            if !there.contains(&base) {
                continue;
            }
            let (store, id) = (self.store.clone(), base.clone());
            view.bytes += blocking(move || store.base_bytes(&id, &Slot::defaults())).await??;
            view.bases += 1;
            if !dry_run && self.db.forget_base(&base, before).await? {
                faults::point("garbage.base");
                let store = self.store.clone();
                blocking(move || store.remove_base(&base)).await??;
            }
        }
        Ok(())
    }

    fn seen<T>(&self, with: impl FnOnce(&mut Seen) -> T) -> T {
        with(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn is_due(last: Option<Duration>, period: Duration) -> bool {
    last.is_none_or(|last| clock::boot_time().saturating_sub(last) >= period)
}
