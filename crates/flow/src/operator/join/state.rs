//! The records that a `join` keeps, and their stored form.
//!
//! Each record has an entry of its own, so that an epoch stores what is new:
//!
//! | key | value |
//! | --- | --- |
//! | the key of the join, `l` (left) or `r` (right), decimal number | 8 bytes time, 1 byte: 1 once it has had a partner; payload |
//!
//! The time is big endian, milliseconds since 1970-01-01T00:00:00Z. Numbers count the records of a key.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::document::JoinSide;
use crate::state::StateValue;

/// Memory of a record in the order of its key, and of that key among the keys and timers.
const BESIDE_BYTES: u64 = 240;

/// A record that waits for partners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KeptRecord {
    pub(super) time_ms: i64,
    pub(super) is_matched: bool,
    /// A JSON object.
    pub(super) payload: Box<[u8]>,
    /// The length of the join's key, which is there once more for the key's order.
    pub(super) key_bytes: usize,
}

impl KeptRecord {
    /// The record of a stored form, of a key with so many bytes; `None` if it is none.
    pub(super) fn decode(stored: &[u8], key_bytes: usize) -> Option<Self> {
        let (time, rest) = stored.split_first_chunk()?;
        let (is_matched, payload) = rest.split_first()?;
        let time_ms = i64::from_be_bytes(*time);
        (*is_matched <= 1).then(|| Self { time_ms, is_matched: *is_matched == 1, payload: payload.into(), key_bytes })
    }
}

impl StateValue for KeptRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.time_ms.to_be_bytes());
        out.push(u8::from(self.is_matched));
        out.extend_from_slice(&self.payload);
    }

    fn heap_bytes(&self) -> u64 {
        BESIDE_BYTES + (self.payload.len() + self.key_bytes) as u64
    }
}

/// The key of the entry of a record.
pub(super) fn entry_key(key: &[u8], side: JoinSide, number: u64) -> Vec<u8> {
    let side = match side {
        JoinSide::Left => b'l',
        JoinSide::Right => b'r',
    };
    [key, &[side], number.to_string().as_bytes()].concat()
}

/// The key of the join, the side and the number of an entry; `None` if it is none.
pub(in crate::operator) fn read_entry_key(entry: &[u8]) -> Option<(&[u8], JoinSide, u64)> {
    let end = entry.iter().rposition(|byte| *byte == b'\n')? + 1;
    let (key, rest) = entry.split_at(end);
    let (side, number) = rest.split_first()?;
    let side = match side {
        b'l' => JoinSide::Left,
        b'r' => JoinSide::Right,
        _ => return None,
    };
    Some((key, side, std::str::from_utf8(number).ok()?.parse().ok()?))
}

/// A record in the order of its key and side.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) time_ms: i64,
    pub(super) number: u64,
    /// The key of its entry.
    pub(super) entry: Arc<[u8]>,
}

/// The order of the records of one key.
#[derive(Debug, Default)]
pub(super) struct KeyRecords {
    left: VecDeque<Place>,
    right: VecDeque<Place>,
    /// Above the numbers of all records.
    next_number: u64,
    /// The time of its timer.
    pub(super) armed_ms: Option<i64>,
}

impl KeyRecords {
    /// The records of a side, by time and then by number.
    pub(super) fn of(&self, side: JoinSide) -> &VecDeque<Place> {
        match side {
            JoinSide::Left => &self.left,
            JoinSide::Right => &self.right,
        }
    }

    pub(super) fn of_mut(&mut self, side: JoinSide) -> &mut VecDeque<Place> {
        match side {
            JoinSide::Left => &mut self.left,
            JoinSide::Right => &mut self.right,
        }
    }

    /// A number that no record has.
    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }

    pub(super) fn add(&mut self, side: JoinSide, place: Place) {
        self.next_number = self.next_number.max(place.number.saturating_add(1));
        let of_side = self.of_mut(side);
        let order = |place: &Place| (place.time_ms, place.number);
        let at = of_side.partition_point(|known| order(known) < order(&place));
        of_side.insert(at, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_form_stays_as_it_is() {
        let key = b"\"a\"\n7\n";
        let entry = entry_key(key, JoinSide::Right, 12);
        assert_eq!(entry, b"\"a\"\n7\nr12");
        assert_eq!(read_entry_key(&entry), Some((&key[..], JoinSide::Right, 12)));
        assert_eq!(read_entry_key(b"1\nl0"), Some((&b"1\n"[..], JoinSide::Left, 0)));
        let kept = KeptRecord { time_ms: 258, is_matched: true, payload: b"{}"[..].into(), key_bytes: key.len() };
        let mut stored = Vec::new();
        kept.encode(&mut stored);
        assert_eq!(stored, b"\0\0\0\0\0\0\x01\x02\x01{}");
        assert_eq!(KeptRecord::decode(&stored, key.len()), Some(kept));
    }

    #[test]
    fn anything_else_is_refused() {
        for entry in [&b""[..], b"\n", b"l1", b"1\nl", b"1\nx1", b"1\nl-1", b"1\nl1x"] {
            assert_eq!(read_entry_key(entry), None, "{entry:?}");
        }
        for stored in [&b""[..], b"\0\0\0\0\0\0\x01\x02", b"\0\0\0\0\0\0\x01\x02\x02{}"] {
            assert_eq!(KeptRecord::decode(stored, 1), None, "{stored:?}");
        }
    }
}
