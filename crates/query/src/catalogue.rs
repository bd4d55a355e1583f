//! The live queries of one stream, and their places in the index.
//!
//! ```text
//!   query ──► entry ──► output ──► filter ──► places in the index
//!             one each   rows are    equal ones
//!                        encoded     are one
//!                        once
//! ```
//!
//! All threads that read the stream share it. They only read it while they match (`batch_matcher.rs`);
//! each thread owns its matches.

use std::num::NonZeroU32;
use std::sync::Arc;

use hashbrown::HashTable;
use millstream_columns::{Chunk, ConditionId, FieldTable, Operand, Predicate, Selection, Slab};

use crate::access_path::{AccessPath, IndexProbe, cover};
use crate::candidates::CandidateFinder;
use crate::compiled::Compiled;
use crate::conditions::StreamConditions;
use crate::few::{Few, Lists};
use crate::filter_id::FilterId;
use crate::index::{Hold, ValueKey};

/// The number of a query within its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId(NonZeroU32);

impl EntryId {
    /// The id of the entry at `place` in the table. Counted from 1, so that `Option<EntryId>` takes no more room.
    fn of(place: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(place))
    }

    fn place(self) -> u32 {
        self.0.get() - 1
    }

    pub(crate) fn to_number(self) -> u32 {
        self.0.get()
    }

    /// `None` of 0.
    pub(crate) fn of_number(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }
}

/// So many of the latest outputs of a filter are compared with a new one.
const OUTPUTS_COMPARED: usize = 16;

/// The queries of one stream, each with a tag of the owner's choice.
#[derive(Debug)]
pub(crate) struct Catalogue<T> {
    entries: Slab<CatalogueEntry<T>>,
    lists: Lists,
    outputs: Slab<CatalogueOutput>,
    filters: Slab<CatalogueFilter>,
    /// Filters by the hashes of their queries; of several with one hash the first.
    by_hash: HashTable<FilterId>,
    conditions: StreamConditions,
    pub(crate) fields: FieldTable,
    pub(crate) candidate_finder: CandidateFinder,
    /// The filters without an access path.
    everywhere: Vec<FilterId>,
}

#[derive(Debug)]
struct CatalogueEntry<T> {
    tag: T,
    output: u32,
    /// Its place among the entries of the output.
    position: u32,
}

/// The shared state of queries with equal filter and equal rows.
#[derive(Debug)]
pub(crate) struct CatalogueOutput {
    filter: FilterId,
    /// The list of the stream's numbers of the fields of the query.
    pub(crate) slots: u32,
    pub(crate) query: Arc<Compiled>,
    /// The numbers of its entries.
    entries: Few,
}

/// The shared state of queries with equal filter.
#[derive(Debug)]
pub(crate) struct CatalogueFilter {
    pub(crate) query: Arc<Compiled>,
    pub(crate) slots: u32,
    hangs: IndexPlacement,
    outputs: Few,
}

/// The place of a filter in the index, and its conditions that are shared in the stream.
#[derive(Debug)]
enum IndexPlacement {
    /// Under one value of a field, as most do, and all conditions are its own.
    Under(u32, ValueKey),
    UnindexedFilter(Box<UnindexedFilter>),
}

#[derive(Debug)]
struct UnindexedFilter {
    cover: AccessPath,
    /// The number of each shared condition; `None` if the filter evaluates it alone.
    conditions: Box<[Option<ConditionId>]>,
}

impl IndexPlacement {
    fn of(cover: AccessPath, conditions: Box<[Option<ConditionId>]>) -> Self {
        if let AccessPath::Probes(places) = &cover
            && let [IndexProbe { field, hold: Hold::Keys(keys) }] = &places[..]
            && let [key] = **keys
            && let Ok(field) = u32::try_from(*field)
            && conditions.iter().all(Option::is_none)
        {
            return Self::Under(field, key);
        }
        Self::UnindexedFilter(Box::new(UnindexedFilter { cover, conditions }))
    }

    /// Calls `at` for each place; false if there can be none.
    fn each(&self, mut at: impl FnMut(usize, &Hold)) -> bool {
        match self {
            Self::Under(field, key) => at(*field as usize, &Hold::Keys(Box::new([*key]))),
            Self::UnindexedFilter(otherwise) => match &otherwise.cover {
                AccessPath::Probes(places) => places.iter().for_each(|IndexProbe { field, hold }| at(*field, hold)),
                AccessPath::Anything => return false,
            },
        }
        true
    }

    /// As in [`UnindexedFilter`]; empty if all are its own.
    fn conditions(&self) -> &[Option<ConditionId>] {
        match self {
            Self::Under(..) => &[],
            Self::UnindexedFilter(otherwise) => &otherwise.conditions,
        }
    }
}

/// The result of a filter for its candidate records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FilterVerdict {
    pub(crate) matched: Selection,
    /// Something that had to be read cannot be, or has no value.
    pub(crate) failed: Selection,
}

impl<T> Default for Catalogue<T> {
    fn default() -> Self {
        Self {
            entries: Slab::default(),
            lists: Lists::default(),
            outputs: Slab::default(),
            filters: Slab::default(),
            by_hash: HashTable::new(),
            conditions: StreamConditions::default(),
            fields: FieldTable::default(),
            candidate_finder: CandidateFinder::default(),
            everywhere: Vec::new(),
        }
    }
}

impl<T> Catalogue<T> {
    /// Adds a query with its tag.
    pub(crate) fn insert(&mut self, query: Arc<Compiled>, tag: T) -> EntryId {
        let filter = self.filter_of(&query);
        let number = self.output_of(filter, query);
        let position = self.outputs.get(number).map_or(0, |output| self.lists.of(&output.entries).len()) as u32;
        let entry = EntryId::of(self.entries.insert(CatalogueEntry { tag, output: number, position }));
        if let Some(output) = self.outputs.get_mut(number) {
            self.lists.push(&mut output.entries, entry.to_number());
        }
        entry
    }

    /// Removes a query. Returns its tag, and the number of its output if no other query has it.
    pub(crate) fn remove(&mut self, id: EntryId) -> Option<(T, Option<u32>)> {
        let CatalogueEntry { tag, output: number, position } = self.entries.remove(id.place())?;
        let output = self.outputs.get_mut(number)?;
        self.lists.swap_remove(&mut output.entries, position as usize);
        if let Some(moved) = self.lists.of(&output.entries).get(position as usize).copied().and_then(EntryId::of_number)
            && let Some(moved) = self.entries.get_mut(moved.place())
        {
            moved.position = position;
        }
        let is_gone = output.entries.is_empty();
        if is_gone {
            self.remove_output(number);
        }
        Some((tag, is_gone.then_some(number)))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The tags of all queries.
    pub(crate) fn tags(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|entry| &entry.tag)
    }

    pub(crate) fn filter(&self, id: FilterId) -> Option<&CatalogueFilter> {
        self.filters.get(id.0)
    }

    pub(crate) fn output(&self, number: u32) -> Option<&CatalogueOutput> {
        self.outputs.get(number)
    }

    /// The numbers of a filter's outputs.
    pub(crate) fn outputs_of<'c>(&'c self, filter: &'c CatalogueFilter) -> &'c [u32] {
        self.lists.of(&filter.outputs)
    }

    /// The entries of an output, with their tags.
    pub(crate) fn entries_of<'c>(&'c self, output: &'c CatalogueOutput) -> impl Iterator<Item = (EntryId, &'c T)> {
        let ids = self.lists.of(&output.entries).iter().copied().filter_map(EntryId::of_number);
        ids.filter_map(|id| Some((id, &self.entries.get(id.place())?.tag)))
    }

    /// Evaluates the filter for `records`. Afterwards the payloads of the matches are known to be JSON or not.
    pub(crate) fn verdict(
        &self,
        filter: &CatalogueFilter,
        chunk: &mut Chunk<'_, '_>,
        records: Selection,
    ) -> FilterVerdict {
        if filter.query.tests_null {
            chunk.check_whole(records);
        }
        let FilterVerdict { matched, failed } = self.verdict_as_read(filter, chunk, records);
        // The fields of a damaged payload can only have made the filter TRUE, because no filter here looks for NULL.
        let damaged = chunk.check_whole(matched | failed);
        if damaged.is_empty() {
            return FilterVerdict { matched, failed };
        }
        let again = self.verdict_as_read(filter, chunk, damaged);
        FilterVerdict { matched: (matched - damaged) | again.matched, failed: (failed - damaged) | again.failed }
    }

    fn verdict_as_read(
        &self,
        filter: &CatalogueFilter,
        chunk: &mut Chunk<'_, '_>,
        records: Selection,
    ) -> FilterVerdict {
        let (mut matched, mut failed) = (records, Selection::NONE);
        let slots = self.fields.list(filter.slots);
        let mut conditions = filter.hangs.conditions().iter();
        for test in &filter.query.conjuncts {
            if matched.is_empty() {
                break;
            }
            let truth = match conditions.next() {
                Some(Some(shared)) => self.conditions.truth(*shared, chunk, matched),
                _ => chunk.truth(test, slots, matched),
            };
            failed |= truth.failed;
            matched = truth.yes;
        }
        FilterVerdict { matched, failed }
    }

    /// The filters that every record has to be shown to.
    pub(crate) fn everywhere(&self) -> &[FilterId] {
        &self.everywhere
    }

    /// True if nothing has changed since the last refresh.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fields.is_fresh() && self.candidate_finder.is_fresh()
    }

    /// Makes it ready for matching. Called before a batch, so that many changes cost one rebuild.
    pub(crate) fn refresh(&mut self) {
        self.fields.refresh();
        self.candidate_finder.refresh();
    }

    /// The filter of the query, made if there is none like it.
    fn filter_of(&mut self, query: &Arc<Compiled>) -> FilterId {
        let filters = &self.filters;
        let hash_of = |id: &FilterId| filters.get(id.0).map_or(0, |filter| filter.query.filter_hash());
        let known = self.by_hash.find(query.filter_hash(), |id| hash_of(id) == query.filter_hash()).copied();
        if let Some(known) = known
            && filters.get(known.0).is_some_and(|filter| filter.query.has_filter_of(query))
        {
            return known;
        }
        let slots = self.fields.acquire_all(query.filter_fields());
        let hangs = self.hangs_of(query, slots);
        let filter = CatalogueFilter { query: query.clone(), slots, hangs, outputs: Few::default() };
        let id = FilterId(self.filters.insert(filter));
        let filters = &self.filters;
        if known.is_none() {
            let hash_of = |id: &FilterId| filters.get(id.0).map_or(0, |filter| filter.query.filter_hash());
            self.by_hash.insert_unique(query.filter_hash(), id, hash_of);
        }
        let numbers = self.fields.list(slots);
        let insert =
            |field: usize, hold: &Hold| self.candidate_finder.insert(numbers[field], &query.fields[field], hold, id);
        if !filters.get(id.0).is_some_and(|filter| filter.hangs.each(insert)) {
            self.everywhere.push(id);
        }
        id
    }

    /// Chooses the place of the query's filter in the index, and its conditions.
    fn hangs_of(&mut self, query: &Compiled, slots: u32) -> IndexPlacement {
        let numbers = self.fields.list(slots);
        let cost = |place: &IndexProbe| self.candidate_finder.cost(numbers[place.field], &place.hold);
        let cover = cover(&query.conjuncts, &cost);
        let is_found = cover.is_rare(&cost);
        let conditions = query.conjuncts.iter().map(|test| {
            let is_own = is_found && is_as_quick_as_asking(test);
            (!is_own).then(|| self.conditions.acquire(test, &query.fields, &mut self.fields))
        });
        let conditions = conditions.collect();
        IndexPlacement::of(cover, conditions)
    }

    /// The output of the query, made if there is none like it.
    fn output_of(&mut self, id: FilterId, query: Arc<Compiled>) -> u32 {
        let known = self.filters.get(id.0).and_then(|filter| {
            let latest = self.lists.of(&filter.outputs).iter().rev().take(OUTPUTS_COMPARED);
            let mut same = latest
                .filter(|output| self.outputs.get(**output).is_some_and(|output| output.query.has_rows_of(&query)));
            same.next().copied()
        });
        if let Some(known) = known {
            return known;
        }
        let slots = self.fields.acquire_all(&query.fields);
        let number = self.outputs.insert(CatalogueOutput { filter: id, slots, query, entries: Few::default() });
        if let Some(filter) = self.filters.get_mut(id.0) {
            self.lists.push(&mut filter.outputs, number);
        }
        number
    }

    fn remove_output(&mut self, number: u32) {
        let Some(output) = self.outputs.remove(number) else { return };
        self.fields.release_all(output.slots);
        let Some(filter) = self.filters.get_mut(output.filter.0) else { return };
        self.lists.remove(&mut filter.outputs, number);
        if filter.outputs.is_empty() {
            self.remove_filter(output.filter);
        }
    }

    fn remove_filter(&mut self, id: FilterId) {
        let Some(filter) = self.filters.remove(id.0) else { return };
        if let Ok(known) = self.by_hash.find_entry(filter.query.filter_hash(), |known| *known == id) {
            known.remove();
        }
        let numbers = self.fields.list(filter.slots);
        if !filter.hangs.each(|field, hold| self.candidate_finder.remove(numbers[field], hold, id)) {
            self.everywhere.retain(|known| *known != id);
        }
        for condition in filter.hangs.conditions().iter().flatten() {
            self.conditions.release(*condition, &mut self.fields);
        }
        self.fields.release_all(filter.slots);
    }
}

/// True if evaluating the condition is as fast as looking up its result: a comparison of a field with constants. The index
/// usually finds a filter by such a condition.
fn is_as_quick_as_asking(test: &Predicate) -> bool {
    let is_constant = |operand: &Operand| operand.constant().is_some();
    match test {
        Predicate::Compare(_, Operand::Field(_), value) | Predicate::Compare(_, value, Operand::Field(_)) => {
            is_constant(value)
        }
        Predicate::In(Operand::Field(_), list) => list.iter().all(is_constant),
        Predicate::Truth(Operand::Field(_)) | Predicate::IsNull(Operand::Field(_)) => true,
        Predicate::Not(part) => is_as_quick_as_asking(part),
        _ => false,
    }
}
