//! Payloads as bytes, and the places of their members that somebody looked for.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use millstream_columns::{PathStep, PathTree};
use parking_lot::Mutex;

/// Field sets whose places are kept for the payloads of one batch.
const SETS_MAX: usize = 4;

/// Paths into payloads that are looked for together, in one pass over each payload.
#[derive(Debug, Default)]
pub(crate) struct FieldSet {
    paths: Vec<Vec<PathStep>>,
    tree: PathTree,
}

impl FieldSet {
    /// The set of these paths, each once.
    pub(crate) fn new(paths: impl IntoIterator<Item = Vec<PathStep>>) -> Self {
        let mut set = Self::default();
        for path in paths {
            if set.slot(&path).is_none() {
                set.tree.add(&path, set.paths.len());
                set.paths.push(path);
            }
        }
        set
    }

    /// The number of a path in the set.
    pub(crate) fn slot(&self, path: &[PathStep]) -> Option<usize> {
        self.paths.iter().position(|known| known == path)
    }

    pub(crate) fn len(&self) -> usize {
        self.paths.len()
    }
}

/// The payload of one row.
#[derive(Debug, Clone, Copy)]
pub(super) struct BaseRow {
    pub(super) record: u32,
    start: u32,
    /// Below `start` for a row without a payload.
    end: u32,
}

impl BaseRow {
    pub(super) fn new(record: u32, payload: Option<Range<u32>>) -> Self {
        let (start, end) = payload.map_or((1, 0), |span| (span.start, span.end));
        Self { record, start, end }
    }

    /// The same row without its payload.
    pub(super) fn without_payload(self) -> Self {
        Self::new(self.record, None)
    }
}

/// The payloads of rows, in one buffer.
#[derive(Debug)]
pub(super) struct Base {
    bytes: Bytes,
    pub(super) rows: Vec<BaseRow>,
    /// The latest field sets last.
    found: Mutex<Vec<(Arc<FieldSet>, Arc<FieldPlaces>)>>,
}

impl Base {
    pub(super) fn new(bytes: Bytes, rows: Vec<BaseRow>) -> Self {
        Self { bytes, rows, found: Mutex::default() }
    }

    /// The size of the buffer.
    pub(super) fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(super) fn payload(&self, row: usize) -> Option<&[u8]> {
        let BaseRow { start, end, .. } = self.rows[row];
        (start <= end).then(|| &self.bytes[start as usize..end as usize])
    }

    /// The bytes of a place in [`FieldPlaces`].
    #[inline]
    pub(super) fn part(&self, span: Range<u32>) -> &[u8] {
        &self.bytes[span.start as usize..span.end as usize]
    }

    /// The same buffer with other rows.
    pub(super) fn with_rows(&self, rows: Vec<BaseRow>) -> Self {
        Self::new(self.bytes.clone(), rows)
    }

    /// The same payloads in another selection and order, with what was found in them.
    pub(super) fn gather(&self, rows: &[u32]) -> Self {
        let gathered = Self::new(self.bytes.clone(), rows.iter().map(|row| self.rows[*row as usize]).collect());
        let known = self.found.lock();
        let usable = known.iter().filter(|(_, found)| found.covers(Some(rows)));
        gathered.found.lock().extend(usable.map(|(set, found)| (Arc::clone(set), Arc::new(found.gather(rows)))));
        drop(known);
        gathered
    }

    /// Finds the fields of a set in `rows`, all if `None`, unless they are found already. The payloads are checked unless
    /// they are known to be objects.
    pub(super) fn find(&self, set: &Arc<FieldSet>, rows: Option<&[u32]>, are_objects: bool) -> Arc<FieldPlaces> {
        let mut known = self.found.lock();
        let is_same = |other: &Arc<FieldSet>| Arc::ptr_eq(other, set) || other.paths == set.paths;
        let place = known.iter().position(|(other, _)| is_same(other));
        let mut found = match place {
            Some(place) if known[place].1.covers(rows) => return Arc::clone(&known[place].1),
            Some(place) => FieldPlaces::clone(&known.remove(place).1),
            None => FieldPlaces::new(self.rows.len(), set.len()),
        };
        match rows {
            Some(rows) => found.add(self, set, rows.iter().map(|row| *row as usize), are_objects),
            None => {
                found.add(self, set, 0..self.rows.len(), are_objects);
                found.is_complete = true;
            }
        }
        if known.len() >= SETS_MAX {
            known.remove(0);
        }
        let found = Arc::new(found);
        known.push((Arc::clone(set), Arc::clone(&found)));
        found
    }
}

/// The places of the fields of a set in payloads, by row and slot.
#[derive(Debug, Clone)]
pub(crate) struct FieldPlaces {
    slots: usize,
    spans: Vec<Span>,
    /// Rows that were looked at.
    known: Vec<bool>,
    is_complete: bool,
    /// Rows whose payload is not a JSON object; empty without such rows.
    odd: Vec<bool>,
}

/// A range of the buffer; it ends below its start if there is nothing.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    const NONE: Self = Self { start: 1, end: 0 };
}

impl FieldPlaces {
    fn new(rows: usize, slots: usize) -> Self {
        Self {
            slots,
            spans: vec![Span::NONE; rows * slots],
            known: vec![false; rows],
            is_complete: false,
            odd: Vec::new(),
        }
    }

    fn covers(&self, rows: Option<&[u32]>) -> bool {
        self.is_complete || rows.is_some_and(|rows| rows.iter().all(|row| self.known[*row as usize]))
    }

    fn add(&mut self, base: &Base, set: &FieldSet, rows: impl Iterator<Item = usize>, are_objects: bool) {
        let start = base.bytes.as_ptr() as usize;
        let mut found: Vec<Option<&[u8]>> = vec![None; self.slots];
        let mut visited = Vec::new();
        for row in rows {
            if std::mem::replace(&mut self.known[row], true) {
                continue;
            }
            let Some(payload) = base.payload(row) else { continue };
            found.fill(None);
            let result = match are_objects {
                true if self.slots == 0 => Ok(()),
                true => set.tree.find(payload, &mut visited, &mut found),
                false => set.tree.find_in_object(payload, &mut visited, &mut found),
            };
            if result.is_err() {
                self.odd.resize(self.known.len(), false);
                self.odd[row] = true;
                continue;
            }
            for (span, found) in self.spans[row * self.slots..].iter_mut().zip(&found) {
                if let Some(part) = found {
                    let at = part.as_ptr() as usize - start;
                    *span = Span { start: at as u32, end: (at + part.len()) as u32 };
                }
            }
        }
    }

    /// The place of a field.
    #[inline]
    pub(super) fn span(&self, row: usize, slot: usize) -> Option<Range<u32>> {
        let Span { start, end } = self.spans[row * self.slots + slot];
        (start <= end).then_some(start..end)
    }

    /// `true` if the row's payload is not a JSON object.
    #[inline]
    pub(super) fn is_odd(&self, row: usize) -> bool {
        self.odd.get(row).is_some_and(|is_odd| *is_odd)
    }

    fn gather(&self, rows: &[u32]) -> Self {
        let mut gathered = Self { spans: Vec::with_capacity(rows.len() * self.slots), ..Self::new(0, self.slots) };
        for row in rows.iter().map(|row| *row as usize) {
            gathered.spans.extend_from_slice(&self.spans[row * self.slots..(row + 1) * self.slots]);
        }
        if !self.odd.is_empty() {
            gathered.odd = rows.iter().map(|row| self.odd[*row as usize]).collect();
        }
        (gathered.known, gathered.is_complete) = (vec![true; rows.len()], true);
        gathered
    }
}
