//! Reads the points of entities, out of files and of what is in none yet, with bounds on everything that is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_http::{AnswerMemory, Deadline, Problem, Reason};
use millstream_types::ErrorCode;

use crate::Error;
use crate::aggregate::Aggregates;
use crate::ask::{Form, Property, Selection, Window};
use crate::catalog::KeptFile;
use crate::catalog_record::FileRecord;
use crate::columns::{Columns, PAGE_ROWS};
use crate::entities::EntityRef;
use crate::file_reader::{Details, OpenFile, Rows, Run};
use crate::gather::{End, Gather};
use crate::generation::Generation;
use crate::index_cache::IndexCache;
use crate::page::{Found, PointPage};
use crate::point::Point;
use crate::shared::{Shared, Snapshot};

/// Rows that are aggregated at a time.
const AGGREGATED_ROWS: usize = 16 * PAGE_ROWS;

/// Limits of a read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadLimits {
    pub(crate) page_max_points: usize,
    pub(crate) page_max_bytes: usize,
    pub(crate) read_max_files: usize,
}

/// A read over one snapshot.
pub(crate) struct Reader<'r> {
    pub(crate) snapshot: &'r Snapshot,
    pub(crate) cache: &'r IndexCache,
    /// Is told of files that cannot be read.
    pub(crate) shared: &'r Shared,
    pub(crate) limits: ReadLimits,
    /// When nobody waits for the answer any longer.
    pub(crate) deadline: Deadline,
}

/// A failure of history on its way to a client.
pub(crate) fn failed(error: Error) -> Problem {
    Problem::from_error(error.code(), &error)
}

/// The refusal of a read that would be too much.
pub(crate) fn too_large(detail: String) -> Problem {
    Problem::new(Reason::Code(ErrorCode::TooLarge), detail)
}

/// What an entity's series are gathered in, by attribute.
enum Gathered {
    Points { end: End, keep: usize, bound_ms: Option<i64>, series: BTreeMap<String, Gather> },
    Periods { empty: Box<dyn Fn() -> Aggregates>, series: BTreeMap<String, Aggregates> },
}

impl Reader<'_> {
    /// A failure to read a file, of which those who operate the server hear as well.
    pub(crate) fn failed(&self, error: Error) -> Problem {
        self.shared.unreadable(&error);
        failed(error)
    }

    /// The files of a type that may hold what is selected.
    pub(crate) fn files_of(
        &self,
        selection: &Selection,
        kind: &str,
        is_wanted: impl Fn(i32, &FileRecord) -> bool,
    ) -> Result<Vec<Arc<KeptFile>>, Problem> {
        let (from, to) = selection.id_bounds();
        let may_hold = |day, file: &FileRecord| {
            is_wanted(day, file) && *file.ids.1 >= *from && to.is_none_or(|to| *file.ids.0 <= *to)
        };
        let of_kind = self.snapshot.files.of_tenant(selection.tenant.as_str()).filter(|((_, of, _), _)| **of == *kind);
        let files: Vec<_> = of_kind
            .flat_map(|((_, _, day), siblings)| siblings.iter().filter(|file| may_hold(*day, &file.record)).cloned())
            .collect();
        let limit = self.limits.read_max_files;
        if files.len() > limit {
            return Err(too_large(format!("this would look at {} files", files.len()))
                .rule(format!("history.read_max_files = {limit}"))
                .remedy("ask for a shorter time with timerel"));
        }
        Ok(files)
    }

    /// A file's index; an error once nobody waits for the answer any longer.
    pub(crate) fn open(&self, file: &Arc<KeptFile>) -> Result<Arc<OpenFile>, Problem> {
        if self.deadline.has_passed() {
            let late = Problem::new(Reason::DeadlinePassed, "the history was not read in time");
            return Err(late.remedy("ask for less: a shorter time, fewer entities"));
        }
        self.cache.open(file).map_err(|error| self.failed(error))
    }

    pub(crate) fn is_erased(&self, file: &FileRecord, run: &Run) -> bool {
        let erasures = &mut self.snapshot.files.erasures_of(file);
        erasures.any(|erasure| erasure.takes(&run.id, &run.path, &run.attribute))
    }

    /// Reads the series of the entities.
    pub(crate) fn read(
        &self,
        entities: &[EntityRef],
        (selection, window, form): (&Selection, &Window, &Form),
        memory: &mut AnswerMemory,
    ) -> Result<Found, Problem> {
        let max = self.limits.page_max_points;
        let end = match form {
            Form::Points { last: Some(_) } => End::Last,
            _ => End::First,
        };
        let mut page = PointPage::new(end, max);
        let (mut periods, mut periods_total) = (Vec::new(), 0);
        for (number, entity) in entities.iter().enumerate() {
            let mut gathered = match form {
                Form::Points { last } => Gathered::Points {
                    end,
                    keep: last.unwrap_or(max + 1),
                    bound_ms: page.bound_ms(),
                    series: BTreeMap::new(),
                },
                Form::Aggregated { methods, periods } => {
                    let (methods, periods) = (methods.clone(), *periods);
                    let empty = Box::new(move || Aggregates::new(periods, &methods));
                    Gathered::Periods { empty, series: BTreeMap::new() }
                }
            };
            self.gather(entity, (selection, window), page.size_bytes(), &mut gathered, memory)?;
            match gathered {
                Gathered::Points { series, .. } => {
                    for (attribute, gather) in series {
                        page.add(number, attribute, gather.finish())?;
                    }
                }
                Gathered::Periods { series, .. } => {
                    for (attribute, aggregates) in series {
                        periods_total += aggregates.len();
                        self.check_periods(periods_total)?;
                        periods.push((number, attribute, aggregates.finish()));
                    }
                }
            }
        }
        match form {
            Form::Points { .. } => Ok(Found::Points(page.finish())),
            Form::Aggregated { .. } => Ok(Found::Periods(periods)),
        }
    }

    fn check_periods(&self, periods: usize) -> Result<(), Problem> {
        let limit = self.limits.page_max_points;
        if periods <= limit {
            return Ok(());
        }
        Err(too_large(format!("the answer would have {periods} periods"))
            .rule(format!("history.page_max_points = {limit}"))
            .remedy("ask for longer periods, a shorter time, or fewer entities and attributes"))
    }

    fn check_bytes(&self, bytes: usize, memory: &mut AnswerMemory) -> Result<(), Problem> {
        let limit = self.limits.page_max_bytes;
        if bytes > limit {
            return Err(too_large(format!("the answer would take {bytes} bytes"))
                .rule(format!("history.page_max_bytes = {limit}"))
                .remedy("ask for a shorter time, fewer entities or fewer attributes"));
        }
        memory.cover(bytes)
    }

    /// Goes through everything that may hold points of an entity, what is nearest to the wanted end of time first.
    fn gather(
        &self,
        entity: &EntityRef,
        (selection, window): (&Selection, &Window),
        bytes_before: usize,
        into: &mut Gathered,
        memory: &mut AnswerMemory,
    ) -> Result<(), Problem> {
        for generation in &self.snapshot.generations {
            gather_generation(generation, entity, (selection, window), into);
            self.check_bytes(bytes_before + into.size_bytes(), memory)?;
        }
        let one = Selection { ids: vec![entity.id.clone()], ..selection.clone() };
        let mut files = self.files_of(&one, &entity.kind, |_, file| window.overlaps(file))?;
        match into.end() {
            End::First => files.sort_by_key(|file| window.span(&file.record).0),
            End::Last => files.sort_by_key(|file| std::cmp::Reverse(window.span(&file.record).1)),
        }
        for file in files {
            if !into.wants_of(&selection.attributes, window.span(&file.record)) {
                continue;
            }
            let open = self.open(&file)?;
            for run in open.runs(&entity.id, Some(&entity.id)) {
                let run = run.map_err(|error| self.failed(error))?;
                let is_selected = run.path == entity.path && selection.has_attribute(&run.attribute);
                if is_selected && !self.is_erased(&file.record, &run) {
                    gather_run(&open, &run, window, into).map_err(|error| self.failed(error))?;
                    self.check_bytes(bytes_before + into.size_bytes(), memory)?;
                }
            }
        }
        Ok(())
    }
}

impl Gathered {
    fn end(&self) -> End {
        match self {
            Self::Points { end, .. } => *end,
            Self::Periods { .. } => End::First,
        }
    }

    fn size_bytes(&self) -> usize {
        match self {
            Self::Points { series, .. } => series.values().map(Gather::size_bytes).sum(),
            Self::Periods { series, .. } => series.values().map(Aggregates::size_bytes).sum(),
        }
    }

    /// Whether points between two moments may be kept. Which attributes there are is known only if they were named.
    fn wants_of(&self, named: &[String], span: (i64, i64)) -> bool {
        match self {
            Self::Points { series, .. } if !named.is_empty() => {
                named.iter().any(|name| series.get(name).is_none_or(|gather| gather.wants_between(span)))
            }
            _ => true,
        }
    }

    fn points(&mut self, attribute: &str) -> Option<&mut Gather> {
        let Self::Points { end, keep, bound_ms, series } = self else { return None };
        if !series.contains_key(attribute) {
            let mut gather = Gather::new(*end, *keep);
            bound_ms.iter().for_each(|ms| gather.bound_by(*ms));
            series.insert(attribute.to_owned(), gather);
        }
        series.get_mut(attribute)
    }

    fn periods(&mut self, attribute: &str) -> Option<&mut Aggregates> {
        let Self::Periods { empty, series } = self else { return None };
        if !series.contains_key(attribute) {
            series.insert(attribute.to_owned(), empty());
        }
        series.get_mut(attribute)
    }
}

fn gather_generation(
    generation: &Generation,
    entity: &EntityRef,
    (selection, window): (&Selection, &Window),
    into: &mut Gathered,
) {
    generation.read(|content| {
        let kind = content.tenants.get(&selection.tenant).and_then(|kinds| kinds.get(&entity.kind));
        let same_id = kind.and_then(|kind| kind.entities.get(&*entity.id)).into_iter().flatten();
        for series in same_id.filter(|one| *one.path == *entity.path).flat_map(|one| &one.series) {
            if !selection.has_attribute(&series.attribute) {
                continue;
            }
            if let Some(gather) = into.points(&series.attribute) {
                let end = gather.end();
                let mut offer = |point: &Point| {
                    let ms = window.time(point);
                    if window.has(ms) {
                        gather.offer(ms, point.offset, || point.clone());
                    }
                };
                match end {
                    End::First => series.points.iter().for_each(&mut offer),
                    End::Last => series.points.iter().rev().for_each(&mut offer),
                }
            } else if let Some(aggregates) = into.periods(&series.attribute) {
                for point in &series.points {
                    let ms = window.time(point);
                    if window.has(ms) {
                        aggregates.add(ms, point.number, &point.value);
                    }
                }
            }
        }
    });
}

fn gather_run(open: &Arc<OpenFile>, run: &Run, window: &Window, into: &mut Gathered) -> Result<(), Error> {
    let is_by_observation = window.property == Property::Observed;
    let mut rest = run.rows.rows.clone();
    if is_by_observation && (window.from_ms, window.to_ms) != (i64::MIN, i64::MAX) {
        rest = open.observed_between(&run.rows, window.from_ms, window.to_ms)?;
    }
    while !rest.is_empty() {
        let rows = match into {
            Gathered::Points { end: End::Last, .. } => (rest.end - 1) / PAGE_ROWS * PAGE_ROWS..rest.end,
            Gathered::Points { .. } => rest.start..(rest.start / PAGE_ROWS + 1) * PAGE_ROWS,
            Gathered::Periods { .. } => rest.start..rest.start + AGGREGATED_ROWS,
        };
        let rows = rows.start.max(rest.start)..rows.end.min(rest.end);
        rest = if rows.end == rest.end { rest.start..rows.start } else { rows.end..rest.end };
        let rows = Rows { group: run.rows.group, rows };
        if let Some(gather) = into.points(&run.attribute) {
            let columns = open.read_points(&rows, Details::All)?;
            let is_last_of_use = offer_rows(&columns, window, gather);
            if is_by_observation && is_last_of_use {
                break;
            }
        } else if let Some(aggregates) = into.periods(&run.attribute) {
            let details = if aggregates.counts_distinct() { Details::Values } else { Details::Numbers };
            let mut columns = open.read_points(&rows, details)?;
            // Among those that are no numbers there may be deletions, which do not count.
            if details == Details::Numbers && aggregates.counts() && columns.number.iter().any(Option::is_none) {
                columns = open.read_points(&rows, Details::Values)?;
            }
            aggregate_rows(&columns, window, aggregates);
        }
    }
    Ok(())
}

/// Offers rows. Whether rows still further from the wanted end of time would be kept by nobody.
fn offer_rows(columns: &Columns, window: &Window, gather: &mut Gather) -> bool {
    let times = times(columns, window);
    for (at, ms) in times.iter().enumerate() {
        if window.has(*ms) {
            gather.offer(*ms, columns.offset[at] as u64, || point(columns, at));
        }
    }
    let furthest = match gather.end() {
        End::First => times.last(),
        End::Last => times.first(),
    };
    furthest.is_some_and(|ms| !gather.wants_between((*ms, *ms)))
}

fn aggregate_rows(columns: &Columns, window: &Window, aggregates: &mut Aggregates) {
    for (at, ms) in times(columns, window).iter().enumerate() {
        if window.has(*ms) {
            let value = columns.value.get(at).and_then(|value| value.as_utf8().ok()).unwrap_or_default();
            aggregates.add(*ms, columns.number[at], value);
        }
    }
}

fn times<'c>(columns: &'c Columns, window: &Window) -> &'c [i64] {
    match window.property {
        Property::Observed => &columns.observed,
        Property::Modified => &columns.modified,
    }
}

fn point(columns: &Columns, at: usize) -> Point {
    let text = |bytes: &parquet::data_type::ByteArray| -> Arc<str> { bytes.as_utf8().unwrap_or_default().into() };
    Point {
        observed_ms: columns.observed[at],
        modified_ms: columns.modified[at],
        offset: columns.offset[at] as u64,
        kind: text(&columns.kind[at]),
        value: text(&columns.value[at]),
        number: columns.number[at],
        metadata: columns.metadata[at].as_ref().map(text),
    }
}
