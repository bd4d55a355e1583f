//! Counts of an operation: how many, how large, how long, and a histogram over time and size.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the rows of a [`Grid`], in microseconds; the last row has the slower ones.
pub(crate) const TIME_BOUNDS_US: [u64; 14] =
    [10, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 1_000_000];
/// Upper bounds of the columns of a [`Grid`], in bytes; the last column has the larger ones.
pub(crate) const SIZE_BOUNDS: [u64; 8] = [100, 500, 1_000, 5_000, 10_000, 50_000, 100_000, 500_000];

const ROWS: usize = TIME_BOUNDS_US.len() + 1;
const COLUMNS: usize = SIZE_BOUNDS.len() + 1;

/// Counts by time (rows) and size (columns).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grid(pub(crate) [[u64; COLUMNS]; ROWS]);

impl Default for Grid {
    fn default() -> Self {
        Self([[0; COLUMNS]; ROWS])
    }
}

impl Grid {
    /// The counts since `earlier` was taken.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self(array::from_fn(|row| array::from_fn(|column| self.0[row][column].saturating_sub(earlier.0[row][column]))))
    }

    /// The counts of each row, for a histogram over time alone.
    pub(crate) fn by_time(&self) -> [u64; ROWS] {
        self.0.map(|row| row.iter().sum())
    }
}

impl std::ops::AddAssign<&Grid> for Grid {
    fn add_assign(&mut self, other: &Grid) {
        for (row, added) in self.0.iter_mut().zip(&other.0) {
            row.iter_mut().zip(added).for_each(|(count, added)| *count += added);
        }
    }
}

/// The counts of one operation.
#[derive(Debug)]
pub(crate) struct OperationCounts {
    pub(crate) successes: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) time_us: AtomicU64,
    grid: [[AtomicU64; COLUMNS]; ROWS],
}

impl Default for OperationCounts {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            successes: zero(),
            failures: zero(),
            bytes: zero(),
            time_us: zero(),
            grid: array::from_fn(|_| array::from_fn(|_| zero())),
        }
    }
}

impl OperationCounts {
    pub(crate) fn succeeded(&self, took: Duration, bytes: u64) {
        self.successes.fetch_add(1, Ordering::Relaxed);
        self.measured(took, bytes, 1);
    }

    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds time and size of an operation that stands for `weight` of them.
    pub(crate) fn measured(&self, took: Duration, bytes: u64, weight: u64) {
        let us = took.as_micros() as u64;
        self.bytes.fetch_add(bytes * weight, Ordering::Relaxed);
        self.time_us.fetch_add(us * weight, Ordering::Relaxed);
        let row = TIME_BOUNDS_US.partition_point(|bound| *bound < us);
        let column = SIZE_BOUNDS.partition_point(|bound| *bound < bytes);
        self.grid[row][column].fetch_add(weight, Ordering::Relaxed);
    }

    pub(crate) fn grid(&self) -> Grid {
        Grid(array::from_fn(|row| array::from_fn(|column| self.grid[row][column].load(Ordering::Relaxed))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_counts_in_the_cell_of_its_time_and_size() {
        for (us, bytes, row, column) in [
            (0, 0, 0, 0),
            (10, 100, 0, 0),
            (11, 101, 1, 1),
            (1_000_000, 500_000, 13, 7),
            (1_000_001, 500_001, 14, 8),
            (600, 3_000, 5, 3),
        ] {
            let counts = OperationCounts::default();
            counts.succeeded(Duration::from_micros(us), bytes);
            counts.measured(Duration::from_micros(us), bytes, 15);
            let mut expected = Grid::default();
            expected.0[row][column] = 16;
            assert_eq!(counts.grid(), expected, "{us} us, {bytes} bytes");
            assert_eq!(counts.grid().by_time()[row], 16);
            assert_eq!(counts.successes.load(Ordering::Relaxed), 1);
            assert_eq!(counts.bytes.load(Ordering::Relaxed), 16 * bytes);
            assert_eq!(counts.time_us.load(Ordering::Relaxed), 16 * us);
        }
    }

    #[test]
    fn a_difference_never_falls_below_zero() {
        let (mut less, mut more) = (Grid::default(), Grid::default());
        less.0[1][2] = 3;
        more.0[1][2] = 5;
        assert_eq!(more.since(&less).0[1][2], 2);
        assert_eq!(less.since(&more), Grid::default());
        less += &more;
        assert_eq!(less.0[1][2], 8);
    }
}
