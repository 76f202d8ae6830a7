//! Chance that a seed makes again, whatever the version of any library (SplitMix64; Steele, Lea, Flood 2014).

/// See the module.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// The same seed, the same numbers.
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to and without this number, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.any() % end
    }

    /// From the first to the last.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// From 0 to 1.
    pub fn share(&mut self) -> f64 {
        (self.any() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Whether what happens in so many of all cases happens in this one.
    pub fn happens(&mut self, in_all: f64) -> bool {
        self.share() < in_all
    }

    /// Milliseconds until the next of events that come by themselves, this often apart on the average.
    pub fn until_next(&mut self, apart: f64) -> u64 {
        let wait = -apart * (1.0 - self.share()).ln();
        wait.clamp(1.0, 1e12) as u64
    }
}
