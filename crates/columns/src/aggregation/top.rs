//! The most frequent tuples: exact while there are few different ones, then with counts that are upper bounds.

use datasketches::codec::{SketchBytes, SketchSlice};
use datasketches::error::Error;
use datasketches::frequencies::{ErrorType, FrequentItemValue, FrequentItemsSketch};

use super::allocation::ALLOCATION_BYTES;
use super::key::{Nested, cut, order_tuples, owned, read_bytes, read_tuple, write_tuple};
use super::sketch::SketchMeta;
use crate::Value;

/// Tuples that may take more are each looked at.
const LOOKED_AT_BYTES: usize = 1 << 20;

/// The bytes of a tuple.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Tuple(Vec<u8>);

impl FrequentItemValue for Tuple {
    fn serialize_size(item: &Self) -> usize {
        size_of::<u64>() + item.0.len()
    }

    fn serialize_value(&self, out: &mut SketchBytes) {
        out.write_u64_le(self.0.len() as u64);
        out.write(&self.0);
    }

    fn deserialize_value(input: &mut SketchSlice<'_>) -> Result<Self, Error> {
        let length = input.read_u64_le().map_err(cut)?;
        let tuple = read_bytes(input, length)?;
        read_tuple(&tuple)?;
        Ok(Self(tuple))
    }
}

#[derive(Debug)]
pub(crate) struct Top {
    k: usize,
    threshold: u64,
    items: FrequentItemsSketch<Tuple>,
    /// The size of the longest tuple.
    tuples_bytes: usize,
    tuple: Tuple,
}

impl Top {
    /// The `k` most frequent, counted at least `threshold` times, in a map of `2^lg_map` places.
    pub(crate) fn new(k: u64, threshold: u64, lg_map: u8) -> Self {
        let items = FrequentItemsSketch::new(1 << lg_map).expect("the size of a sketch is within its family's bounds");
        Self { k: usize::try_from(k).unwrap_or(usize::MAX), threshold, items, tuples_bytes: 0, tuple: Tuple::default() }
    }

    pub(crate) fn add(&mut self, inputs: &[Value<'_>]) -> Result<(), Nested> {
        write_tuple(&mut self.tuple.0, inputs)?;
        self.tuples_bytes = self.tuples_bytes.max(self.tuple.0.len());
        self.items.update_ref(&self.tuple);
        Ok(())
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.items.merge(&other.items);
        self.tuples_bytes = self.tuples_bytes.max(other.tuples_bytes);
    }

    /// The values and the count of each, the most frequent first, equal counts by the values. A count that may be too high is
    /// followed by the least that it can be.
    pub(crate) fn rows(&self) -> Vec<Vec<Value<'static>>> {
        let found =
            self.items.frequent_items_with_threshold(ErrorType::NoFalseNegatives, self.threshold.saturating_sub(1));
        let mut counted: Vec<([u64; 2], Vec<Value<'static>>)> = Vec::with_capacity(found.len());
        for row in &found {
            let tuple = read_tuple(&row.item().0).expect("a tuple was written here, or checked when it was read");
            counted.push(([row.upper_bound(), row.lower_bound()], tuple.into_iter().map(owned).collect()));
        }
        counted.sort_by(|(a, a_tuple), (b, b_tuple)| b.cmp(a).then_with(|| order_tuples(a_tuple, b_tuple)));
        counted.truncate(self.k);
        let told = if self.items.maximum_error() > 0 { 2 } else { 1 };
        let with_count = |(bounds, mut tuple): ([u64; 2], Vec<Value<'static>>)| {
            tuple.extend(bounds[..told].iter().map(|count| Value::Integer(i64::try_from(*count).unwrap_or(i64::MAX))));
            tuple
        };
        counted.into_iter().map(with_count).collect()
    }

    pub(crate) fn meta(&self) -> SketchMeta {
        SketchMeta {
            items_seen: Some(self.items.total_weight()),
            count_error: Some(self.items.maximum_error()),
            active_items: Some(self.items.num_active_items() as u64),
            ..SketchMeta::new("top", "frequent items", self.size_bytes(), self.items.maximum_error() > 0)
        }
    }

    /// The number of distinct tuples that are counted.
    pub(crate) fn len(&self) -> usize {
        self.items.num_active_items()
    }

    /// The size in bytes. Small states count each tuple with the length of the longest.
    pub(crate) fn size_bytes(&self) -> usize {
        let most = self.len() * (self.tuples_bytes + ALLOCATION_BYTES);
        let tuples = if most <= LOOKED_AT_BYTES { most } else { self.look_at_tuples() };
        self.items.estimated_size() + tuples
    }

    fn look_at_tuples(&self) -> usize {
        let all = self.items.frequent_items(ErrorType::NoFalseNegatives);
        all.iter().map(|row| row.item().0.len() + ALLOCATION_BYTES).sum()
    }

    pub(crate) fn write(&self, out: &mut SketchBytes) {
        out.write_u64_le(self.tuples_bytes as u64);
        out.write(&self.items.serialize());
    }

    pub(crate) fn resume(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut input = SketchSlice::new(bytes);
        let longest = input.read_u64_le().map_err(cut)?;
        self.tuples_bytes = usize::try_from(longest).unwrap_or(usize::MAX).min(bytes.len());
        self.items = FrequentItemsSketch::deserialize(input.remaining())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(top: &mut Top, text: &str, times: u64) {
        (0..times).for_each(|_| top.add(&[Value::Text(text.to_owned().into())]).unwrap());
    }

    fn rows(top: &Top) -> Vec<(String, i64)> {
        let row = |row: Vec<Value<'static>>| match row.as_slice() {
            [Value::Text(text), Value::Integer(count), ..] => (text.to_string(), *count),
            other => panic!("{other:?}"),
        };
        top.rows().into_iter().map(row).collect()
    }

    #[test]
    fn the_three_most_frequent_of_four() {
        let (mut here, mut there) = (Top::new(3, 0, 10), Top::new(3, 0, 10));
        for (text, times) in [("d", 1), ("a", 5), ("c", 3)] {
            add(&mut here, text, times);
        }
        add(&mut there, "b", 4);
        here.merge(&there);
        assert_eq!(rows(&here), [("a".to_owned(), 5), ("b".to_owned(), 4), ("c".to_owned(), 3)]);
        let meta = here.meta();
        assert_eq!((meta.was_estimated, meta.items_seen, meta.count_error), (false, Some(13), Some(0)));
        assert_eq!(meta.active_items, Some(4));
    }

    #[test]
    fn one_long_tuple_does_not_make_the_others_as_long() {
        let mut top = Top::new(1, 0, 16);
        (0..20_000).for_each(|n| add(&mut top, &format!("short {n}"), 1));
        add(&mut top, &"long".repeat(100_000), 1);
        assert!((400_000..8 << 20).contains(&top.size_bytes()), "{}", top.size_bytes());
    }

    #[test]
    fn a_threshold_leaves_rarer_ones_out() {
        let mut top = Top::new(10, 4, 10);
        for (text, times) in [("a", 5), ("b", 4), ("c", 3)] {
            add(&mut top, text, times);
        }
        assert_eq!(rows(&top), [("a".to_owned(), 5), ("b".to_owned(), 4)]);
    }

    #[test]
    fn a_top_list_is_exact_up_to_three_quarters_of_its_map() {
        let mut top = Top::new(1000, 0, 10);
        for n in 0..767 {
            add(&mut top, &n.to_string(), 2);
        }
        assert_eq!((top.meta().was_estimated, top.rows().len()), (false, 767));
    }

    #[test]
    fn counts_of_many_are_upper_bounds_within_the_reported_error() {
        let mut parts = [Top::new(5, 0, 10), Top::new(5, 0, 10)];
        let mut length = 0;
        for n in 0..20_000_u64 {
            let text = if n % 3 == 0 { format!("often{}", n % 5) } else { format!("once{n}") };
            add(&mut parts[(n % 2) as usize], &text, 1);
            length += 1;
        }
        let [mut top, other] = parts;
        top.merge(&other);
        let error = top.meta().count_error.unwrap();
        assert!(top.meta().was_estimated && error as f64 <= 3.5 / 1024.0 * f64::from(length), "{error}");
        for row in top.rows() {
            let [_, Value::Integer(most), Value::Integer(least)] = row[..] else { panic!("{row:?}") };
            assert!((0..=error as i64).contains(&(most - least)), "{row:?}");
        }
        let truth = |text: &str| (0..20_000).filter(|n| n % 3 == 0 && text == format!("often{}", n % 5)).count() as u64;
        for (text, count) in rows(&top) {
            let truth = truth(&text);
            assert!(text.starts_with("often") && (truth..=truth + error).contains(&(count as u64)), "{text}: {count}");
        }
    }

    #[test]
    fn a_written_top_list_is_read_back_and_goes_on() {
        let mut top = Top::new(2, 0, 10);
        add(&mut top, "a", 3);
        add(&mut top, "b", 2);
        let mut bytes = SketchBytes::with_capacity(0);
        top.write(&mut bytes);
        let bytes = bytes.into_bytes();
        let mut read = Top::new(2, 0, 10);
        read.resume(&bytes).unwrap();
        add(&mut read, "b", 2);
        assert_eq!(rows(&read), [("b".to_owned(), 4), ("a".to_owned(), 3)]);
        for length in [0, 7, 8, 20, bytes.len() - 1] {
            assert!(Top::new(2, 0, 10).resume(&bytes[..length]).is_err(), "{length}");
        }
    }
}
