//! What is played: who is there, how much they write, and what breaks how often.

use std::path::PathBuf;

use clap::Args;

/// See the module. Times are seconds of the virtual clock; what comes by chance is told by its average.
#[derive(Debug, Clone, Args)]
pub struct Scene {
    /// Decides everything that is left to chance.
    #[arg(skip)]
    pub seed: u64,
    /// Processes that run ticks, each on a host of its own.
    #[arg(long, default_value_t = 20)]
    pub workers: usize,
    /// Processes that accept messages.
    #[arg(long, default_value_t = 3)]
    pub bots: usize,
    /// Agents that there are.
    #[arg(long, default_value_t = 1000)]
    pub agents: u64,
    /// Messages that are written.
    #[arg(long, default_value_t = 400)]
    pub messages: u64,
    /// For how long they are written.
    #[arg(long, default_value_t = 300)]
    pub seconds: u64,
    /// Ticks at once on each worker.
    #[arg(long, default_value_t = 4)]
    pub places: u32,
    /// Workers that look for dead ones and for lanes that are put aside; each of them may die, too.
    #[arg(long, default_value_t = 16)]
    pub keepers: usize,
    /// A worker lives so long until it is killed.
    #[arg(long, default_value_t = 200.0)]
    pub kill: f64,
    /// The same until it is stopped (SIGSTOP) and goes on later.
    #[arg(long, default_value_t = 200.0)]
    pub pause: f64,
    /// The same until it is cut off from database or queue.
    #[arg(long, default_value_t = 150.0)]
    pub cut: f64,
    /// The same until the clock of its host jumps.
    #[arg(long, default_value_t = 300.0)]
    pub jump: f64,
    /// All clocks are right, and stay so.
    #[arg(long)]
    pub right: bool,
    /// The queue's server is emptied, restarted or away this often.
    #[arg(long, default_value_t = 60.0)]
    pub redis: f64,
    /// The database is away this often.
    #[arg(long, default_value_t = 200.0)]
    pub database: f64,
    /// Answers of the database that are lost, of all.
    #[arg(long, default_value_t = 0.01)]
    pub lost: f64,
    /// Transactions in whose middle the process dies, of all.
    #[arg(long, default_value_t = 0.003)]
    pub inside: f64,
    /// Programs that run for longer than half a minute, of all.
    #[arg(long, default_value_t = 0.08)]
    pub long: f64,
    /// Where the database lies; a folder in memory is fastest.
    #[arg(long, default_value = "/dev/shm")]
    pub folder: PathBuf,
    /// Each step is told as it happens, on standard error.
    #[arg(long)]
    pub tell: bool,
    /// Steps that are told of a run that broke a promise.
    #[arg(long, default_value_t = 60)]
    pub last: usize,
}

/// As the command line has it.
impl Default for Scene {
    fn default() -> Self {
        #[derive(clap::Parser)]
        struct Alone {
            #[command(flatten)]
            scene: Scene,
        }
        <Alone as clap::Parser>::parse_from(["sim"]).scene
    }
}
