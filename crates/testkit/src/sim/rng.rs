//! Random choices that follow from a seed.

/// A small generator (SplitMix64): the same seed gives the same choices on every machine.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The generator for `seed`, which fixes all choices.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        // Take the high half of the product: unbiased enough for a test, and no division.
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }

    /// `true` in `percent` of a hundred cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A random element of `choices`; `None` if it is empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        choices.get(self.below(choices.len() as u64) as usize)
    }

    /// A separate generator for a part of the test, so that parts do not disturb each other's choices.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(self.bits())
    }
}
