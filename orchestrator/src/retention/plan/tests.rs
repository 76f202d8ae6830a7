use super::*;

const MIB: u64 = 1 << 20;

fn rule(keep_ticks: u64, keep_days: u64, keep_mib: u64) -> Retention {
    Retention {
        keep_ticks,
        keep_days,
        keep_mib,
    }
}

/// One agent whose ticks each changed this much, a minute apart.
fn chain(bytes: &[u64]) -> (Family, Vec<SnapshotId>) {
    let agent = AgentId::new();
    let (mut family, mut ids) = (Family::default(), Vec::new());
    for (n, bytes) in bytes.iter().enumerate() {
        let id = SnapshotId::new();
        family.add(State {
            id,
            agent,
            parent: ids.last().copied(),
            layer: Some(LayerId::new()),
            layer_bytes: Some(*bytes),
            merged: None,
            merged_bytes: None,
            created_at: n as i64 * 60_000,
            expired: false,
        });
        ids.push(id);
    }
    family.members.push(Member {
        agent,
        profile: String::new(),
        head: ids.last().copied(),
        left: Vec::new(),
        last_tick: bytes.len() as i64 * 60_000,
    });
    (family, ids)
}

fn merge(family: &mut Family, state: SnapshotId, bytes: u64) {
    let state = family.states.get_mut(&state).unwrap();
    (state.merged, state.merged_bytes) = (Some(LayerId::new()), Some(bytes));
}

#[test]
fn states_expire_by_count_by_age_and_by_bytes_and_never_the_head() {
    let (family, ids) = chain(&[MIB; 6]);
    let expired = |rule: Retention, now: i64| family.plan(|_| Some(rule), now).expire;
    let now = 6 * 60_000;
    assert_eq!(expired(rule(2, 0, 0), now), ids[..4]);
    assert_eq!(expired(rule(0, 0, 3), now), ids[..3]);
    assert_eq!(expired(rule(0, 1, 0), DAY + 3 * 60_000), ids[..3]);
    assert_eq!(expired(rule(0, 1, 0), 100 * DAY), ids[..5]);
    assert_eq!(expired(rule(0, 0, 0), 100 * DAY), []);
    assert!(
        family.plan(|_| None, 100 * DAY).is_empty(),
        "no rule, no loss"
    );
    let (large, ids) = chain(&[MIB, 100 * MIB]);
    assert_eq!(large.plan(|_| Some(rule(0, 0, 1)), now).expire, ids[..1]);
}

const DAY: i64 = 24 * 60 * 60 * 1000;

#[test]
fn layers_go_when_a_merged_one_stands_for_them_and_not_before() {
    let (mut family, ids) = chain(&[MIB; 6]);
    let only_two = |family: &Family| family.plan(|_| Some(rule(2, 0, 0)), 0);
    assert_eq!(
        only_two(&family).forget,
        [],
        "the head stands on all of them"
    );
    merge(&mut family, ids[3], 4 * MIB);
    let plan = only_two(&family);
    let mut below: Vec<_> = ids[..4]
        .iter()
        .map(|id| family.states[id].layer.clone().unwrap())
        .collect();
    below.sort();
    assert_eq!(plan.forget, below);
    assert_eq!(plan.gone, ids[..3], "the merged one's state is stood on");
    for kept in [&family.before, &HashSet::from([ids[0]])] {
        let mut family = family.clone();
        family.before = kept.clone();
        assert_eq!(only_two(&family).expire.contains(&ids[0]), kept.is_empty());
    }
    family.pinned.insert(below[0].clone());
    assert!(!only_two(&family).forget.contains(&below[0]));
    family.unknown_mounts = true;
    assert_eq!(only_two(&family).forget, []);
}

#[test]
fn a_state_that_is_missing_below_a_kept_one_stops_every_removal() {
    let (mut family, ids) = chain(&[MIB; 6]);
    merge(&mut family, ids[0], MIB);
    family.states.remove(&ids[2]);
    assert_eq!(family.plan(|_| Some(rule(1, 0, 0)), 0).forget, []);
}

#[test]
fn a_chain_is_merged_where_much_of_it_is_for_what_has_expired() {
    let worth = |bytes: &[u64], keep: u64, now: i64| {
        let (family, ids) = chain(bytes);
        let merge = family.plan(|_| Some(rule(keep, 0, 0)), now).merge;
        merge
            .first()
            .map(|state| ids.iter().position(|id| id == state).unwrap())
    };
    assert_eq!(
        worth(&[MIB; 6], 2, 0),
        None,
        "little, and the agent is busy"
    );
    assert_eq!(worth(&[MIB; 6], 2, DAY), Some(4), "it is idle");
    assert_eq!(worth(&[20 * MIB, MIB, MIB], 2, 0), Some(1));
    assert_eq!(worth(&[1; 6], 2, DAY), None, "nothing to win");
    assert_eq!(worth(&[MIB; 6], 0, DAY), None, "nothing has expired");
}

#[test]
fn disk_is_told_apart_by_who_needs_it() {
    let (mut family, ids) = chain(&[MIB, 2 * MIB, 4 * MIB]);
    let (agent, fork) = (family.members[0].agent, AgentId::new());
    family.members.push(Member {
        agent: fork,
        head: Some(ids[1]),
        ..family.members[0].clone()
    });
    assert_eq!(family.disk_of(agent), (4 * MIB, 3 * MIB));
    assert_eq!(family.disk_of(fork), (0, 3 * MIB));
    // Its files are those of its sources.
    merge(&mut family, ids[2], 7 * MIB);
    assert_eq!(family.disk_of(agent), (4 * MIB, 3 * MIB));
}
