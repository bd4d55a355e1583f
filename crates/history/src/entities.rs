//! Which entities have a history: in the order of type, id and path, merged over files and what is in none yet.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Bound;
use std::sync::Arc;

use millstream_http::Problem;

use crate::ask::{Selection, Window};
use crate::catalog::KeptFile;
use crate::file_reader::Runs;
use crate::generation::Generation;
use crate::read::Reader;

/// Ids that are looked up in a generation at a time; whoever writes to it waits meanwhile.
const LOOKUP_IDS: usize = 256;

/// An entity that has a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntityRef {
    pub(crate) kind: Arc<str>,
    pub(crate) id: String,
    pub(crate) path: String,
}

/// Which part of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) offset: usize,
    pub(crate) limit: usize,
    /// Whether it is counted how many there are in all.
    pub(crate) counts: bool,
}

/// Id and path.
type Name = (String, String);

impl Reader<'_> {
    /// The entities of a page, and how many there are if that is asked for: those that have a value on a day that the window
    /// touches.
    pub(crate) fn entities(
        &self,
        selection: &Selection,
        window: &Window,
        page: Page,
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

    /// An entity that is selected and has something, whatever the time: in memory, or else in the youngest file that has one.
    pub(crate) fn at_any_time(&self, selection: &Selection) -> Result<Option<EntityRef>, Problem> {
        let (from, to) = selection.id_bounds();
        for kind in self.kinds(selection) {
            for generation in &self.snapshot.generations {
                let mut next = Some(Bound::Included(from.into()));
                while let Some(begin) = next {
                    let (found, go_on) = look_up(generation, selection, &kind, &Window::default(), begin);
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

    fn kinds(&self, selection: &Selection) -> BTreeSet<Arc<str>> {
        let tenant = selection.tenant.as_str();
        let in_files = self.snapshot.files.of_tenant(tenant).map(|((_, kind, _), _)| kind.clone());
        let mut kinds: BTreeSet<Arc<str>> = in_files.collect();
        for generation in &self.snapshot.generations {
            generation.read(|content| {
                kinds
                    .extend(content.tenants.get(&selection.tenant).into_iter().flat_map(|kinds| kinds.keys().cloned()));
            });
        }
        kinds.retain(|kind| selection.has_kind(kind));
        kinds
    }

    fn names<'s>(&'s self, selection: &'s Selection, window: &Window, kind: &Arc<str>) -> Result<Names<'s>, Problem> {
        let (from, to) = selection.id_bounds();
        let mut sources = Vec::new();
        for file in self.files_of(selection, kind, |day, file| window.lists_file(day, file))? {
            let runs = self.open(&file)?.runs(from, to);
            sources.push(NameSource::File { runs, file });
        }
        for generation in &self.snapshot.generations {
            let (generation, kind) = (generation.clone(), kind.clone());
            let ahead = Vec::new().into_iter();
            let next = Some(Bound::Included(from.into()));
            sources.push(NameSource::Generation { generation, kind, window: *window, next, ahead });
        }
        let mut names = Names { reader: self, selection, sources, heads: BinaryHeap::new(), last: None };
        for source in 0..names.sources.len() {
            names.pull(source)?;
        }
        Ok(names)
    }
}

/// Distinct names in their order.
struct Names<'s> {
    reader: &'s Reader<'s>,
    selection: &'s Selection,
    sources: Vec<NameSource>,
    /// The next name of each source that has one, and which that is.
    heads: BinaryHeap<Reverse<(Name, usize)>>,
    last: Option<Name>,
}

enum NameSource {
    File {
        runs: Runs,
        file: Arc<KeptFile>,
    },
    Generation {
        generation: Arc<Generation>,
        kind: Arc<str>,
        window: Window,
        /// Where to go on; `None` at the end.
        next: Option<Bound<Arc<str>>>,
        ahead: std::vec::IntoIter<Name>,
    },
}

impl Names<'_> {
    fn next(&mut self) -> Result<Option<Name>, Problem> {
        while let Some(Reverse((name, source))) = self.heads.pop() {
            self.pull(source)?;
            if self.last.as_ref() != Some(&name) {
                self.last = Some(name.clone());
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Puts the next name of a source among the heads.
    fn pull(&mut self, source: usize) -> Result<(), Problem> {
        let next = match &mut self.sources[source] {
            NameSource::File { runs, file } => next_of_file(self.reader, self.selection, runs, file)?,
            NameSource::Generation { generation, kind, window, next, ahead } => loop {
                if let Some(name) = ahead.next() {
                    break Some(name);
                }
                let Some(from) = next.take() else { break None };
                let (found, go_on) = look_up(generation, self.selection, kind, window, from);
                (*ahead, *next) = (found.into_iter(), go_on);
            },
        };
        self.heads.extend(next.map(|name| Reverse((name, source))));
        Ok(())
    }
}

fn next_of_file(
    reader: &Reader<'_>,
    selection: &Selection,
    runs: &mut Runs,
    file: &KeptFile,
) -> Result<Option<Name>, Problem> {
    for run in runs {
        let run = run.map_err(|error| reader.failed(error))?;
        let is_selected = selection.has_attribute(&run.attribute) && selection.has_entity(&run.id, &run.path);
        if is_selected && !reader.is_erased(&file.record, &run) {
            return Ok(Some((run.id, run.path)));
        }
    }
    Ok(None)
}

/// Names from an id on, and where to go on.
fn look_up(
    generation: &Generation,
    selection: &Selection,
    kind: &str,
    window: &Window,
    from: Bound<Arc<str>>,
) -> (Vec<Name>, Option<Bound<Arc<str>>>) {
    generation.read(|content| {
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
