//! Lists entities that have a history, ordered by type, id and path, merged from files and memtables.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Bound;
use std::sync::Arc;

use millstream_http::Problem;

use crate::catalog::DataFile;
use crate::file_reader::SeriesRuns;
use crate::memtable::Memtable;
use crate::query::{EntityPage, EntityRef, EntitySelection, TimeWindow};
use crate::read::SnapshotReader;

/// Ids looked up under one lock of a memtable, which blocks its writer.
const LOOKUP_IDS: usize = 256;

/// The id and the service path.
type EntityName = (String, String);

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

    /// Finds a selected entity with points at any time: first in memtables, then in the youngest files.
    pub(crate) fn at_any_time(&self, selection: &EntitySelection) -> Result<Option<EntityRef>, Problem> {
        let (from, to) = selection.id_bounds();
        for kind in self.kinds(selection) {
            for memtable in &self.snapshot.memtables {
                let mut next = Some(Bound::Included(from.into()));
                while let Some(begin) = next {
                    let (found, go_on) = look_up(memtable, selection, &kind, &TimeWindow::default(), begin);
                    if let Some((id, path)) = found.into_iter().next() {
                        return Ok(Some(EntityRef { kind, id, path }));
                    }
                    next = go_on;
                }
            }
            for file in self.files_of(selection, &kind, |_, _| true)?.iter().rev() {
                let mut runs = self.open(file)?.runs(from, to);
                if let Some((id, path)) = next_of_file(self, selection, &mut runs, file)? {
                    return Ok(Some(EntityRef { kind, id, path }));
                }
            }
        }
        Ok(None)
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
        let (from, to) = selection.id_bounds();
        let mut sources = Vec::new();
        for file in self.files_of(selection, kind, |day, file| window.lists_file(day, file))? {
            let runs = self.open(&file)?.runs(from, to);
            sources.push(NameSource::File { runs, file });
        }
        for memtable in &self.snapshot.memtables {
            let (memtable, kind) = (memtable.clone(), kind.clone());
            let ahead = Vec::new().into_iter();
            let next = Some(Bound::Included(from.into()));
            sources.push(NameSource::Memtable { memtable, kind, window: *window, next, ahead });
        }
        let mut names = EntityNames { reader: self, selection, sources, heads: BinaryHeap::new(), last: None };
        for source in 0..names.sources.len() {
            names.pull(source)?;
        }
        Ok(names)
    }
}

/// Iterates distinct names in order.
struct EntityNames<'s> {
    reader: &'s SnapshotReader<'s>,
    selection: &'s EntitySelection,
    sources: Vec<NameSource>,
    /// The next name of each source, with the index of the source.
    heads: BinaryHeap<Reverse<(EntityName, usize)>>,
    last: Option<EntityName>,
}

enum NameSource {
    File {
        runs: SeriesRuns,
        file: Arc<DataFile>,
    },
    Memtable {
        memtable: Arc<Memtable>,
        kind: Arc<str>,
        window: TimeWindow,
        /// The id at which the next lookup starts; `None` at the end.
        next: Option<Bound<Arc<str>>>,
        ahead: std::vec::IntoIter<EntityName>,
    },
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
    fn pull(&mut self, source: usize) -> Result<(), Problem> {
        let next = match &mut self.sources[source] {
            NameSource::File { runs, file } => next_of_file(self.reader, self.selection, runs, file)?,
            NameSource::Memtable { memtable, kind, window, next, ahead } => loop {
                if let Some(name) = ahead.next() {
                    break Some(name);
                }
                let Some(from) = next.take() else { break None };
                let (found, go_on) = look_up(memtable, self.selection, kind, window, from);
                (*ahead, *next) = (found.into_iter(), go_on);
            },
        };
        self.heads.extend(next.map(|name| Reverse((name, source))));
        Ok(())
    }
}

fn next_of_file(
    reader: &SnapshotReader<'_>,
    selection: &EntitySelection,
    runs: &mut SeriesRuns,
    file: &DataFile,
) -> Result<Option<EntityName>, Problem> {
    for run in runs {
        let run = run.map_err(|error| reader.failed(error))?;
        let is_selected = selection.has_attribute(&run.attribute) && selection.has_entity(&run.id, &run.path);
        if is_selected && !reader.is_erased(&file.record, &run) {
            return Ok(Some((run.id, run.path)));
        }
    }
    Ok(None)
}

/// Returns names from the id `from` on, and the start of the next lookup.
fn look_up(
    memtable: &Memtable,
    selection: &EntitySelection,
    kind: &str,
    window: &TimeWindow,
    from: Bound<Arc<str>>,
) -> (Vec<EntityName>, Option<Bound<Arc<str>>>) {
    memtable.read(|content| {
        let kind = content.tenants.get(&selection.tenant).and_then(|kinds| kinds.get(kind));
        let Some(kind) = kind else { return (Vec::new(), None) };
        let mut names = Vec::new();
        let mut last = None;
        for (id, same_id) in kind.entities.range((from, Bound::Unbounded)).take(LOOKUP_IDS) {
            last = Some(Bound::Excluded(id.clone()));
            let selected = same_id.iter().filter(|entity| {
                selection.has_entity(id, &entity.path)
                    && entity.series.iter().any(|series| {
                        selection.has_attribute(&series.attribute)
                            && series.points.iter().any(|point| window.lists(point))
                    })
            });
            names.extend(selected.map(|entity| (id.to_string(), entity.path.to_string())));
        }
        (names, last)
    })
}
