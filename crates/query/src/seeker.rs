//! Finds the filters that each record of a chunk may satisfy: by the fields in which filters hang.

use millstream_columns::{Field, PathTree, Unreadable, Value};
use millstream_types::{PartitionId, RecordView};

use crate::index::{FieldIndex, FilterId, Hold};
use crate::sieve::Sieve;

/// Of so many records one is looked at closely, to learn which values are rare.
const LEARNED_OF: usize = 64;
/// What it costs to look for one more field, as [`FieldIndex::cost`] counts.
const NEW_FIELD_COST: u64 = 200;

/// A record of a chunk by its number there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) record: u32,
    /// What it may satisfy; `None` says that its payload does not look like JSON.
    pub(crate) filter: Option<FilterId>,
}

/// The fields in which filters hang.
#[derive(Debug, Default)]
pub(crate) struct Seeker {
    /// By the stream's numbers of the fields.
    hung: Vec<Option<Hung>>,
    /// Whether fields have come or gone since the last refresh.
    outdated: bool,
    /// The fields that are not in the payload.
    metadata: Vec<u32>,
    /// Finds the others, unless every payload has to be read.
    sieve: Option<Sieve>,
    tree: PathTree,
    /// How many filters hang under NULL.
    null_count: usize,
}

/// How many payloads a thread has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen(usize);

#[derive(Debug)]
struct Hung {
    field: Field,
    index: FieldIndex,
}

impl Seeker {
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
            Hung { field: field.clone(), index: FieldIndex::default() }
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

    /// Whether what looks for the fields is up to date.
    pub(crate) fn is_fresh(&self) -> bool {
        !self.outdated
    }

    /// Brings what looks for the fields up to date.
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
        self.sieve = Sieve::new(paths);
    }

    /// Whether some filter asks for records in which a field is NULL.
    pub(crate) fn asks_for_null(&self) -> bool {
        self.null_count > 0
    }

    /// The fields that filters want to be NULL.
    pub(crate) fn null_slots(&self) -> impl Iterator<Item = (u32, &FieldIndex)> {
        let all = if self.asks_for_null() { &self.hung[..] } else { &[] };
        let hung = all.iter().enumerate().filter_map(|(slot, hung)| Some((slot as u32, &hung.as_ref()?.index)));
        hung.filter(|(_, index)| !index.null().is_empty())
    }

    /// Appends the candidates of the records to `found`, in the order of the records.
    pub(crate) fn seek(
        &self,
        chunk: &[RecordView<'_>],
        partition: PartitionId,
        seen: &mut Seen,
        found: &mut Vec<Candidate>,
    ) {
        let mut raw = vec![None; self.hung.len()];
        let mut visited = Vec::new();
        for (number, view) in chunk.iter().enumerate() {
            let mut hit = |filter| found.push(Candidate { record: number as u32, filter: Some(filter) });
            for slot in &self.metadata {
                if let Some(Hung { field, index }) = &self.hung[*slot as usize] {
                    meet(index, field.of_record(view, Some(partition)), &mut hit);
                }
            }
            let Some(payload) = view.value.filter(|_| !self.tree.is_empty()) else { continue };
            seen.0 += 1;
            if seen.0.is_multiple_of(LEARNED_OF) {
                self.learn(payload);
            }
            let is_object = payload.trim_ascii_start().starts_with(b"{");
            if is_object && self.sift(payload, &mut hit) {
                continue;
            }
            raw.fill(None);
            let damaged = self.tree.find(payload, &mut visited, &mut raw).is_err();
            if damaged || !is_object {
                found.push(Candidate { record: number as u32, filter: None });
                continue;
            }
            for (hung, raw) in self.hung.iter().zip(&raw) {
                if let (Some(hung), Some(raw)) = (hung, raw) {
                    meet(&hung.index, Value::read(raw), &mut hit);
                }
            }
        }
    }

    /// Looks for the fields without reading the payload; false if it has to be read.
    fn sift(&self, payload: &[u8], hit: &mut impl FnMut(FilterId)) -> bool {
        let Some(sieve) = &self.sieve else { return false };
        sieve.find(payload, |slot, raw| {
            let Some(Hung { index, .. }) = &self.hung[slot] else { return };
            match raw {
                [b'"', text @ .., b'"'] => index.meet_text(text, hit),
                _ => meet(index, Value::read(raw), hit),
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

fn meet(index: &FieldIndex, value: Result<Value<'_>, Unreadable>, hit: &mut impl FnMut(FilterId)) {
    match value {
        Ok(value) => index.meet(&value, hit),
        Err(_) => index.meet_unreadable(hit),
    }
}
