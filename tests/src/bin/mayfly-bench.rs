//! Measures Mayfly: `tests/bench` builds and runs it.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use mayfly_tests::bench::{
    accept, adapter, figure::Report, idle, neighbour, queue, snapshot, tick,
};

#[derive(Parser)]
#[command(about = "Measures Mayfly on real Docker; needs root")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// What a tick costs: against a bare container, by size of the state, with neighbours.
    Tick {
        /// Writes the figures as a JSON list.
        #[arg(long)]
        json: Option<PathBuf>,
        /// Measurements per figure.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
        /// The program whose memory at rest is measured.
        #[arg(long)]
        program: PathBuf,
    },
    /// What a thousand idle agents, or more, and reads about them cost.
    Idle {
        /// Writes the figures as a JSON list.
        #[arg(long)]
        json: Option<PathBuf>,
        /// How many; more than a thousand have a short history each.
        #[arg(long, default_value_t = idle::AGENTS, value_parser = clap::value_parser!(u32).range(i64::from(idle::AGENTS)..=1_000_000))]
        agents: u32,
        /// The server that is measured.
        #[arg(long)]
        program: PathBuf,
    },
    /// How fast events of platforms are taken, and what their connections weigh.
    Adapter {
        /// Writes the figures as a JSON list.
        #[arg(long)]
        json: Option<PathBuf>,
        /// The server that is measured.
        #[arg(long)]
        program: PathBuf,
    },
    /// What it costs to find out who is next, on both queues, beside a plain list and BullMQ.
    Queue {
        /// Writes the figures as a JSON list.
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// How many messages a second are accepted for good.
    Accept {
        /// Writes the figures as a JSON list.
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// What states cost: revive, seal, merge, diff, export, import, next to other programs.
    Snapshot {
        /// Writes the figures as a JSON list.
        #[arg(long)]
        json: Option<PathBuf>,
        /// Measurements per figure; four times as many of those by size.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
        /// Also a state of 10 GB.
        #[arg(long)]
        full: bool,
    },
    /// Dirties a file without end.
    #[command(hide = true, name = neighbour::VERB)]
    Neighbour { file: PathBuf },
}

fn main() -> ExitCode {
    rustls::crypto::ring::default_provider()
        .install_default()
        .expect("nothing was installed before the first line");
    match Cli::parse().verb {
        Verb::Tick {
            json,
            rounds,
            program,
        } => {
            let report = runtime().block_on(tick::run(rounds, &program));
            finish(&report, json)
        }
        Verb::Snapshot { json, rounds, full } => {
            let report = runtime().block_on(snapshot::run(rounds, full));
            finish(&report, json)
        }
        Verb::Idle {
            json,
            agents,
            program,
        } => finish(&idle::run(&program, agents), json),
        Verb::Adapter { json, program } => finish(&adapter::run(&program), json),
        Verb::Queue { json } => finish(&runtime().block_on(queue::run()), json),
        Verb::Accept { json } => {
            let report = runtime().block_on(accept::run(&std::env::temp_dir()));
            finish(&report, json)
        }
        Verb::Neighbour { file } => {
            let Err(error) = neighbour::write(&file);
            eprintln!("{}: {error}", file.display());
            ExitCode::FAILURE
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime")
}

fn finish(report: &Report, json: Option<PathBuf>) -> ExitCode {
    print!("{report}");
    let Some(path) = json else {
        return ExitCode::SUCCESS;
    };
    match report.write_json(&path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}
