//! Fifty ticks of several agents with merges, rollbacks, forks, removals and retention between
//! them: every state that can be gone back to equals what was seen when it was made.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    path::PathBuf,
    process::Command,
};

use mayfly_domain::{AgentId, LayerId, SnapshotId};
use mayfly_orchestrator::retention::{
    Retention,
    plan::{Family, Member, State},
};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IteratorRandom};

use crate::{
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
    clock: i64,
    merges: u32,
    expired: u32,
    forgotten: u32,
}

#[test]
fn random_histories_with_merges_rollbacks_forks_and_retention_equal_what_was_seen() {
    let (mut merges, mut expired, mut forgotten) = (0, 0, 0);
    for seed in 0..4 {
        let mut histories = Histories::new(seed);
        while histories.seen.len() < TICKS as usize {
            histories.step();
            histories.clock += 1;
        }
        histories.collect();
        histories.check_all(&format!("seed {seed}, at the end"));
        merges += histories.merges;
        expired += histories.expired;
        forgotten += histories.forgotten;
    }
    assert!(
        merges > 20 && expired > 40 && forgotten > 40,
        "{merges} {expired} {forgotten}"
    );
}

impl Histories {
    fn new(seed: u64) -> Histories {
        let mut histories = Histories {
            world: World::new(fill),
            random: StdRng::seed_from_u64(seed),
            family: Family::default(),
            seen: BTreeMap::new(),
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
            _ => {}
        }
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
        self.world.layers = self.layers_of(head);
        assert!(self.world.layers.len() <= MOST_MOUNTED);
        let id = SnapshotId::new();
        let reference = self.reference(Some(id));
        self.copy(head, id);
        let random = &mut self.random;
        let sealed = self.world.tick(|work| {
            for _ in 0..STEPS {
                if let Some(step) = choose(random, &reference) {
                    apply(&reference, &step);
                    apply(work, &step);
                }
            }
        });
        let after = self.world.view(take);
        let context = format!("tick {}", self.seen.len());
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
        for state in &plan.merge {
            self.merge(*state);
        }
        self.check_all("after a collection");
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
            self.world.layers = self.layers_of(Some(state));
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
        let (mut layers, mut at) = (Vec::new(), state);
        while let Some(id) = at {
            let state = &self.family.states[&id];
            if let Some(merged) = &state.merged {
                layers.push(merged.clone());
                break;
            }
            layers.extend(state.layer.clone());
            at = state.parent;
        }
        layers.reverse();
        layers
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
