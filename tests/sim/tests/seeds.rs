//! Scenes that are played in every test run. A seed that once found something has its name here.

use std::path::PathBuf;

use mayfly_sim::{Figures, Scene, play};

/// A dozen workers that are killed, stopped and cut off every few seconds, for two minutes.
fn scene(seed: u64) -> Scene {
    Scene {
        seed,
        workers: 12,
        places: 2,
        agents: 300,
        messages: 250,
        seconds: 120,
        kill: 100.0,
        pause: 80.0,
        cut: 60.0,
        redis: 30.0,
        database: 100.0,
        folder: memory(),
        ..Scene::default()
    }
}

/// A folder in memory, where there is one.
fn memory() -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    match shared.is_dir() {
        true => shared,
        false => std::env::temp_dir(),
    }
}

fn holds(scene: &Scene) -> Figures {
    match play(scene) {
        Ok(figures) => {
            println!("{}\n{figures}", mayfly_sim::HEAD);
            figures
        }
        Err(violation) => panic!("{violation}"),
    }
}

#[test]
fn the_promises_hold_by_seed_1() {
    let figures = holds(&scene(1));
    // What breaks is there, else the seed shows nothing.
    for what in [
        "kills",
        "pauses",
        "cuts",
        "queue emptied",
        "answers lost",
        "declared dead",
    ] {
        assert!(figures.happened.contains_key(what), "{what}: {figures:?}");
    }
    let fair = figures.fairness().expect("all wanted more than there was");
    assert!(fair > 0.9, "{fair}");
}

#[test]
fn the_promises_hold_by_seed_2() {
    holds(&scene(2));
}

#[test]
fn the_promises_hold_where_clocks_are_right_and_answers_are_often_lost() {
    holds(&Scene {
        right: true,
        lost: 0.1,
        inside: 0.03,
        ..scene(3)
    });
}

/// Programs that run on while their worker cannot renew its lease are dead before their ticks are closed.
#[test]
fn the_promises_hold_where_workers_are_cut_off_for_longer_than_the_lease() {
    let figures = holds(&Scene {
        places: 4,
        agents: 3000,
        messages: 100,
        long: 0.9,
        kill: 1e9,
        pause: 1e9,
        database: 1e9,
        redis: 1e9,
        cut: 25.0,
        inside: 0.0,
        lost: 0.0,
        ..scene(5)
    });
    assert!(figures.happened["declared dead"] > 2, "{figures:?}");
}

#[test]
fn a_seed_is_played_again_step_by_step() {
    let scene = Scene {
        messages: 60,
        seconds: 60,
        ..scene(4)
    };
    let first = holds(&scene);
    assert_eq!(first.print, holds(&scene).print);
}
