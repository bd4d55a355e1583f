//! The index of one field: from a value to the filters that it may satisfy.
//!
//! Every filter is stored under values, intervals or pieces of text such that each satisfying record has at least one of
//! them (`access_path.rs`). A filter that is found is a candidate and is evaluated; a filter that is not found cannot match.

mod frequencies;
mod intervals;
mod postings;

pub(crate) use self::frequencies::Frequencies;
pub(crate) use self::intervals::Interval;
use millstream_columns::{Value, hash_gram, hash_text, hash_value};

use self::intervals::Intervals;
use self::postings::Postings;
use crate::filter_id::FilterId;

/// Length of the pieces under which literals are stored.
pub(crate) const GRAM_BYTES: usize = 4;

/// The values of a field for which a filter can be TRUE.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Hold {
    /// A value with one of these hashes.
    Keys(Box<[ValueKey]>),
    /// A number in the interval.
    Numbers(Interval<i64>),
    /// A text in the interval.
    Texts(Interval<Box<[u8]>>),
    /// A text with one of these pieces in it.
    Grams(Box<[[u8; GRAM_BYTES]]>),
    /// Any value that is not NULL.
    Present,
    /// NULL: it is missing, or null.
    Null,
}

/// A value by its kind and hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValueKey {
    pub(crate) kind: KeyKind,
    pub(crate) hash: u64,
}

/// Kinds of values that something can be equal to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Boolean,
    Number,
    Text,
}

impl ValueKey {
    /// The key of a value that something can be equal to.
    pub(crate) fn of(value: &Value<'_>) -> Option<Self> {
        let kind = match value {
            Value::Boolean(_) => KeyKind::Boolean,
            Value::Integer(_) | Value::Double(_) => KeyKind::Number,
            Value::Text(_) => KeyKind::Text,
            _ => return None,
        };
        hash_value(value).map(|hash| Self { kind, hash })
    }
}

/// A number as a key of intervals: never out of order, though neighbouring integers beyond 2^53 may become one.
pub(crate) fn sortable(value: f64) -> i64 {
    // Adding zero makes of both zeros one.
    let bits = (value + 0.0).to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// The filters that are stored under one field.
#[derive(Debug, Default)]
pub(crate) struct FieldIndex {
    equal: Postings,
    /// The number of keys of each kind in `equal`.
    kinds: [usize; 3],
    numbers: Intervals<i64>,
    texts: Intervals<Box<[u8]>>,
    grams: Postings,
    present: Vec<FilterId>,
    null: Vec<FilterId>,
    frequencies: Frequencies,
}

impl FieldIndex {
    pub(crate) fn is_empty(&self) -> bool {
        self.kinds == [0; 3]
            && self.numbers.is_empty()
            && self.texts.is_empty()
            && self.grams.is_empty()
            && self.present.is_empty()
            && self.null.is_empty()
    }

    /// The filters that may hold where the field is anything but NULL.
    pub(crate) fn present(&self) -> &[FilterId] {
        &self.present
    }

    /// The filters that hold where the field is NULL.
    pub(crate) fn null(&self) -> &[FilterId] {
        &self.null
    }

    pub(crate) fn insert(&mut self, hold: &Hold, filter: FilterId) {
        match hold {
            Hold::Keys(keys) => {
                for key in keys {
                    self.kinds[key.kind as usize] += 1;
                    self.equal.insert(key.hash, filter);
                }
            }
            Hold::Numbers(interval) => self.numbers.insert(interval.clone(), filter),
            Hold::Texts(interval) => self.texts.insert(interval.clone(), filter),
            Hold::Grams(grams) => grams.iter().for_each(|gram| self.grams.insert(hash_gram(*gram), filter)),
            Hold::Present => self.present.push(filter),
            Hold::Null => self.null.push(filter),
        }
    }

    pub(crate) fn remove(&mut self, hold: &Hold, filter: FilterId) {
        match hold {
            Hold::Keys(keys) => {
                for key in keys {
                    self.kinds[key.kind as usize] -= 1;
                    self.equal.remove(key.hash, filter);
                }
            }
            Hold::Numbers(interval) => self.numbers.remove(interval, filter),
            Hold::Texts(interval) => self.texts.remove(interval, filter),
            Hold::Grams(grams) => grams.iter().for_each(|gram| self.grams.remove(hash_gram(*gram), filter)),
            Hold::Present => remove(&mut self.present, filter),
            Hold::Null => remove(&mut self.null, filter),
        }
    }

    /// The estimated number of candidates that `hold` adds for a record, in millionths. The filters that are stored already
    /// break ties, because values that many filters ask for are hardly rare.
    pub(crate) fn cost(&self, hold: &Hold) -> u64 {
        match hold {
            Hold::Keys(keys) => keys.iter().map(|key| self.key_cost(*key)).sum(),
            Hold::Texts(Interval { low, high: Some(_) }) => 20_000 / (low.len() as u64 + 1),
            Hold::Grams(grams) => grams.iter().map(|gram| 2_000 + self.grams.of(hash_gram(*gram)).len() as u64).sum(),
            Hold::Numbers(Interval { low, high: Some(high) }) if *low > i64::MIN => {
                if low == high {
                    1_000
                } else {
                    30_000
                }
            }
            Hold::Numbers(_) | Hold::Texts(_) => 300_000,
            Hold::Null => 500_000,
            Hold::Present => 1_000_000,
        }
    }

    fn key_cost(&self, key: ValueKey) -> u64 {
        let assumed = if key.kind == KeyKind::Boolean { 500_000 } else { 100 };
        self.frequencies.millionths(key.hash).unwrap_or(assumed) + self.equal.of(key.hash).len() as u64
    }

    /// Counts a value of a record that was picked to learn which values are rare.
    pub(crate) fn learn(&self, value: &Value<'_>) {
        if let Some(hash) = hash_value(value) {
            self.frequencies.count(hash);
        }
    }

    /// Calls `hit` for each filter that a text (UTF-8, no escapes) may satisfy, but for those of [`Self::present`].
    pub(crate) fn meet_text(&self, text: &[u8], hit: &mut impl FnMut(FilterId)) {
        if self.kinds[KeyKind::Text as usize] > 0 {
            self.equal.of(hash_text(text)).for_each(&mut *hit);
        }
        if !self.texts.is_empty() {
            self.texts.stab(text, hit);
        }
        if !self.grams.is_empty() {
            for gram in text.array_windows::<GRAM_BYTES>() {
                self.grams.of(hash_gram(*gram)).for_each(&mut *hit);
            }
        }
    }

    /// As [`Self::meet_text`], for any value; NULL satisfies only the filters of [`Self::null`].
    pub(crate) fn meet(&self, value: &Value<'_>, hit: &mut impl FnMut(FilterId)) {
        let number = match value {
            Value::Null => return,
            Value::Text(text) => return self.meet_text(text.as_bytes(), hit),
            Value::Integer(value) => Some(*value as f64),
            Value::Double(value) => Some(*value),
            _ => None,
        };
        if let Some(key) = ValueKey::of(value).filter(|key| self.kinds[key.kind as usize] > 0) {
            self.equal.of(key.hash).for_each(&mut *hit);
        }
        if let Some(number) = number {
            self.numbers.stab(&sortable(number), hit);
        }
    }
}

fn remove(filters: &mut Vec<FilterId>, filter: FilterId) {
    if let Some(position) = filters.iter().position(|known| *known == filter) {
        filters.swap_remove(position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sortable_numbers_have_the_order_of_the_numbers() {
        let numbers = [f64::MIN, -1e300, -1.5, -1.0, -f64::MIN_POSITIVE, 0.0, f64::MIN_POSITIVE, 1.0, 1.5, f64::MAX];
        assert!(numbers.is_sorted_by_key(|number| sortable(*number)));
        assert!(numbers.windows(2).all(|pair| sortable(pair[0]) < sortable(pair[1])));
        assert_eq!(sortable(-0.0), sortable(0.0));
    }

    #[test]
    fn the_rarer_value_costs_less() {
        let index = FieldIndex::default();
        let key = |text: &str| Hold::Keys(ValueKey::of(&Value::Text(text.to_owned().into())).into_iter().collect());
        for i in 0..10_000 {
            index.learn(&Value::Text(if i % 2 == 0 { "often".into() } else { format!("rare-{i}").into() }));
        }
        // Some share a counter with others.
        let rare = (1..20).step_by(2).map(|i| index.cost(&key(&format!("rare-{i}")))).min();
        assert!(rare.is_some_and(|rare| index.cost(&key("often")) > 100 * rare));
        assert!(index.cost(&Hold::Present) > index.cost(&key("often")));
        let mut index = FieldIndex::default();
        index.insert(&key("a"), FilterId(0));
        assert!(index.cost(&key("a")) > index.cost(&key("b")));
    }
}
