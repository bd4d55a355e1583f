//! A KLL sketch of numbers: their quantiles within an error that its size `k` bounds. Exact up to `k` numbers.
//!
//! Level i holds numbers that stand for 2^i numbers each. A level that is full is sorted, and every second number of it goes up; a
//! coin decides whether these are the odd or the even ones. The coins follow from the count of numbers, so that the same
//! numbers in the same order give the same quantiles. The stored form is that of Apache DataSketches.

use std::mem;

use datasketches::codec::{SketchBytes, SketchSlice};
use datasketches::error::Error;

use super::allocation::{ALLOCATION_BYTES, allocated};
use super::key::{cut, damaged};

/// The least capacity of a level.
const LEVEL_MIN: usize = 8;
/// Below this depth a level has the least capacity, whatever `k` is.
const DEPTH_MAX: usize = 30;
const LEVELS_MAX: usize = 61;

/// The first byte of a stored sketch: the number of 32-bit words before the levels.
const WORDS_SHORT: u8 = 2;
const WORDS_FULL: u8 = 5;
const VERSION_FULL: u8 = 1;
const VERSION_SINGLE: u8 = 2;
const FAMILY: u8 = 15;
const IS_EMPTY: u8 = 1;
const IS_SINGLE: u8 = 4;

#[derive(Debug, Clone)]
pub(crate) struct KllSketch {
    k: u16,
    /// The least `k` of all sketches that are merged in this one.
    min_k: u16,
    count: u64,
    /// Level 0 has the order in which the numbers came; the others are sorted.
    levels: Vec<Vec<f64>>,
    /// The number of numbers in all levels, and how many they may be.
    retained: usize,
    capacity: usize,
    range: Option<Range>,
}

/// The least and the greatest number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Range {
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// The numbers of a sketch in their order, each with the count of numbers up to it.
pub(crate) struct SortedNumbers {
    numbers: Vec<(f64, u64)>,
    count: u64,
    range: Option<Range>,
}

impl KllSketch {
    pub(crate) fn new(k: u16) -> Self {
        let (levels, capacity) = (vec![Vec::new()], capacity_of(k, 1));
        Self { k, min_k: k, count: 0, levels, retained: 0, capacity, range: None }
    }

    /// Adds a number; others than finite ones are skipped.
    pub(crate) fn add(&mut self, number: f64) {
        if !number.is_finite() {
            return;
        }
        // The two zeros are one number.
        let number = number + 0.0;
        if self.retained >= self.capacity {
            self.compact();
        }
        self.levels[0].push(number);
        self.retained += 1;
        self.count += 1;
        self.widen(Range { min: number, max: number });
    }

    fn widen(&mut self, other: Range) {
        let mine = self.range.unwrap_or(other);
        self.range = Some(Range { min: mine.min.min(other.min), max: mine.max.max(other.max) });
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let Some(range) = other.range else { return };
        self.widen(range);
        self.count += other.count;
        if other.is_estimated() {
            self.min_k = self.min_k.min(other.min_k);
        }
        while self.levels.len() < other.levels.len() {
            self.levels.push(Vec::new());
        }
        for (level, (mine, others)) in self.levels.iter_mut().zip(&other.levels).enumerate() {
            mine.reserve_exact(others.len());
            mine.extend_from_slice(others);
            if level > 0 {
                mine.sort_by(f64::total_cmp);
            }
        }
        self.retained += other.retained;
        self.capacity = capacity_of(self.k, self.levels.len());
        while self.retained > self.capacity {
            self.compact();
        }
    }

    /// Sends half of the lowest full level up.
    fn compact(&mut self) {
        let is_full = |level: &usize| self.levels[*level].len() >= level_capacity(self.k, self.levels.len(), *level);
        let level = (0..self.levels.len()).find(is_full).expect("all levels together are full");
        if level + 1 == self.levels.len() {
            self.levels.push(Vec::new());
            self.capacity = capacity_of(self.k, self.levels.len());
        }
        let first = usize::from(self.coin(level));
        let mut numbers = mem::take(&mut self.levels[level]);
        let is_odd = numbers.len() % 2 == 1;
        let left = match level {
            0 => {
                let left = is_odd.then(|| numbers.pop()).flatten();
                numbers.sort_unstable_by(f64::total_cmp);
                left
            }
            _ => is_odd.then(|| numbers.remove(0)),
        };
        let above = &mut self.levels[level + 1];
        above.reserve_exact(numbers.len() / 2);
        above.extend(numbers.iter().skip(first).step_by(2));
        above.sort_by(f64::total_cmp);
        self.retained -= numbers.len() / 2;
        numbers.clear();
        numbers.shrink_to(level_capacity(self.k, self.levels.len(), level));
        numbers.extend(left);
        self.levels[level] = numbers;
    }

    /// A bit that looks random (SplitMix64), the same for the same numbers.
    fn coin(&self, level: usize) -> bool {
        let mut mixed = self.count.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ((level as u64) << 32 | self.retained as u64);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) & 1 == 1
    }

    pub(crate) fn sorted(&self) -> SortedNumbers {
        let mut numbers = Vec::with_capacity(self.retained);
        for (level, of_level) in self.levels.iter().enumerate() {
            numbers.extend(of_level.iter().map(|number| (*number, 1 << level)));
        }
        numbers.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
        let mut up_to = 0;
        for (_, weight) in &mut numbers {
            up_to += *weight;
            *weight = up_to;
        }
        SortedNumbers { numbers, count: self.count, range: self.range }
    }

    /// The number of numbers that were added.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn retained(&self) -> usize {
        self.retained
    }

    pub(crate) fn range(&self) -> Option<Range> {
        self.range
    }

    pub(crate) fn is_estimated(&self) -> bool {
        self.levels.len() > 1
    }

    /// The share of all numbers by which one rank may err, with 99 % confidence.
    pub(crate) fn rank_error(&self) -> f64 {
        2.296 / f64::from(self.min_k).powf(0.9723)
    }

    /// The share by which the count between two points may err, likewise.
    pub(crate) fn range_error(&self) -> f64 {
        2.446 / f64::from(self.min_k).powf(0.9433)
    }

    /// The bytes behind the sketch.
    pub(crate) fn contents_bytes(&self) -> usize {
        let levels = allocated(self.levels.capacity() * size_of::<Vec<f64>>());
        let numbers = self.levels.iter().map(|level| allocated(level.capacity() * size_of::<f64>()));
        levels + numbers.sum::<usize>()
    }

    /// The bytes that results of the sketch, or a merge, take beside it.
    pub(crate) fn working_bytes(&self) -> usize {
        self.retained * 5 * size_of::<f64>() + ALLOCATION_BYTES
    }

    pub(crate) fn write(&self, out: &mut SketchBytes) {
        let (words, version, flags) = match self.count {
            0 => (WORDS_SHORT, VERSION_FULL, IS_EMPTY),
            1 => (WORDS_SHORT, VERSION_SINGLE, IS_SINGLE),
            _ => (WORDS_FULL, VERSION_FULL, 0),
        };
        out.write(&[words, version, FAMILY, flags]);
        out.write_u16_le(self.k);
        out.write(&[LEVEL_MIN as u8, 0]);
        if self.count > 1 {
            out.write_u64_le(self.count);
            out.write_u16_le(self.min_k);
            out.write(&[self.levels.len() as u8, 0]);
            let mut start = self.capacity - self.retained;
            for level in &self.levels {
                out.write_u32_le(start as u32);
                start += level.len();
            }
            let Range { min, max } = self.range.unwrap_or(Range { min: 0.0, max: 0.0 });
            out.write_f64_le(min);
            out.write_f64_le(max);
        }
        self.levels.iter().flatten().for_each(|number| out.write_f64_le(*number));
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Error> {
        let mut input = SketchSlice::new(bytes);
        let mut head = [0; 4];
        input.read_exact(&mut head).map_err(cut)?;
        let k = input.read_u16_le().map_err(cut)?;
        let level_min = input.read_u8().map_err(cut)?;
        input.read_u8().map_err(cut)?;
        if usize::from(level_min) != LEVEL_MIN || k < u16::from(level_min) {
            return Err(damaged("quantiles of an unknown size"));
        }
        let mut sketch = Self::new(k);
        match (head[0], head[1], head[2]) {
            (WORDS_SHORT, VERSION_FULL, FAMILY) if head[3] & IS_EMPTY != 0 => {}
            (WORDS_SHORT, VERSION_SINGLE, FAMILY) => sketch.add(read_number(&mut input)?),
            (WORDS_FULL, VERSION_FULL, FAMILY) => sketch.read_levels(&mut input)?,
            _ => return Err(damaged("quantiles in an unknown form")),
        }
        if input.remaining().is_empty() { Ok(sketch) } else { Err(damaged("bytes behind quantiles")) }
    }

    fn read_levels(&mut self, input: &mut SketchSlice<'_>) -> Result<(), Error> {
        const WRONG_LEVELS: &str = "quantiles whose levels do not fit together";
        self.count = input.read_u64_le().map_err(cut)?;
        self.min_k = input.read_u16_le().map_err(cut)?;
        let levels = usize::from(input.read_u8().map_err(cut)?);
        input.read_u8().map_err(cut)?;
        if !(1..=LEVELS_MAX).contains(&levels) || self.min_k > self.k || usize::from(self.min_k) < LEVEL_MIN {
            return Err(damaged(WRONG_LEVELS));
        }
        self.capacity = capacity_of(self.k, levels);
        let starts = (0..levels).map(|_| input.read_u32_le().map_err(cut)).collect::<Result<Vec<u32>, _>>()?;
        let range = Range { min: read_number(input)?, max: read_number(input)? };
        self.levels.clear();
        let ends = starts.iter().skip(1).copied().chain([self.capacity as u32]);
        for (start, end) in starts.iter().zip(ends) {
            let length = end.checked_sub(*start).ok_or_else(|| damaged(WRONG_LEVELS))?;
            let numbers = (0..length).map(|_| read_number(input)).collect::<Result<Vec<f64>, _>>()?;
            if !self.levels.is_empty() && !numbers.is_sorted() {
                return Err(damaged(WRONG_LEVELS));
            }
            self.retained += numbers.len();
            self.levels.push(numbers);
        }
        let weights = self.levels.iter().enumerate().map(|(level, numbers)| (numbers.len() as u128) << level);
        let is_within = |number: &f64| (range.min..=range.max).contains(number);
        if self.count == 0
            || weights.sum::<u128>() != u128::from(self.count)
            || !self.levels.iter().flatten().all(is_within)
        {
            return Err(damaged(WRONG_LEVELS));
        }
        self.range = Some(range);
        Ok(())
    }
}

impl SortedNumbers {
    /// The least number such that at least this share of all does not exceed it; `None` without numbers.
    pub(crate) fn at_rank(&self, rank: f64) -> Option<f64> {
        let Range { min, max } = self.range?;
        if rank <= 0.0 || rank >= 1.0 {
            return Some(if rank <= 0.0 { min } else { max });
        }
        let wanted = (rank * self.count as f64).ceil() as u64;
        let place = self.numbers.partition_point(|(_, up_to)| *up_to < wanted);
        self.numbers.get(place.min(self.numbers.len() - 1)).map(|(number, _)| *number)
    }

    /// The number of numbers below `point`.
    pub(crate) fn count_below(&self, point: f64) -> u64 {
        match self.numbers.partition_point(|(number, _)| *number < point) {
            0 => 0,
            place => self.numbers[place - 1].1,
        }
    }
}

fn read_number(input: &mut SketchSlice<'_>) -> Result<f64, Error> {
    let number = input.read_f64_le().map_err(cut)?;
    if number.is_finite() { Ok(number) } else { Err(damaged("quantiles of numbers that are none")) }
}

/// The numbers that a sketch of so many levels holds.
fn capacity_of(k: u16, levels: usize) -> usize {
    (0..levels).map(|level| level_capacity(k, levels, level)).sum()
}

/// Each level has two thirds of the one above it.
fn level_capacity(k: u16, levels: usize, level: usize) -> usize {
    match levels - level - 1 {
        depth if depth > DEPTH_MAX => LEVEL_MIN,
        depth => {
            let scaled = (u64::from(k) << (depth + 1)) / 3_u64.pow(depth as u32);
            (scaled.div_ceil(2) as usize).max(LEVEL_MIN)
        }
    }
}

#[cfg(test)]
mod tests {
    use datasketches::kll::{KllFloat, KllSketch as Published};

    use super::*;

    fn of(k: u16, numbers: impl IntoIterator<Item = u32>) -> KllSketch {
        let mut sketch = KllSketch::new(k);
        numbers.into_iter().for_each(|number| sketch.add(f64::from(number)));
        sketch
    }

    fn written(sketch: &KllSketch) -> Vec<u8> {
        let mut out = SketchBytes::with_capacity(0);
        sketch.write(&mut out);
        out.into_bytes()
    }

    /// 0 to 99,999 in a mixed order.
    fn mixed() -> impl Iterator<Item = u32> {
        (0..100_000_u32).map(|n| n * 7919 % 100_000)
    }

    /// The largest error of 99 ranks of the numbers 0 to `count` - 1.
    fn worst_error(sketch: &KllSketch, count: f64) -> f64 {
        let sorted = sketch.sorted();
        let errors = (1..100).map(|percent| {
            let rank = f64::from(percent) / 100.0;
            ((sorted.at_rank(rank).unwrap() + 1.0) / count - rank).abs()
        });
        errors.fold(0.0, f64::max)
    }

    #[test]
    fn the_same_numbers_in_the_same_order_give_the_same_quantiles() {
        assert_eq!(written(&of(200, mixed())), written(&of(200, mixed())));
        let merged = || {
            let mut whole = of(200, mixed().filter(|n| n % 3 == 0));
            whole.merge(&of(200, mixed().filter(|n| n % 3 > 0)));
            written(&whole)
        };
        assert_eq!(merged(), merged());
    }

    #[test]
    fn ranks_err_by_no_more_than_the_sketch_tells() {
        let orders: [Vec<u32>; 3] = [mixed().collect(), (0..100_000).collect(), (0..100_000).rev().collect()];
        for numbers in orders {
            let whole = of(1600, numbers.iter().copied());
            assert!(whole.rank_error() < 0.00239 && whole.range_error() < 0.00239);
            assert!(worst_error(&whole, 1e5) <= 0.00239, "{}", worst_error(&whole, 1e5));
            let mut merged = KllSketch::new(1600);
            numbers.chunks(7_000).for_each(|part| merged.merge(&of(1600, part.iter().copied())));
            assert_eq!((merged.count(), merged.range()), (100_000, Some(Range { min: 0.0, max: 99_999.0 })));
            assert!(worst_error(&merged, 1e5) <= 0.00239, "{}", worst_error(&merged, 1e5));
            assert!(merged.retained() < 4_800 && merged.retained() <= merged.capacity, "{}", merged.retained());
        }
    }

    #[test]
    fn a_merge_with_a_smaller_sketch_tells_the_larger_error() {
        let mut whole = of(1600, mixed());
        whole.merge(&of(400, 0..300));
        assert_eq!(whole.rank_error(), of(1600, []).rank_error(), "an exact one adds no error");
        whole.merge(&of(400, mixed()));
        assert_eq!(whole.rank_error(), of(400, []).rank_error());
    }

    #[test]
    fn stored_sketches_are_read_as_they_were_and_are_those_of_apache_datasketches() {
        for count in [0, 1, 2, 400, 401, 50_000] {
            let ours = of(400, mixed().take(count));
            let read = KllSketch::read(&written(&ours)).unwrap();
            assert_eq!((written(&read), read.count(), read.range()), (written(&ours), count as u64, ours.range()));
            let published = Published::<KllFloat<f64>>::deserialize(&written(&ours)).unwrap();
            assert_eq!((published.n(), published.num_retained()), (count as u64, ours.retained()));
            let mut theirs = Published::<KllFloat<f64>>::new(400).unwrap();
            mixed().take(count).for_each(|n| theirs.update(KllFloat::<f64>::new(f64::from(n)).unwrap()));
            let mut resumed = KllSketch::read(&theirs.serialize()).unwrap();
            assert_eq!((resumed.count(), resumed.is_estimated()), (count as u64, theirs.is_estimation_mode()));
            mixed().skip(count).for_each(|n| resumed.add(f64::from(n)));
            assert!(worst_error(&resumed, 1e5) < 0.02, "{count}");
        }
    }

    #[test]
    fn damaged_sketches_are_refused() {
        for count in [1, 50, 5_000] {
            let bytes = written(&of(200, mixed().take(count)));
            for length in 0..bytes.len().min(300) {
                assert!(KllSketch::read(&bytes[..length]).is_err(), "{count} {length}");
            }
            for place in 0..bytes.len().min(300) {
                let mut damaged = bytes.clone();
                damaged[place] ^= 0x81;
                // What is read all the same can be asked, merged and written.
                if let Ok(mut read) = KllSketch::read(&damaged) {
                    read.sorted().at_rank(0.5);
                    read.merge(&of(200, 0..1_000));
                    written(&read);
                }
            }
        }
    }
}
