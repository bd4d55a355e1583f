//! The seeds of a run of a crash suite.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::ops::Range;

const SEED: &str = "MILLSTREAM_CRASH_SEED";
const POINTS: &str = "MILLSTREAM_CRASH_POINTS";

fn number(variable: &str) -> Option<u64> {
    Some(std::env::var(variable).ok()?.parse().unwrap_or_else(|_| panic!("{variable} is not a number")))
}

/// The one seed that `MILLSTREAM_CRASH_SEED` asks for, or fresh ones for as many lives as `MILLSTREAM_CRASH_POINTS` says,
/// `crash_points` without it.
///
/// # Panics
/// If one of the variables is not a number.
pub fn crash_seeds(crash_points: u64, lives_per_seed: u64) -> Range<u64> {
    if let Some(seed) = number(SEED) {
        return seed..seed + 1;
    }
    let first = u64::from(RandomState::new().build_hasher().finish() as u32);
    let count = number(POINTS).unwrap_or(crash_points).div_ceil(lives_per_seed);
    println!("seeds from {SEED}={first} on, {count} of them");
    first..first + count
}

/// `true` if a run has one seed that was asked for, which need not meet every case.
pub fn is_one_seed() -> bool {
    std::env::var_os(SEED).is_some()
}
