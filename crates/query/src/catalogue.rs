//! The live queries of one stream, and where each of them hangs in the index.
//!
//! ```text
//!   query ──► entry ──► output ──► filter ──► places in the index
//!             one each   rows are    equal ones
//!                        encoded     are one
//!                        once
//! ```
//!
//! All threads that read the stream share it: they only look while they match (`finder.rs`), what they find is theirs.

use std::num::NonZeroU32;
use std::sync::Arc;

use hashbrown::HashTable;
use millstream_columns::{Operand, Test};

use crate::chunk::{Chunk, Selection};
use crate::compiled::Compiled;
use crate::conditions::{ConditionId, Conditions};
use crate::cover::{Cover, Place, cover};
use crate::few::{Few, Lists};
use crate::fields::FieldTable;
use crate::index::{FilterId, Hold, Key};
use crate::seeker::Seeker;
use crate::slab::Slab;

/// The number of a query within its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId(NonZeroU32);

impl EntryId {
    /// Of the place in the table of entries; from 1, so that it takes no room not to have one.
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
    entries: Slab<Entry<T>>,
    lists: Lists,
    outputs: Slab<Output>,
    filters: Slab<Filter>,
    /// Filters by the hashes of their queries; of several with one hash the first.
    by_hash: HashTable<FilterId>,
    conditions: Conditions,
    pub(crate) fields: FieldTable,
    pub(crate) seeker: Seeker,
    /// Filters that hang nowhere.
    everywhere: Vec<FilterId>,
}

#[derive(Debug)]
struct Entry<T> {
    tag: T,
    output: u32,
    /// Its place among the entries of the output.
    position: u32,
}

/// What queries with equal filter and equal rows share.
#[derive(Debug)]
pub(crate) struct Output {
    filter: FilterId,
    /// The list of the stream's numbers of the fields of the query.
    pub(crate) slots: u32,
    pub(crate) query: Arc<Compiled>,
    /// The numbers of its entries.
    entries: Few,
}

/// What queries with equal filter share.
#[derive(Debug)]
pub(crate) struct Filter {
    pub(crate) query: Arc<Compiled>,
    pub(crate) slots: u32,
    hangs: Hangs,
    outputs: Few,
}

/// Where a filter hangs, and which of its conditions stand with the others of the stream.
#[derive(Debug)]
enum Hangs {
    /// Under one value of a field, as most do, and all conditions are its own.
    Under(u32, Key),
    Otherwise(Box<Otherwise>),
}

#[derive(Debug)]
struct Otherwise {
    cover: Cover,
    /// For each condition: its number, unless the filter evaluates it by itself.
    conditions: Box<[Option<ConditionId>]>,
}

impl Hangs {
    fn of(cover: Cover, conditions: Box<[Option<ConditionId>]>) -> Self {
        if let Cover::Places(places) = &cover
            && let [Place { field, hold: Hold::Keys(keys) }] = &places[..]
            && let [key] = **keys
            && let Ok(field) = u32::try_from(*field)
            && conditions.iter().all(Option::is_none)
        {
            return Self::Under(field, key);
        }
        Self::Otherwise(Box::new(Otherwise { cover, conditions }))
    }

    /// Calls `at` for each place; false if there can be none.
    fn each(&self, mut at: impl FnMut(usize, &Hold)) -> bool {
        match self {
            Self::Under(field, key) => at(*field as usize, &Hold::Keys(Box::new([*key]))),
            Self::Otherwise(otherwise) => match &otherwise.cover {
                Cover::Places(places) => places.iter().for_each(|Place { field, hold }| at(*field, hold)),
                Cover::Anything => return false,
            },
        }
        true
    }

    /// As in [`Otherwise`]; empty if all are its own.
    fn conditions(&self) -> &[Option<ConditionId>] {
        match self {
            Self::Under(..) => &[],
            Self::Otherwise(otherwise) => &otherwise.conditions,
        }
    }
}

/// What became of the records that a filter was shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verdict {
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
            conditions: Conditions::default(),
            fields: FieldTable::default(),
            seeker: Seeker::default(),
            everywhere: Vec::new(),
        }
    }
}

impl<T> Catalogue<T> {
    /// Adds a query.
    pub(crate) fn insert(&mut self, query: Arc<Compiled>, tag: T) -> EntryId {
        let filter = self.filter_of(&query);
        let number = self.output_of(filter, query);
        let position = self.outputs.get(number).map_or(0, |output| self.lists.of(&output.entries).len()) as u32;
        let entry = EntryId::of(self.entries.insert(Entry { tag, output: number, position }));
        if let Some(output) = self.outputs.get_mut(number) {
            self.lists.push(&mut output.entries, entry.to_number());
        }
        entry
    }

    /// Takes a query out: its tag, and the number of its output if that is gone with it.
    pub(crate) fn remove(&mut self, id: EntryId) -> Option<(T, Option<u32>)> {
        let Entry { tag, output: number, position } = self.entries.remove(id.place())?;
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

    pub(crate) fn filter(&self, id: FilterId) -> Option<&Filter> {
        self.filters.get(id.0)
    }

    pub(crate) fn output(&self, number: u32) -> Option<&Output> {
        self.outputs.get(number)
    }

    /// The numbers of a filter's outputs.
    pub(crate) fn outputs_of<'c>(&'c self, filter: &'c Filter) -> &'c [u32] {
        self.lists.of(&filter.outputs)
    }

    /// The entries of an output, with their tags.
    pub(crate) fn entries_of<'c>(&'c self, output: &'c Output) -> impl Iterator<Item = (EntryId, &'c T)> {
        let ids = self.lists.of(&output.entries).iter().copied().filter_map(EntryId::of_number);
        ids.filter_map(|id| Some((id, &self.entries.get(id.place())?.tag)))
    }

    /// Which of `records` satisfy the filter. After that the payloads of those that do are known to be JSON or not.
    pub(crate) fn verdict(&self, filter: &Filter, chunk: &mut Chunk<'_, '_>, records: Selection) -> Verdict {
        if filter.query.tests_null {
            chunk.check_whole(records);
        }
        let Verdict { matched, failed } = self.verdict_as_read(filter, chunk, records);
        // What a damaged payload seemed to hold could only have helped, as nothing asks for NULL.
        let damaged = chunk.check_whole(matched | failed);
        if damaged.is_empty() {
            return Verdict { matched, failed };
        }
        let again = self.verdict_as_read(filter, chunk, damaged);
        Verdict { matched: (matched - damaged) | again.matched, failed: (failed - damaged) | again.failed }
    }

    fn verdict_as_read(&self, filter: &Filter, chunk: &mut Chunk<'_, '_>, records: Selection) -> Verdict {
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
        Verdict { matched, failed }
    }

    /// The filters that every record has to be shown to.
    pub(crate) fn everywhere(&self) -> &[FilterId] {
        &self.everywhere
    }

    /// Whether nothing has changed since the last refresh that matching needs.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fields.is_fresh() && self.seeker.is_fresh()
    }

    /// Makes it ready for matching. Called before a batch, so that many changes cost one rebuild.
    pub(crate) fn refresh(&mut self) {
        self.fields.refresh();
        self.seeker.refresh();
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
        let filter = Filter { query: query.clone(), slots, hangs, outputs: Few::default() };
        let id = FilterId(self.filters.insert(filter));
        let filters = &self.filters;
        if known.is_none() {
            let hash_of = |id: &FilterId| filters.get(id.0).map_or(0, |filter| filter.query.filter_hash());
            self.by_hash.insert_unique(query.filter_hash(), id, hash_of);
        }
        let numbers = self.fields.list(slots);
        let insert = |field: usize, hold: &Hold| self.seeker.insert(numbers[field], &query.fields[field], hold, id);
        if !filters.get(id.0).is_some_and(|filter| filter.hangs.each(insert)) {
            self.everywhere.push(id);
        }
        id
    }

    /// Where the query's filter is to hang, with its conditions.
    fn hangs_of(&mut self, query: &Compiled, slots: u32) -> Hangs {
        let numbers = self.fields.list(slots);
        let cost = |place: &Place| self.seeker.cost(numbers[place.field], &place.hold);
        let cover = cover(&query.conjuncts, &cost);
        let is_found = cover.is_rare(&cost);
        let conditions = query.conjuncts.iter().map(|test| {
            let is_own = is_found && is_as_quick_as_asking(test);
            (!is_own).then(|| self.conditions.acquire(test, &query.fields, &mut self.fields))
        });
        let conditions = conditions.collect();
        Hangs::of(cover, conditions)
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
        let number = self.outputs.insert(Output { filter: id, slots, query, entries: Few::default() });
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
        if !filter.hangs.each(|field, hold| self.seeker.remove(numbers[field], hold, id)) {
            self.everywhere.retain(|known| *known != id);
        }
        for condition in filter.hangs.conditions().iter().flatten() {
            self.conditions.release(*condition, &mut self.fields);
        }
        self.fields.release_all(filter.slots);
    }
}

/// Whether evaluating it takes no longer than looking up what is known of it: a field compared with constants. Where the
/// index finds a filter, that is mostly what it finds it by.
fn is_as_quick_as_asking(test: &Test) -> bool {
    let is_constant = |operand: &Operand| operand.constant().is_some();
    match test {
        Test::Compare(_, Operand::Field(_), value) | Test::Compare(_, value, Operand::Field(_)) => is_constant(value),
        Test::In(Operand::Field(_), list) => list.iter().all(is_constant),
        Test::Truth(Operand::Field(_)) | Test::IsNull(Operand::Field(_)) => true,
        Test::Not(part) => is_as_quick_as_asking(part),
        _ => false,
    }
}
