//! The first rows of a result by their sort keys: a heap of as many rows as the result has.
//!
//! Of rows with equal keys those that were added first come first.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::allocation::ALLOCATION_BYTES;
use super::key::{order_values, owned, read_values};
use crate::Value;

#[derive(Debug)]
pub(crate) struct SortedRows {
    /// True for each sort key whose greatest value comes first.
    descending: Box<[bool]>,
    rows_max: usize,
    /// On top the row that leaves when one before it comes.
    heap: BinaryHeap<SortedRow>,
    added: u64,
}

/// A row with its sort keys.
#[derive(Debug)]
struct SortedRow {
    keys: Box<[SortKey]>,
    /// The number of rows that were added before it.
    number: u64,
    /// The keys and the row, as a match has written them.
    written: Box<[u8]>,
    row_start: usize,
}

#[derive(Debug)]
struct SortKey {
    value: Value<'static>,
    descending: bool,
}

impl SortedRows {
    pub(crate) fn new(rows_max: usize, descending: Box<[bool]>) -> Self {
        Self { descending, rows_max, heap: BinaryHeap::new(), added: 0 }
    }

    /// Adds a row that is written behind its sort keys, unless as many come before it as the result has.
    pub(crate) fn add(&mut self, written: &[u8]) {
        // A row that was stored before rows were sorted has no sort keys.
        let (keys, row) = read_values(written, self.descending.len()).unwrap_or((Vec::new(), written));
        if self.heap.len() == self.rows_max {
            match self.heap.peek() {
                Some(last) if self.order(&keys, last).is_lt() => drop(self.heap.pop()),
                _ => return,
            }
        }
        let key = |(value, descending): (Value<'_>, &bool)| SortKey { value: owned(value), descending: *descending };
        self.heap.push(SortedRow {
            row_start: written.len() - row.len(),
            keys: keys.into_iter().zip(&self.descending).map(key).collect(),
            number: self.added,
            written: written.into(),
        });
        self.added += 1;
    }

    fn order(&self, keys: &[Value<'_>], row: &SortedRow) -> Ordering {
        let each = keys.iter().zip(&row.keys).map(|(key, other)| {
            let order = order_values(key, &other.value);
            if other.descending { order.reverse() } else { order }
        });
        first_difference(each)
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        other.in_order().into_iter().for_each(|row| self.add(&row.written));
    }

    fn in_order(&self) -> Vec<&SortedRow> {
        let mut rows: Vec<&SortedRow> = self.heap.iter().collect();
        rows.sort_unstable();
        rows
    }

    /// The rows in the order of the result, without their sort keys.
    pub(crate) fn rows(&self) -> Vec<&[u8]> {
        self.in_order().into_iter().map(|row| &row.written[row.row_start..]).collect()
    }

    /// The rows in the order of the result, behind their sort keys.
    pub(crate) fn written(&self) -> impl Iterator<Item = &[u8]> {
        self.in_order().into_iter().map(|row| &*row.written)
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.descending.len() + self.heap.iter().map(SortedRow::size_bytes).sum::<usize>()
    }
}

impl SortedRow {
    fn size_bytes(&self) -> usize {
        let keys = self.keys.iter().map(|key| match &key.value {
            Value::Text(text) => size_of::<SortKey>() + text.len() + ALLOCATION_BYTES,
            _ => size_of::<SortKey>(),
        });
        size_of::<Self>() + 2 * ALLOCATION_BYTES + self.written.len() + keys.sum::<usize>()
    }
}

impl Ord for SortedRow {
    fn cmp(&self, other: &Self) -> Ordering {
        first_difference(self.keys.iter().zip(&other.keys).map(|(a, b)| a.cmp(b))).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for SortedRow {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SortedRow {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for SortedRow {}

impl SortKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = order_values(&self.value, &other.value);
        if self.descending { order.reverse() } else { order }
    }
}

fn first_difference(mut orders: impl Iterator<Item = Ordering>) -> Ordering {
    orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::super::key::write_input;
    use super::*;

    fn written(keys: &[Value<'_>], row: &str) -> Vec<u8> {
        let mut written = Vec::new();
        keys.iter().for_each(|key| write_input(&mut written, key));
        written.extend_from_slice(row.as_bytes());
        written
    }

    fn texts(rows: &SortedRows) -> Vec<String> {
        rows.rows().into_iter().map(|row| String::from_utf8(row.to_vec()).unwrap()).collect()
    }

    #[test]
    fn the_first_rows_by_their_keys_stay_however_they_come_and_are_merged() {
        use Value::{Double, Integer, Null};
        let values = [Integer(3), Null, Double(7.5), Integer(7), Value::Text("a".into()), Integer(3), Integer(-1)];
        let rows: Vec<Vec<u8>> =
            values.iter().enumerate().map(|(n, value)| written(std::slice::from_ref(value), &n.to_string())).collect();
        for (descending, rows_max, expected) in [
            (true, 3, vec!["4", "2", "3"]),
            (false, 3, vec!["1", "6", "0"]),
            (false, 4, vec!["1", "6", "0", "5"]),
            (true, 9, vec!["4", "2", "3", "0", "5", "6", "1"]),
            (true, 0, vec![]),
        ] {
            for split in 0..=rows.len() {
                let mut parts = [&rows[..split], &rows[split..]].map(|rows| {
                    let mut part = SortedRows::new(rows_max, [descending].into());
                    rows.iter().for_each(|row| part.add(row));
                    part
                });
                let [whole, rest] = &mut parts;
                whole.merge(rest);
                assert_eq!(texts(whole), expected, "{descending} {rows_max} {split}");
            }
        }
    }

    #[test]
    fn rows_without_keys_keep_the_order_in_which_they_came() {
        let mut rows = SortedRows::new(2, [true].into());
        ["{\"n\":1}", "{\"n\":2}", "{\"n\":3}"].iter().for_each(|row| rows.add(row.as_bytes()));
        assert_eq!(texts(&rows), ["{\"n\":1}", "{\"n\":2}"]);
    }
}
