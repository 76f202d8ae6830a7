//! Whether a process that works on and on stays as large as it is.
//!
//! Memory is looked at after each round of work. What the first third of the rounds takes is for caches
//! to fill; then the median of the second third is compared with that of the last. A median forgets a
//! round that was looked at in a busy moment, so only what stays counts.

/// A process's size over its work.
#[derive(Debug, Default)]
pub struct Sizes(Vec<(u64, f64)>);

/// How a size went.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Course {
    /// Median of the second third, MiB.
    pub before: f64,
    /// Median of the last third, MiB.
    pub after: f64,
    /// Units of work between both.
    pub work: u64,
}

impl Sizes {
    /// After so much work in all it has so many MiB.
    pub fn add(&mut self, work: u64, mib: f64) {
        self.0.push((work, mib));
    }

    /// How many looks there were.
    pub fn looks(&self) -> usize {
        self.0.len()
    }

    /// None before there are three looks in each third.
    pub fn course(&self) -> Option<Course> {
        let third = self.0.len() / 3;
        if third < 3 {
            return None;
        }
        let (second, last) = self.0[third..].split_at(third);
        let middle = |of: &[(u64, f64)]| of[of.len() / 2].0;
        Some(Course {
            before: median(second),
            after: median(last),
            work: middle(last) - middle(second),
        })
    }
}

impl Course {
    /// MiB that stayed.
    pub fn growth(&self) -> f64 {
        self.after - self.before
    }

    /// Bytes that stayed for each unit of work.
    pub fn each(&self) -> f64 {
        self.growth() * 1024.0 * 1024.0 / self.work.max(1) as f64
    }
}

fn median(of: &[(u64, f64)]) -> f64 {
    let mut sizes: Vec<f64> = of.iter().map(|(_, mib)| *mib).collect();
    sizes.sort_by(f64::total_cmp);
    sizes[sizes.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(size: impl Fn(u64) -> f64) -> Course {
        let mut sizes = Sizes::default();
        (0..90).for_each(|round| sizes.add(round * 100, size(round)));
        sizes.course().unwrap()
    }

    #[test]
    fn what_fills_up_and_what_passes_is_flat_and_what_leaks_is_not() {
        let fills = course(|round| 20.0 + (round as f64 / 3.0).min(10.0));
        assert_eq!(fills.growth(), 0.0);
        let peaks = course(|round| if round % 3 == 0 { 90.0 } else { 30.0 });
        assert_eq!(peaks.growth(), 0.0);
        // A KiB for each unit of work.
        let leaks = course(|round| 30.0 + (round * 100) as f64 / 1024.0);
        assert_eq!(leaks.work, 3000);
        assert!((leaks.each() - 1024.0).abs() < 1.0, "{leaks:?}");
        assert_eq!(Sizes::default().course(), None);
    }
}
