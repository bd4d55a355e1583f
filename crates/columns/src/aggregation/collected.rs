//! A list of values: those of all records, or of the first by an order.
//!
//! Values are kept as JSON. Of values with equal sort keys those that were added first come first.

use std::cmp::Ordering;
use std::collections::HashSet;

use datasketches::codec::{SketchBytes, SketchSlice};
use datasketches::error::Error;

use super::allocation::ALLOCATION_BYTES;
use super::key::{cut, damaged, order_values, owned, read_bytes, read_tuple, write_input, write_value};
use crate::Value;

/// The values that a list has, and their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListKind {
    /// Each different value once.
    pub distinct: bool,
    /// The number of sort keys, which are the first inputs; at most 8.
    pub sort_keys: u8,
    /// A bit for each sort key whose greatest value comes first.
    pub descending: u8,
    /// The number of values that are kept.
    pub values_max: u32,
}

/// The values of a list so far, in its order.
#[derive(Debug, Clone)]
pub(crate) struct Collected {
    kind: ListKind,
    values: Vec<Kept>,
    /// The bytes by which values differ, if each is kept once.
    known: HashSet<Box<[u8]>>,
    heap_bytes: usize,
}

#[derive(Debug, Clone)]
struct Kept {
    keys: Box<[Value<'static>]>,
    json: Box<[u8]>,
}

impl Collected {
    pub(crate) fn new(kind: ListKind) -> Self {
        Self { kind, values: Vec::new(), known: HashSet::new(), heap_bytes: 0 }
    }

    pub(crate) fn kind(&self) -> ListKind {
        self.kind
    }

    /// Adds a value behind its sort keys.
    pub(crate) fn add(&mut self, inputs: &[Value<'_>]) {
        let Some((value, keys)) = inputs.split_last() else { return };
        self.insert(keys, |json| value.write_json(json));
    }

    fn insert(&mut self, keys: &[Value<'_>], write: impl FnOnce(&mut Vec<u8>)) {
        let place = self.values.partition_point(|kept| self.order(&kept.keys, keys).is_le());
        if place >= self.kind.values_max as usize {
            return;
        }
        let mut json = Vec::with_capacity(32);
        write(&mut json);
        if self.kind.distinct && !self.is_first_of_its_kind(&json, keys) {
            return;
        }
        // It may have taken the place of a later one.
        let place = self.values.partition_point(|kept| self.order(&kept.keys, keys).is_le());
        let kept = Kept { keys: keys.iter().cloned().map(owned).collect(), json: json.into() };
        self.heap_bytes += kept.heap_bytes();
        self.values.insert(place, kept);
        if self.values.len() > self.kind.values_max as usize {
            self.remove(self.values.len() - 1);
        }
    }

    /// `true` for a value that is not there yet, or that comes before the same one, which then leaves.
    fn is_first_of_its_kind(&mut self, json: &[u8], keys: &[Value<'_>]) -> bool {
        let identity = identity(json);
        if !self.known.contains(&identity) {
            self.heap_bytes += identity_bytes(&identity);
            self.known.insert(identity);
            return true;
        }
        let same = self.values.iter().position(|kept| self::identity(&kept.json) == identity);
        let Some(same) = same.filter(|same| self.order(keys, &self.values[*same].keys).is_lt()) else { return false };
        let former = self.values.remove(same);
        self.heap_bytes -= former.heap_bytes();
        true
    }

    fn remove(&mut self, place: usize) {
        let former = self.values.remove(place);
        self.heap_bytes -= former.heap_bytes();
        let identity = identity(&former.json);
        if self.known.remove(&identity) {
            self.heap_bytes -= identity_bytes(&identity);
        }
    }

    fn order(&self, a: &[Value<'_>], b: &[Value<'_>]) -> Ordering {
        let each = a.iter().zip(b).enumerate().map(|(number, (a, b))| {
            let order = order_values(a, b);
            if self.kind.descending & (1 << number) == 0 { order } else { order.reverse() }
        });
        each.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        other.values.iter().for_each(|kept| self.insert(&kept.keys, |json| json.extend_from_slice(&kept.json)));
    }

    /// The list.
    pub(crate) fn value(&self) -> Value<'static> {
        let value = |kept: &Kept| Value::read(&kept.json).map_or(Value::Null, Value::into_owned);
        Value::List(self.values.iter().map(value).collect())
    }

    pub(crate) fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.values.capacity() * size_of::<Kept>() + self.heap_bytes
    }

    pub(crate) fn write(&self, out: &mut SketchBytes) {
        let ListKind { distinct, sort_keys, descending, values_max } = self.kind;
        [u8::from(distinct), sort_keys, descending].into_iter().for_each(|byte| out.write_u8(byte));
        out.write_u32_le(values_max);
        out.write_u64_le(self.values.len() as u64);
        for Kept { keys, json } in &self.values {
            let mut tuple = Vec::new();
            keys.iter().for_each(|key| write_input(&mut tuple, key));
            out.write_u64_le(tuple.len() as u64);
            out.write(&tuple);
            out.write_u64_le(json.len() as u64);
            out.write(json);
        }
    }

    pub(crate) fn read(input: &mut SketchSlice<'_>) -> Result<Self, Error> {
        let [distinct, sort_keys, descending] = {
            let mut bytes = [0; 3];
            for byte in &mut bytes {
                *byte = input.read_u8().map_err(cut)?;
            }
            bytes
        };
        let values_max = input.read_u32_le().map_err(cut)?;
        let mut read = Self::new(ListKind { distinct: distinct != 0, sort_keys, descending, values_max });
        for _ in 0..input.read_u64_le().map_err(cut)? {
            let length = input.read_u64_le().map_err(cut)?;
            let tuple = read_bytes(input, length)?;
            let keys = read_tuple(&tuple)?;
            if keys.len() != usize::from(sort_keys) {
                return Err(damaged("a value of a list without its sort keys"));
            }
            let length = input.read_u64_le().map_err(cut)?;
            let json = read_bytes(input, length)?;
            if Value::read(&json).is_err() {
                return Err(damaged("a value of a list that is no JSON"));
            }
            read.insert(&keys, |out| out.extend_from_slice(&json));
        }
        Ok(read)
    }
}

impl Kept {
    fn heap_bytes(&self) -> usize {
        let texts =
            self.keys.iter().map(|key| if let Value::Text(text) = key { text.len() + ALLOCATION_BYTES } else { 0 });
        2 * ALLOCATION_BYTES + size_of_val(&*self.keys) + texts.sum::<usize>() + self.json.len()
    }
}

fn identity_bytes(identity: &[u8]) -> usize {
    2 * size_of::<Box<[u8]>>() + ALLOCATION_BYTES + identity.len()
}

/// Bytes that equal values share, and no others: numbers by their value, lists and maps by their JSON.
fn identity(json: &[u8]) -> Box<[u8]> {
    let mut identity = Vec::with_capacity(json.len());
    if Value::read(json).is_ok_and(|value| write_value(&mut identity, &value).is_ok()) {
        return identity.into();
    }
    json.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: ListKind = ListKind { distinct: false, sort_keys: 0, descending: 0, values_max: u32::MAX };

    fn json(list: &Collected) -> String {
        let mut out = Vec::new();
        list.value().write_json(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn of(kind: ListKind, records: &[(i64, &str)]) -> Collected {
        let mut list = Collected::new(kind);
        for (key, value) in records {
            let value = Value::read(value.as_bytes()).unwrap();
            match kind.sort_keys {
                0 => list.add(&[value]),
                _ => list.add(&[Value::Integer(*key), value]),
            }
        }
        list
    }

    const RECORDS: [(i64, &str); 6] =
        [(3, r#"{"a":1}"#), (1, "2"), (3, "\"x\""), (2, "2.0"), (5, "null"), (4, r#"{"a":1}"#)];

    #[test]
    fn values_stay_in_the_order_in_which_they_come_or_in_that_of_their_sort_keys() {
        assert_eq!(json(&of(ALL, &RECORDS)), r#"[{"a":1},2,"x",2.0,null,{"a":1}]"#);
        let sorted = ListKind { sort_keys: 1, ..ALL };
        assert_eq!(json(&of(sorted, &RECORDS)), r#"[2,2.0,{"a":1},"x",{"a":1},null]"#);
        let first = ListKind { descending: 1, values_max: 3, ..sorted };
        assert_eq!(json(&of(first, &RECORDS)), r#"[null,{"a":1},{"a":1}]"#);
        assert_eq!(json(&of(ListKind { values_max: 2, ..ALL }, &RECORDS)), r#"[{"a":1},2]"#);
    }

    #[test]
    fn each_different_value_is_kept_once_in_its_first_place() {
        let distinct = ListKind { distinct: true, ..ALL };
        assert_eq!(json(&of(distinct, &RECORDS)), r#"[{"a":1},2,"x",null]"#);
        let sorted = ListKind { sort_keys: 1, descending: 1, ..distinct };
        assert_eq!(json(&of(sorted, &RECORDS)), r#"[null,{"a":1},"x",2.0]"#);
        let first = ListKind { values_max: 2, ..sorted };
        assert_eq!(json(&of(first, &RECORDS)), r#"[null,{"a":1}]"#);
    }

    #[test]
    fn parts_that_are_stored_and_merged_are_as_the_whole() {
        let kinds =
            [ALL, ListKind { distinct: true, ..ALL }, ListKind { sort_keys: 1, descending: 1, values_max: 3, ..ALL }];
        for kind in kinds {
            for split in 0..=RECORDS.len() {
                let mut list = of(kind, &RECORDS[..split]);
                let mut bytes = SketchBytes::with_capacity(0);
                of(kind, &RECORDS[split..]).write(&mut bytes);
                let bytes = bytes.into_bytes();
                list.merge(&Collected::read(&mut SketchSlice::new(&bytes)).unwrap());
                let whole = of(kind, &RECORDS);
                assert_eq!((json(&list), list.heap_bytes), (json(&whole), whole.heap_bytes), "{kind:?} {split}");
                assert!((0..bytes.len()).all(|end| Collected::read(&mut SketchSlice::new(&bytes[..end])).is_err()));
            }
        }
    }
}
