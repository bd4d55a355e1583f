//! Reads the points of entities from files and memtables; every buffer has a limit.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_http::{AnswerMemory, Deadline, Problem, Reason};

use crate::Error;
use crate::aggregate::Aggregates;
use crate::catalog_record::FileRecord;
use crate::columns::{PAGE_ROWS, PointColumns};
use crate::error::{failed, too_large};
use crate::file_reader::{OpenFile, Projection, RowRange, SeriesRun};
use crate::file_table::DataFile;
use crate::index_cache::IndexCache;
use crate::memtable::Memtable;
use crate::page::{PointPageBuilder, TemporalResult};
use crate::point::{DELETED, Point};
use crate::query::{EntityRef, EntitySelection, PointExtent, ResultForm, SeriesQuery, TimeProperty, TimeWindow};
use crate::state::{HistorySnapshot, HistoryState};
use crate::top_n::{TimeEnd, TopN};

/// Rows aggregated in one step.
const AGGREGATED_ROWS: usize = 16 * PAGE_ROWS;

#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadLimits {
    pub(crate) page_max_points: usize,
    pub(crate) page_max_bytes: usize,
}

pub(crate) struct SnapshotReader<'r> {
    pub(crate) snapshot: &'r HistorySnapshot,
    pub(crate) cache: &'r IndexCache,
    /// Receives failures to read files.
    pub(crate) state: &'r HistoryState,
    pub(crate) limits: ReadLimits,
    /// The time at which the client stops waiting.
    pub(crate) deadline: Deadline,
}

/// Collects the series of one entity, by attribute.
enum SeriesCollector {
    Points { end: TimeEnd, keep: usize, bound_ms: Option<i64>, series: BTreeMap<String, TopN> },
    Periods { empty: Box<dyn Fn() -> Aggregates>, series: BTreeMap<String, Aggregates> },
}

impl SnapshotReader<'_> {
    /// Returns the same reader with another limit of points; `usize::MAX` bounds an answer by its bytes alone.
    pub(crate) fn with_point_limit(&self, page_max_points: usize) -> Self {
        Self { limits: ReadLimits { page_max_points, ..self.limits }, ..*self }
    }

    /// Reports a file failure to the operator and converts it for the client.
    pub(crate) fn failed(&self, error: Error) -> Problem {
        self.state.unreadable(&error);
        failed(error)
    }

    /// Returns the files of a type that may contain selected entities.
    pub(crate) fn files_of(
        &self,
        selection: &EntitySelection,
        kind: &str,
        is_wanted: impl Fn(&FileRecord) -> bool,
    ) -> Vec<Arc<DataFile>> {
        let (from, to) = selection.id_bounds();
        let may_hold =
            |file: &FileRecord| is_wanted(file) && *file.ids.1 >= *from && to.is_none_or(|to| *file.ids.0 <= *to);
        let of_kind = self.snapshot.files.of_tenant(selection.tenant.as_str()).filter(|((_, of, _), _)| **of == *kind);
        of_kind.flat_map(|(_, siblings)| siblings.iter()).filter(|file| may_hold(&file.record)).cloned().collect()
    }

    /// Opens a file with its index; fails once the deadline has passed.
    pub(crate) fn open(&self, file: &Arc<DataFile>) -> Result<Arc<OpenFile>, Problem> {
        if self.deadline.has_passed() {
            let late = Problem::new(Reason::DeadlinePassed, "the deadline passed before the history was read");
            return Err(late.remedy("ask for less: a shorter time, fewer entities"));
        }
        self.cache.open(file).map_err(|error| {
            if matches!(error, Error::File { .. }) {
                file.mark_damaged();
            }
            self.failed(error)
        })
    }

    pub(crate) fn is_erased(&self, file: &FileRecord, run: &SeriesRun) -> bool {
        let erasures = &mut self.snapshot.files.erasures_of(file);
        erasures.any(|erasure| erasure.takes(&run.id, &run.path, &run.attribute))
    }

    pub(crate) fn read(
        &self,
        entities: &[EntityRef],
        query: &SeriesQuery,
        memory: &mut AnswerMemory,
    ) -> Result<TemporalResult, Problem> {
        let form = &query.form;
        let max = self.limits.page_max_points;
        let (end, keep) = match form {
            ResultForm::Points(PointExtent::Last(keep)) => (TimeEnd::Last, *keep),
            ResultForm::Points(PointExtent::First(keep)) => (TimeEnd::First, *keep),
            _ => (TimeEnd::First, max.saturating_add(1)),
        };
        let mut page = PointPageBuilder::new(end, max);
        let (mut periods, mut periods_total) = (Vec::new(), 0);
        for (number, entity) in entities.iter().enumerate() {
            let mut collector = match form {
                ResultForm::Points(_) => {
                    SeriesCollector::Points { end, keep, bound_ms: page.bound_ms(), series: BTreeMap::new() }
                }
                ResultForm::Aggregated { methods, periods } => {
                    let (methods, periods) = (methods.clone(), *periods);
                    let empty = Box::new(move || Aggregates::new(periods, &methods));
                    SeriesCollector::Periods { empty, series: BTreeMap::new() }
                }
            };
            self.collect(entity, query, page.size_bytes(), &mut collector, memory)?;
            match collector {
                SeriesCollector::Points { series, .. } => {
                    for (attribute, top_n) in series {
                        page.add(number, attribute, top_n.finish())?;
                    }
                }
                SeriesCollector::Periods { series, .. } => {
                    for (attribute, aggregates) in series {
                        periods_total += aggregates.len();
                        self.check_periods(periods_total)?;
                        periods.push((number, attribute, aggregates.finish()));
                    }
                }
            }
        }
        match form {
            ResultForm::Points(_) => Ok(TemporalResult::Points(page.finish())),
            ResultForm::Aggregated { .. } => Ok(TemporalResult::Periods(periods)),
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

    /// Refuses an answer of more bytes than allowed, and has the budget cover those of any other.
    pub(crate) fn check_bytes(&self, bytes: usize, memory: &mut AnswerMemory) -> Result<(), Problem> {
        let limit = self.limits.page_max_bytes;
        if bytes > limit {
            return Err(too_large(format!("the answer would take {bytes} bytes"))
                .rule(format!("history.page_max_bytes = {limit}"))
                .remedy("ask for a shorter time, fewer entities or fewer attributes"));
        }
        memory.cover(bytes)
    }

    /// Collects the points of an entity, starting with the sources nearest to the wanted end of time.
    fn collect(
        &self,
        entity: &EntityRef,
        query: &SeriesQuery,
        bytes_before: usize,
        into: &mut SeriesCollector,
        memory: &mut AnswerMemory,
    ) -> Result<(), Problem> {
        let SeriesQuery { selection, window, .. } = query;
        for memtable in &self.snapshot.memtables {
            collect_memtable(memtable, entity, query, into);
            self.check_bytes(bytes_before + into.size_bytes(), memory)?;
        }
        let one = EntitySelection { ids: vec![entity.id.clone()], ..selection.clone() };
        let mut files = self.files_of(&one, &entity.kind, |file| {
            window.overlaps(file) && (file.paths.is_empty() || file.paths.contains(&entity.path))
        });
        match into.end() {
            TimeEnd::First => files.sort_by_key(|file| window.span(&file.record).0),
            TimeEnd::Last => files.sort_by_key(|file| std::cmp::Reverse(window.span(&file.record).1)),
        }
        for file in files {
            if !into.wants_of(&selection.attributes, &file.record, window.span(&file.record)) {
                continue;
            }
            let open = self.open(&file)?;
            for run in open.runs(&entity.id, Some(&entity.id)) {
                let run = run.map_err(|error| self.failed(error))?;
                let is_selected = run.path == entity.path && selection.has_attribute(&run.attribute);
                if is_selected && !self.is_erased(&file.record, &run) {
                    let check = |bytes| self.check_bytes(bytes_before + bytes, memory);
                    self.collect_run(&open, &run, query, into, check)?;
                }
            }
        }
        Ok(())
    }

    /// Collects the points of a run; `check` is told after each step how much memory the collector takes.
    fn collect_run(
        &self,
        open: &Arc<OpenFile>,
        run: &SeriesRun,
        query: &SeriesQuery,
        into: &mut SeriesCollector,
        mut check: impl FnMut(usize) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let (window, failed) = (&query.window, |error| self.failed(error));
        let is_by_observation = window.property == TimeProperty::Observed;
        let mut rest = run.rows.rows.clone();
        if is_by_observation && (window.from_ms, window.to_ms) != (i64::MIN, i64::MAX) {
            rest = open.observed_between(&run.rows, window.from_ms, window.to_ms).map_err(failed)?;
        }
        if rest.is_empty() {
            return Ok(());
        }
        // Aggregates of numbers need no values, except that a point without a number may be a deletion, which is not counted.
        let mut reads_values = into.periods(&run.attribute).is_none_or(|aggregates| aggregates.counts_distinct());
        while !rest.is_empty() {
            let rows = match into {
                SeriesCollector::Points { end: TimeEnd::Last, .. } => (rest.end - 1) / PAGE_ROWS * PAGE_ROWS..rest.end,
                SeriesCollector::Points { .. } => rest.start..(rest.start / PAGE_ROWS + 1) * PAGE_ROWS,
                SeriesCollector::Periods { .. } => rest.start..rest.start + AGGREGATED_ROWS,
            };
            let rows = rows.start.max(rest.start)..rows.end.min(rest.end);
            let mut rows = RowRange { group: run.rows.group, rows };
            if reads_values {
                rows = open.step(rows, into.end()).map_err(failed)?;
            }
            if let Some(top_n) = into.points(&run.attribute) {
                let columns = open.read_points(&rows, Projection::All).map_err(failed)?;
                let is_last_of_use = offer_rows(&columns, query, top_n);
                check(into.size_bytes())?;
                if is_by_observation && is_last_of_use {
                    break;
                }
            } else if let Some(aggregates) = into.periods(&run.attribute) {
                let projection = if reads_values { Projection::Values } else { Projection::Numbers };
                let columns = open.read_points(&rows, projection).map_err(failed)?;
                if !reads_values && aggregates.counts() && columns.number.iter().any(Option::is_none) {
                    reads_values = true;
                    continue;
                }
                aggregate_rows(&columns, window, aggregates);
                check(into.size_bytes())?;
            }
            rest = if rows.rows.end == rest.end { rest.start..rows.rows.start } else { rows.rows.end..rest.end };
        }
        Ok(())
    }
}

impl SeriesCollector {
    fn end(&self) -> TimeEnd {
        match self {
            Self::Points { end, .. } => *end,
            Self::Periods { .. } => TimeEnd::First,
        }
    }

    fn size_bytes(&self) -> usize {
        match self {
            Self::Points { series, .. } => series.values().map(TopN::size_bytes).sum(),
            Self::Periods { series, .. } => series.values().map(Aggregates::size_bytes).sum(),
        }
    }

    /// Tells if points of a file may be kept; always true if neither the query nor the catalog names attributes.
    fn wants_of(&self, named: &[String], file: &FileRecord, span: (i64, i64)) -> bool {
        let is_in_file = |name: &&String| file.attributes.is_empty() || file.attributes.contains(name);
        let is_wanted = |name: &String| match self {
            Self::Points { series, .. } => series.get(name).is_none_or(|top_n| top_n.wants_between(span.0, span.1)),
            Self::Periods { .. } => true,
        };
        match (named, &*file.attributes) {
            ([], []) => true,
            ([], of_file) => of_file.iter().any(is_wanted),
            (named, _) => named.iter().filter(is_in_file).any(is_wanted),
        }
    }

    fn points(&mut self, attribute: &str) -> Option<&mut TopN> {
        let Self::Points { end, keep, bound_ms, series } = self else { return None };
        if !series.contains_key(attribute) {
            let mut top_n = TopN::new(*end, *keep);
            bound_ms.iter().for_each(|ms| top_n.bound_by(*ms));
            series.insert(attribute.to_owned(), top_n);
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

fn collect_memtable(memtable: &Memtable, entity: &EntityRef, query: &SeriesQuery, into: &mut SeriesCollector) {
    let SeriesQuery { selection, window, .. } = query;
    memtable.read(|content| {
        let kind = content.tenants.get(&selection.tenant).and_then(|kinds| kinds.get(&entity.kind));
        let same_id = kind.and_then(|kind| kind.entities.get(&*entity.id)).into_iter().flatten();
        for series in same_id.filter(|one| *one.path == *entity.path).flat_map(|one| &one.series) {
            if !selection.has_attribute(&series.attribute) {
                continue;
            }
            if let Some(top_n) = into.points(&series.attribute) {
                let end = top_n.end();
                let mut offer = |point: &Point| {
                    let ms = window.time(point);
                    if window.has(ms) && !(query.skips_deletions && point.is_deletion()) {
                        top_n.offer(ms, point.offset, || point.clone());
                    }
                };
                match end {
                    TimeEnd::First => series.points.iter().for_each(&mut offer),
                    TimeEnd::Last => series.points.iter().rev().for_each(&mut offer),
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

/// Offers rows; returns true if rows further from the wanted end cannot be kept.
fn offer_rows(columns: &PointColumns, query: &SeriesQuery, top_n: &mut TopN) -> bool {
    let times = times(columns, &query.window);
    for (at, ms) in times.iter().enumerate() {
        if query.window.has(*ms) && !(query.skips_deletions && columns.value[at].data() == DELETED.as_bytes()) {
            top_n.offer(*ms, columns.offset[at] as u64, || point(columns, at));
        }
    }
    let furthest = match top_n.end() {
        TimeEnd::First => times.last(),
        TimeEnd::Last => times.first(),
    };
    furthest.is_some_and(|ms| !top_n.wants_between(*ms, *ms))
}

fn aggregate_rows(columns: &PointColumns, window: &TimeWindow, aggregates: &mut Aggregates) {
    for (at, ms) in times(columns, window).iter().enumerate() {
        if window.has(*ms) {
            let value = columns.value.get(at).and_then(|value| value.as_utf8().ok()).unwrap_or_default();
            aggregates.add(*ms, columns.number[at], value);
        }
    }
}

fn times<'c>(columns: &'c PointColumns, window: &TimeWindow) -> &'c [i64] {
    match window.property {
        TimeProperty::Observed => &columns.observed,
        TimeProperty::Modified => &columns.modified,
    }
}

fn point(columns: &PointColumns, at: usize) -> Point {
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
