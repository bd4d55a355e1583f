//! Lists entities that have a history, ordered by type, id and path, merged from files and memtables.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Bound;
use std::sync::Arc;

use millstream_http::Problem;

use crate::file_reader::{OpenFile, SeriesRun};
use crate::file_table::DataFile;
use crate::memtable::Memtable;
use crate::query::{EntityPage, EntityRef, EntitySelection, TimeProperty, TimeWindow};
use crate::read::SnapshotReader;

/// Ids looked up under one lock of a memtable, which blocks its writer.
const LOOKUP_IDS: usize = 256;

/// Names taken from a file at a time, at least.
const LOOKUP_NAMES_MIN: usize = 8;
/// Names that are held of all files together, unless there are very many files.
const NAMES_AHEAD_MAX: usize = 64 << 10;

/// The id and the service path.
type EntityName = (String, String);
/// Names, and the id at which the next lookup starts; `None` at the end.
type NamesFound = (Vec<EntityName>, Option<Bound<Arc<str>>>);

impl SnapshotReader<'_> {
    /// Returns a page of the entities that have a value on a day of the window, and the total if `page.counts`.
    pub(crate) fn entities(
        &self,
        selection: &EntitySelection,
        window: &TimeWindow,
        page: EntityPage,
    ) -> Result<(Vec<EntityRef>, usize), Problem> {
        let (mut found, mut passed) = (Vec::new(), 0);
        let end = page.offset.saturating_add(page.limit);
        for kind in self.kinds(selection) {
            let mut names = self.names(selection, window, &kind)?;
            while (page.counts || passed < end)
                && let Some((id, path)) = names.next()?
            {
                passed += 1;
                if passed > page.offset && passed <= end {
                    found.push(EntityRef { kind: kind.clone(), id, path });
                }
            }
        }
        Ok((found, passed))
    }

    /// Returns the entities of one id with a value on a day of the window, at most two. Opens the newest files first, and
    /// only those that may have another entity.
    pub(crate) fn entities_of_id(
        &self,
        selection: &EntitySelection,
        window: &TimeWindow,
    ) -> Result<Vec<EntityRef>, Problem> {
        let window = window.listing();
        let id = selection.id_bounds().0;
        let mut found = Vec::new();
        for kind in self.kinds(selection) {
            let mut paths = BTreeSet::new();
            for memtable in &self.snapshot.memtables {
                let mut next = Some(Bound::Included(id.into()));
                while let Some(from) = next {
                    let (names, go_on) = look_up(memtable, selection, &kind, &window, from);
                    paths.extend(names.into_iter().map(|(_, path)| path));
                    next = go_on;
                }
            }
            let mut files = self.files_of(selection, &kind, |file| window.overlaps(file));
            files.sort_by_key(|file| Reverse(window.span(&file.record).1));
            for file in files {
                if found.len() + paths.len() > 1 {
                    break;
                }
                let of_file = &file.record.paths;
                let has_others = of_file.iter().any(|path| !paths.contains(path) && selection.paths.have(path));
                if of_file.is_empty() || has_others {
                    let lookup = FileLookup { reader: self, selection, window: &window, names_max: 2 };
                    let (names, _) = lookup.names(&file, Bound::Included(id.into()))?;
                    paths.extend(names.into_iter().map(|(_, path)| path));
                }
            }
            found.extend(paths.into_iter().map(|path| EntityRef { kind: kind.clone(), id: id.to_owned(), path }));
        }
        found.truncate(2);
        Ok(found)
    }

    fn kinds(&self, selection: &EntitySelection) -> BTreeSet<Arc<str>> {
        let tenant = selection.tenant.as_str();
        let in_files = self.snapshot.files.of_tenant(tenant).map(|((_, kind, _), _)| kind.clone());
        let mut kinds: BTreeSet<Arc<str>> = in_files.collect();
        for memtable in &self.snapshot.memtables {
            memtable.read(|content| {
                kinds
                    .extend(content.tenants.get(&selection.tenant).into_iter().flat_map(|kinds| kinds.keys().cloned()));
            });
        }
        kinds.retain(|kind| selection.has_kind(kind));
        kinds
    }

    fn names<'s>(
        &'s self,
        selection: &'s EntitySelection,
        window: &TimeWindow,
        kind: &Arc<str>,
    ) -> Result<EntityNames<'s>, Problem> {
        let window = window.listing();
        let files = self.files_of(selection, kind, |file| window.overlaps(file));
        let origins = files.into_iter().map(NameOrigin::File);
        let origins = origins.chain(self.snapshot.memtables.iter().cloned().map(NameOrigin::Memtable));
        let first: Arc<str> = selection.id_bounds().0.into();
        let source =
            |origin| NameSource { origin, next: Some(Bound::Included(first.clone())), ahead: Vec::new().into_iter() };
        let sources: Vec<_> = origins.map(source).collect();
        let names_max = (NAMES_AHEAD_MAX / sources.len().max(1)).clamp(LOOKUP_NAMES_MIN, LOOKUP_IDS);
        let (kind, heads) = (kind.clone(), BinaryHeap::new());
        let mut names = EntityNames { reader: self, selection, window, kind, names_max, sources, heads, last: None };
        for source in 0..names.sources.len() {
            names.pull(source)?;
        }
        Ok(names)
    }
}

/// Iterates distinct names in order. A file is open only while names are taken from it, so there may be many.
struct EntityNames<'s> {
    reader: &'s SnapshotReader<'s>,
    selection: &'s EntitySelection,
    window: TimeWindow,
    kind: Arc<str>,
    /// Names that are taken from a file at a time.
    names_max: usize,
    sources: Vec<NameSource>,
    /// The next name of each source, with the index of the source.
    heads: BinaryHeap<Reverse<(EntityName, usize)>>,
    last: Option<EntityName>,
}

struct NameSource {
    origin: NameOrigin,
    /// The id at which the next lookup starts; `None` at the end.
    next: Option<Bound<Arc<str>>>,
    ahead: std::vec::IntoIter<EntityName>,
}

enum NameOrigin {
    File(Arc<DataFile>),
    Memtable(Arc<Memtable>),
}

impl EntityNames<'_> {
    fn next(&mut self) -> Result<Option<EntityName>, Problem> {
        while let Some(Reverse((name, source))) = self.heads.pop() {
            self.pull(source)?;
            if self.last.as_ref() != Some(&name) {
                self.last = Some(name.clone());
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Pushes the next name of a source onto the heap.
    fn pull(&mut self, number: usize) -> Result<(), Problem> {
        let Self { reader, selection, window, kind, names_max, .. } = self;
        let source = &mut self.sources[number];
        let next = loop {
            if let Some(name) = source.ahead.next() {
                break Some(name);
            }
            let Some(from) = source.next.take() else { break None };
            let (found, go_on) = match &source.origin {
                NameOrigin::Memtable(memtable) => look_up(memtable, selection, kind, window, from),
                NameOrigin::File(file) => {
                    FileLookup { reader, selection, window, names_max: *names_max }.names(file, from)?
                }
            };
            (source.ahead, source.next) = (found.into_iter(), go_on);
        };
        self.heads.extend(next.map(|name| Reverse((name, number))));
        Ok(())
    }
}

/// A search for names in a file.
struct FileLookup<'l> {
    reader: &'l SnapshotReader<'l>,
    selection: &'l EntitySelection,
    window: &'l TimeWindow,
    names_max: usize,
}

impl FileLookup<'_> {
    /// Returns names from the id `from` on, and the start of the next lookup. All names of an id come at once.
    fn names(&self, file: &Arc<DataFile>, from: Bound<Arc<str>>) -> Result<NamesFound, Problem> {
        let open = self.reader.open(file)?;
        let to = self.selection.id_bounds().1;
        let (first, is_first_known) = match &from {
            Bound::Included(id) => (&**id, false),
            Bound::Excluded(id) => (&**id, true),
            Bound::Unbounded => ("", false),
        };
        let mut names: Vec<EntityName> = Vec::new();
        for run in open.runs(first, to) {
            let run = run.map_err(|error| self.reader.failed(error))?;
            let is_known = names.last().is_some_and(|(id, path)| (id, path) == (&run.id, &run.path));
            if is_known || (is_first_known && run.id == first) {
                continue;
            }
            if let Some((last, _)) = names.last().filter(|(id, _)| names.len() >= self.names_max && *id != run.id) {
                let go_on = Bound::Excluded(last.as_str().into());
                return Ok((names, Some(go_on)));
            }
            if self.lists(file, &open, &run)? {
                names.push((run.id, run.path));
            }
        }
        Ok((names, None))
    }

    fn lists(&self, file: &DataFile, open: &OpenFile, run: &SeriesRun) -> Result<bool, Problem> {
        let is_selected = self.selection.has_attribute(&run.attribute) && self.selection.has_entity(&run.id, &run.path);
        if !is_selected || self.reader.is_erased(&file.record, run) {
            return Ok(false);
        }
        if self.window.property == TimeProperty::Modified || self.window.covers(&file.record) {
            return Ok(true);
        }
        open.has_observed(&run.rows, self.window.from_ms, self.window.to_ms).map_err(|error| self.reader.failed(error))
    }
}

/// Returns names from the id `from` on, and the start of the next lookup.
fn look_up(
    memtable: &Memtable,
    selection: &EntitySelection,
    kind: &str,
    window: &TimeWindow,
    from: Bound<Arc<str>>,
) -> NamesFound {
    memtable.read(|content| {
        let kind = content.tenants.get(&selection.tenant).and_then(|kinds| kinds.get(kind));
        let Some(kind) = kind else { return (Vec::new(), None) };
        let mut names = Vec::new();
        let mut last = None;
        let from = from.as_ref().map(|id| &**id);
        let to = selection.id_bounds().1.map_or(Bound::Unbounded, Bound::Included);
        for (id, same_id) in kind.entities.range::<str, _>((from, to)).take(LOOKUP_IDS) {
            last = Some(Bound::Excluded(id.clone()));
            let selected = same_id.iter().filter(|entity| {
                selection.has_entity(id, &entity.path)
                    && entity.series.iter().any(|series| {
                        selection.has_attribute(&series.attribute)
                            && series.points.iter().any(|point| window.has(window.time(point)))
                    })
            });
            names.extend(selected.map(|entity| (id.to_string(), entity.path.to_string())));
        }
        (names, last)
    })
}
