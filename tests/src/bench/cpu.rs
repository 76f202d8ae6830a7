//! Processor time, as the kernel adds it up: in steps of ten milliseconds.

/// Milliseconds, user's and system's.
#[derive(Debug, Clone, Copy)]
pub struct Cpu(f64);

/// What the kernel counts in, everywhere.
const TICKS_PER_S: f64 = 100.0;

impl Cpu {
    /// This process with all its threads.
    pub fn own() -> Cpu {
        Cpu::fields(11)
    }

    /// Children that have ended, and theirs.
    pub fn of_children() -> Cpu {
        Cpu::fields(13)
    }

    /// Milliseconds from then until this.
    pub fn since(self, then: Cpu) -> f64 {
        self.0 - then.0
    }

    /// Two fields of `/proc/self/stat`, counted behind the program's name.
    fn fields(first: usize) -> Cpu {
        let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc is mounted");
        let behind = stat.rsplit(')').next().unwrap_or_default();
        let fields: Vec<f64> = behind
            .split_whitespace()
            .map(|field| field.parse().unwrap_or_default())
            .collect();
        Cpu((fields[first] + fields[first + 1]) / TICKS_PER_S * 1000.0)
    }
}
