//! `tests/sim/run`: plays a scene by several seeds and prints a table.

use std::process::ExitCode;

use clap::Parser;
use mayfly_sim::{HEAD, Scene, play};

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    scene: Scene,
    /// How many seeds are played.
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let Arguments {
        mut scene,
        seeds,
        seed,
    } = Arguments::parse();
    println!("{HEAD}");
    let (mut good, mut bad) = (0, 0);
    for seed in seed..seed + seeds {
        scene.seed = seed;
        match play(&scene) {
            Ok(figures) => {
                good += 1;
                println!("{figures}");
                let happened: Vec<String> = figures
                    .happened
                    .iter()
                    .map(|(what, count)| format!("{what} {count}"))
                    .collect();
                println!("           {}", happened.join(", "));
            }
            Err(violation) => {
                bad += 1;
                println!("{violation}");
            }
        }
    }
    println!("{good} passed, {bad} failed");
    if bad == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
