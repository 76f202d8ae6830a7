//! Fifty ticks of several agents with merges, rollbacks, forks, removals, retention, exports and
//! imports between them: every state that can be gone back to equals what was seen when it was made,
//! also as another agent's after a way through an archive.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    path::PathBuf,
    process::Command,
};

use mayfly_domain::{AgentId, BaseId, LayerId, SnapshotId};
use mayfly_orchestrator::{
    retention::{
        Retention,
        plan::{Family, Member, State},
    },
    snapshot::oci::Compress,
};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IteratorRandom};

use crate::{
    archive::{export, import},
    picture::{Picture, assert_same, take, timeless},
    steps::{apply, choose, fill},
    world::World,
};

const TICKS: u32 = 50;
const STEPS: u32 = 10;
const MOST_MOUNTED: usize = 16;

struct Histories {
    world: World,
    random: StdRng,
    family: Family,
    seen: BTreeMap<SnapshotId, Picture>,
    /// What the states of imported agents lie on; the others lie on the first.
    bases: BTreeMap<SnapshotId, BaseId>,
    first_base: BaseId,
    ticks: u32,
    imports: u32,
    clock: i64,
    merges: u32,
    expired: u32,
    forgotten: u32,
}

#[allow(clippy::disallowed_methods)]
fn full() -> bool {
    std::env::var("MAYFLY_TESTS_FULL").is_ok_and(|full| full == "1")
}

#[test]
fn random_histories_with_merges_rollbacks_forks_retention_and_travels_equal_what_was_seen() {
    let (mut merges, mut expired, mut forgotten, mut imports) = (0, 0, 0, 0);
    for seed in 0..if full() { 40 } else { 4 } {
        println!("seed {seed}");
        let mut histories = Histories::new(seed);
        while histories.ticks < TICKS {
            histories.step();
            histories.clock += 1;
        }
        histories.collect();
        histories.check_all(&format!("seed {seed}, at the end"));
        merges += histories.merges;
        expired += histories.expired;
        forgotten += histories.forgotten;
        imports += histories.imports;
    }
    assert!(
        merges > 20 && expired > 40 && forgotten > 40 && imports > 6,
        "{merges} {expired} {forgotten} {imports}"
    );
}

impl Histories {
    fn new(seed: u64) -> Histories {
        let world = World::new(fill);
        let mut histories = Histories {
            first_base: world.base.clone(),
            world,
            random: StdRng::seed_from_u64(seed),
            family: Family::default(),
            seen: BTreeMap::new(),
            bases: BTreeMap::new(),
            ticks: 0,
            imports: 0,
            clock: 1,
            merges: 0,
            expired: 0,
            forgotten: 0,
        };
        histories.join(None);
        let first = histories.reference(None);
        fs::create_dir(&first).unwrap();
        fill(&first);
        histories
    }

    fn step(&mut self) {
        match self.random.random_range(0..20) {
            0..12 => self.tick(),
            12..14 => self.roll_back(),
            14 if self.family.members.len() < 4 => {
                let state = self.some_state();
                self.join(state);
            }
            15 if self.family.members.len() > 1 => {
                let last = self.random.random_range(0..self.family.members.len());
                self.family.members.remove(last);
            }
            16..18 => {
                if let Some(state) = self.some_state() {
                    self.merge(state);
                }
            }
            18 => self.collect(),
            19 if self.family.members.len() < 6 => {
                if let Some(state) = self.some_state() {
                    self.travel(state);
                }
            }
            _ => {}
        }
    }

    /// Out into an archive and in again, as an agent of its own that goes on from there.
    fn travel(&mut self, last: SnapshotId) {
        self.stand_on(Some(last));
        let chain = self.chain_of(last);
        let to = self.world.path("out");
        let kinds = [Compress::None, Compress::Gzip, Compress::Zstd];
        let compress = kinds[self.random.random_range(0..kinds.len())];
        export(&self.world, compress, &to);
        let sizes = import(&mut self.world, &to).unwrap().sizes;
        fs::remove_dir_all(to).unwrap();
        let base = self.world.base.clone();
        let layers = std::mem::take(&mut self.world.layers);
        let mut layers = layers.into_iter().zip(sizes);
        let (agent, mut parent) = (AgentId::new(), None);
        for (was, layer) in chain {
            let id = SnapshotId::new();
            let layer = layer.map(|_| layers.next().expect("as many as were sent"));
            self.copy(Some(was), id);
            self.seen.insert(id, self.seen[&was].clone());
            self.bases.insert(id, base.clone());
            self.family.add(State {
                id,
                agent,
                parent,
                layer_bytes: layer.as_ref().map(|(_, size)| size.bytes),
                layer: layer.map(|(layer, _)| layer),
                merged: None,
                merged_bytes: None,
                created_at: self.clock,
                expired: false,
            });
            self.clock += 1;
            parent = Some(id);
            self.stand_on(parent);
            let context = format!("imported by {compress:?}");
            assert_same(&context, &self.seen[&was], &self.world.view(take));
        }
        self.join(parent);
        self.family.members.last_mut().expect("just joined").agent = agent;
        self.imports += 1;
    }

    /// The world shows this state.
    fn stand_on(&mut self, state: Option<SnapshotId>) {
        self.world.layers = self.layers_of(state);
        let base = state.and_then(|state| self.bases.get(&state));
        self.world.base = base.unwrap_or(&self.first_base).clone();
    }

    fn join(&mut self, head: Option<SnapshotId>) {
        self.family.members.push(Member {
            agent: AgentId::new(),
            profile: "shell".to_owned(),
            head,
            left: Vec::new(),
            last_tick: self.clock,
        });
    }

    fn tick(&mut self) {
        let who = self.random.random_range(0..self.family.members.len());
        let (agent, head) = (
            self.family.members[who].agent,
            self.family.members[who].head,
        );
        if self.layers_of(head).len() > MOST_MOUNTED {
            self.merge(head.unwrap());
        }
        self.stand_on(head);
        assert!(self.world.layers.len() <= MOST_MOUNTED);
        let id = SnapshotId::new();
        let reference = self.reference(Some(id));
        self.copy(head, id);
        let random = &mut self.random;
        let mut left = Picture::new();
        let sealed = self.world.tick(|work| {
            for _ in 0..STEPS {
                if let Some(step) = choose(random, &reference) {
                    apply(&reference, &step);
                    apply(work, &step);
                }
            }
            left = take(work);
        });
        let after = self.world.view(take);
        let context = format!("tick {}", self.ticks);
        assert_same(&context, &left, &after);
        assert_same(&context, &timeless(&take(&reference)), &timeless(&after));
        self.family.add(State {
            id,
            agent,
            parent: head,
            layer: sealed
                .layer
                .map(|_| self.world.layers.last().unwrap().clone()),
            layer_bytes: sealed.layer.map(|size| size.bytes),
            merged: None,
            merged_bytes: None,
            created_at: self.clock,
            expired: false,
        });
        self.seen.insert(id, after);
        if let Some(base) = head.and_then(|head| self.bases.get(&head)) {
            self.bases.insert(id, base.clone());
        }
        self.ticks += 1;
        self.family.members[who].head = Some(id);
        self.family.members[who].last_tick = self.clock;
    }

    fn roll_back(&mut self) {
        let who = self.random.random_range(0..self.family.members.len());
        let state = self.some_state();
        let member = &mut self.family.members[who];
        let left = member.head.into_iter().chain(state);
        member.left.extend(left);
        member.head = state;
    }

    fn merge(&mut self, state: SnapshotId) {
        let chain = self.layers_of(Some(state));
        if chain.len() < 2 {
            return;
        }
        self.stand_on(Some(state));
        let into = LayerId::new();
        let world = &self.world;
        let size = world.store.merge(&world.base, &chain, &into, &world.slots);
        let row = self.family.states.get_mut(&state).unwrap();
        (row.merged, row.merged_bytes) = (Some(into), Some(size.unwrap().bytes));
        self.merges += 1;
    }

    /// As the rows of the database: expired, forgotten, gone; then the folders.
    fn collect(&mut self) {
        let rule = Retention {
            keep_ticks: 6,
            keep_days: 0,
            keep_mib: 0,
        };
        let plan = self.family.plan(|_| Some(rule), self.clock);
        for id in &plan.expire {
            self.family.states.get_mut(id).unwrap().expired = true;
        }
        for layer in &plan.forget {
            for state in self.family.states.values_mut() {
                if state.layer.as_ref() == Some(layer) {
                    state.layer_bytes = None;
                }
                if state.merged.as_ref() == Some(layer) {
                    (state.merged, state.merged_bytes) = (None, None);
                }
            }
            self.world.store.remove_layer(layer).unwrap();
        }
        for id in &plan.gone {
            self.family.states.remove(id);
        }
        self.expired += plan.expire.len() as u32;
        self.forgotten += plan.forget.len() as u32;
        let merges = self.merges;
        for state in &plan.merge {
            self.merge(*state);
        }
        self.check_all("after a collection");
        if self.merges > merges {
            // What the merges stand for may go now.
            return self.collect();
        }
        let again = self.family.plan(|_| Some(rule), self.clock);
        assert!(
            again.expire.is_empty() && again.gone.is_empty(),
            "{again:?}"
        );
    }

    fn check_all(&mut self, context: &str) {
        for member in &self.family.members {
            let head = member.head.map(|head| self.family.states[&head].expired);
            assert_ne!(head, Some(true), "a head has expired");
        }
        let kept: Vec<SnapshotId> = self
            .family
            .states
            .values()
            .filter(|state| !state.expired)
            .map(|state| state.id)
            .collect();
        for state in kept {
            self.stand_on(Some(state));
            assert_same(context, &self.seen[&state], &self.world.view(take));
        }
        let known = self.family.states.values();
        let known: HashSet<LayerId> = known
            .flat_map(|state| [state.layer.clone(), state.merged.clone()])
            .flatten()
            .collect();
        let there = self.world.store.list_layers().unwrap();
        let stray: Vec<_> = there
            .iter()
            .filter(|layer| !known.contains(layer))
            .collect();
        assert!(stray.is_empty(), "{context}: {stray:?}");
    }

    fn layers_of(&self, state: Option<SnapshotId>) -> Vec<LayerId> {
        let chain = state.map(|state| self.chain_of(state)).unwrap_or_default();
        chain.into_iter().filter_map(|(_, layer)| layer).collect()
    }

    /// The states that lead to this one, oldest first, each with the layer it adds: all of them, or
    /// those from the newest merge on.
    fn chain_of(&self, state: SnapshotId) -> Vec<(SnapshotId, Option<LayerId>)> {
        let (mut chain, mut at) = (Vec::new(), Some(state));
        while let Some(id) = at {
            let state = &self.family.states[&id];
            if let Some(merged) = &state.merged {
                chain.push((id, Some(merged.clone())));
                break;
            }
            chain.push((id, state.layer.clone()));
            at = state.parent;
        }
        chain.reverse();
        chain
    }

    fn some_state(&mut self) -> Option<SnapshotId> {
        let mut kept: Vec<_> = self.family.states.values().filter(|s| !s.expired).collect();
        kept.sort_by_key(|state| state.created_at);
        kept.iter().map(|state| state.id).choose(&mut self.random)
    }

    fn reference(&self, state: Option<SnapshotId>) -> PathBuf {
        let name = state.map_or_else(|| "first".to_owned(), |id| id.to_string());
        self.world.path(format!("ref-{name}"))
    }

    fn copy(&self, from: Option<SnapshotId>, to: SnapshotId) {
        let copied = Command::new("cp")
            .arg("-a")
            .args([self.reference(from), self.reference(Some(to))])
            .status();
        assert!(copied.unwrap().success());
    }
}
