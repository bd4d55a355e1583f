//! Finds the candidate filters for each record of a chunk, by the indexed fields.

use millstream_columns::{Field, PathTree, Selection, Unreadable, Value};
use millstream_types::{PartitionId, RecordView};

use crate::filter_id::FilterId;
use crate::index::{FieldIndex, Hold};
use crate::prefilter::Prefilter;

/// One record in this many is looked at closely, to learn which values are rare.
const LEARNED_OF: usize = 64;
/// The cost of one more indexed field, in the unit of [`FieldIndex::cost`].
const NEW_FIELD_COST: u64 = 200;

/// The candidates in the records of a chunk.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// The numbers of records, ascending, each with a filter that it may satisfy.
    pub(crate) candidates: Vec<(u32, FilterId)>,
    /// For each indexed field, the records in which it is not NULL.
    present: Vec<Selection>,
    /// The records whose payloads do not look like JSON.
    pub(crate) damaged: Selection,
}

impl Candidates {
    /// Adds the candidates for `value` in a field of a record.
    fn meet(&mut self, record: usize, slot: usize, index: &FieldIndex, value: Result<Value<'_>, Unreadable>) {
        match value {
            Ok(Value::Null) => return,
            Ok(value) => index.meet(&value, &mut |filter| self.candidates.push((record as u32, filter))),
            // A value that cannot be read is present nevertheless.
            Err(_) => {}
        }
        self.present[slot].insert(record);
    }

    fn meet_text(&mut self, record: usize, slot: usize, index: &FieldIndex, text: &[u8]) {
        index.meet_text(text, &mut |filter| self.candidates.push((record as u32, filter)));
        self.present[slot].insert(record);
    }
}

/// The indexed fields of a stream.
#[derive(Debug, Default)]
pub(crate) struct CandidateFinder {
    /// By the stream's numbers of the fields.
    hung: Vec<Option<IndexedField>>,
    /// True if fields were added or removed since the last refresh.
    outdated: bool,
    /// The fields that are not in the payload.
    metadata: Vec<u32>,
    /// Finds the others, unless every payload has to be read.
    prefilter: Option<Prefilter>,
    tree: PathTree,
    /// The number of filters that look for NULL.
    null_count: usize,
}

/// The number of payloads that a thread has read.
#[derive(Debug, Default)]
pub(crate) struct PayloadCount(usize);

#[derive(Debug)]
struct IndexedField {
    field: Field,
    index: FieldIndex,
}

impl CandidateFinder {
    /// About how many candidates of a million records `hold` would give in the field.
    pub(crate) fn cost(&self, slot: u32, hold: &Hold) -> u64 {
        match self.index(slot) {
            Some(index) => index.cost(hold),
            None => FieldIndex::default().cost(hold) + NEW_FIELD_COST,
        }
    }

    fn index(&self, slot: u32) -> Option<&FieldIndex> {
        self.hung.get(slot as usize)?.as_ref().map(|hung| &hung.index)
    }

    pub(crate) fn insert(&mut self, slot: u32, field: &Field, hold: &Hold, filter: FilterId) {
        let slot = slot as usize;
        if slot >= self.hung.len() {
            self.hung.resize_with(slot + 1, || None);
        }
        self.null_count += usize::from(*hold == Hold::Null);
        let hung = self.hung[slot].get_or_insert_with(|| {
            self.outdated = true;
            IndexedField { field: field.clone(), index: FieldIndex::default() }
        });
        hung.index.insert(hold, filter);
    }

    pub(crate) fn remove(&mut self, slot: u32, hold: &Hold, filter: FilterId) {
        let Some(place) = self.hung.get_mut(slot as usize) else { return };
        let Some(hung) = place else { return };
        self.null_count -= usize::from(*hold == Hold::Null);
        hung.index.remove(hold, filter);
        if hung.index.is_empty() {
            *place = None;
            self.outdated = true;
        }
    }

    /// True if the search structures are up to date.
    pub(crate) fn is_fresh(&self) -> bool {
        !self.outdated
    }

    /// Rebuilds the outdated search structures.
    pub(crate) fn refresh(&mut self) {
        if !std::mem::take(&mut self.outdated) {
            return;
        }
        self.metadata.clear();
        self.tree = PathTree::default();
        let mut paths = Vec::new();
        for (slot, hung) in self.hung.iter().enumerate() {
            match hung.as_ref().map(|hung| &hung.field) {
                Some(Field::Payload(steps)) => {
                    self.tree.add(steps, slot);
                    paths.push((slot, &steps[..]));
                }
                Some(_) => self.metadata.push(slot as u32),
                None => {}
            }
        }
        self.prefilter = Prefilter::new(paths);
    }

    /// True if a filter looks for records in which a field is NULL.
    pub(crate) fn asks_for_null(&self) -> bool {
        self.null_count > 0
    }

    /// The fields that filters want to be NULL.
    pub(crate) fn null_slots(&self) -> impl Iterator<Item = (u32, &FieldIndex)> {
        let all = if self.asks_for_null() { &self.hung[..] } else { &[] };
        let hung = all.iter().enumerate().filter_map(|(slot, hung)| Some((slot as u32, &hung.as_ref()?.index)));
        hung.filter(|(_, index)| !index.null().is_empty())
    }

    /// The filters that may hold wherever a field is something else than NULL, with the records in which it is.
    pub(crate) fn present<'s>(&'s self, found: &'s Candidates) -> impl Iterator<Item = (&'s [FilterId], Selection)> {
        let hung = self.hung.iter().zip(&found.present);
        hung.filter_map(|(hung, records)| Some((hung.as_ref()?.index.present(), *records)))
    }

    /// Finds the candidate filters of the records.
    pub(crate) fn seek(
        &self,
        chunk: &[RecordView<'_>],
        partition: PartitionId,
        seen: &mut PayloadCount,
        found: &mut Candidates,
    ) {
        found.candidates.clear();
        found.present.clear();
        found.present.resize(self.hung.len(), Selection::NONE);
        found.damaged = Selection::NONE;
        let mut raw = vec![None; self.hung.len()];
        let mut visited = Vec::new();
        for (record, view) in chunk.iter().enumerate() {
            for slot in &self.metadata {
                if let Some(IndexedField { field, index }) = &self.hung[*slot as usize] {
                    found.meet(record, *slot as usize, index, field.of_record(view, Some(partition)));
                }
            }
            let Some(payload) = view.value.filter(|_| !self.tree.is_empty()) else { continue };
            seen.0 += 1;
            if seen.0.is_multiple_of(LEARNED_OF) {
                self.learn(payload);
            }
            let is_object = payload.trim_ascii_start().starts_with(b"{");
            if is_object && self.sift(payload, record, found) {
                continue;
            }
            raw.fill(None);
            if self.tree.find(payload, &mut visited, &mut raw).is_err() || !is_object {
                found.damaged.insert(record);
                continue;
            }
            for (slot, (hung, raw)) in self.hung.iter().zip(&raw).enumerate() {
                if let (Some(hung), Some(raw)) = (hung, raw) {
                    found.meet(record, slot, &hung.index, Value::read(raw));
                }
            }
        }
    }

    /// Looks for the fields without reading the payload; false if it has to be read.
    fn sift(&self, payload: &[u8], record: usize, found: &mut Candidates) -> bool {
        let Some(prefilter) = &self.prefilter else { return false };
        prefilter.find(payload, |slot, raw| {
            let Some(IndexedField { index, .. }) = &self.hung[slot] else { return };
            match raw {
                [b'"', text @ .., b'"'] => found.meet_text(record, slot, index, text),
                _ => found.meet(record, slot, index, Value::read(raw)),
            }
        })
    }

    /// Counts the values of a record.
    fn learn(&self, payload: &[u8]) {
        let mut raw = vec![None; self.hung.len()];
        if self.tree.find(payload, &mut Vec::new(), &mut raw).is_err() {
            return;
        }
        for (hung, raw) in self.hung.iter().zip(raw) {
            if let (Some(hung), Some(Ok(value))) = (hung, raw.map(Value::read)) {
                hung.index.learn(&value);
            }
        }
    }
}
