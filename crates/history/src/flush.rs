//! Writes a memtable to files: for each tenant and type one per day of observation, or one for a month or year if there are
//! many days.

use std::collections::BTreeMap;

use millstream_types::TenantId;
use parquet::data_type::ByteArray;

use crate::Error;
use crate::catalog::FileCatalog;
use crate::catalog_record::FileRecord;
use crate::columns::PointRow;
use crate::file_period::{FilePeriod, Span, periods_of};
use crate::file_writer::{FileSummary, FileWriter};
use crate::memtable::{EntitiesOfType, MemtableContent};
use crate::point::{Point, day};
use crate::rules::RuleSet;

/// A point and the series that it belongs to.
struct SeriesPoint<'g> {
    id: &'g str,
    path: &'g str,
    attribute: &'g str,
    point: &'g Point,
}

/// Writes all files, or none if one fails. The files do not count until the catalog names them.
pub(crate) fn flush(
    catalog: &mut FileCatalog,
    content: &MemtableContent,
    rules: &RuleSet,
    now_ms: i64,
) -> Result<Vec<FileRecord>, Error> {
    let mut written = Vec::new();
    match write_all(catalog, content, rules, now_ms, &mut written) {
        Ok(()) => Ok(written),
        Err(error) => {
            catalog.discard(&written);
            Err(error)
        }
    }
}

fn write_all(
    catalog: &mut FileCatalog,
    content: &MemtableContent,
    rules: &RuleSet,
    now_ms: i64,
    written: &mut Vec<FileRecord>,
) -> Result<(), Error> {
    for (tenant, kinds) in &content.tenants {
        for (kind_name, kind) in kinds {
            for (period, mut points) in by_period(kind, rules.coarsest_flush(tenant, kind_name)) {
                points.sort_unstable_by_key(|SeriesPoint { id, path, attribute, point }| {
                    (*id, *path, *attribute, point.observed_ms, point.offset)
                });
                written.push(write(catalog, tenant, kind_name, period, &points, now_ms)?);
            }
        }
    }
    Ok(())
}

fn by_period(kind: &EntitiesOfType, coarsest: Span) -> BTreeMap<FilePeriod, Vec<SeriesPoint<'_>>> {
    let periods = periods_of(&kind.days, coarsest);
    let mut points: BTreeMap<FilePeriod, Vec<SeriesPoint<'_>>> = BTreeMap::new();
    for (id, same_id) in &kind.entities {
        for entity in same_id {
            for series in &entity.series {
                for point in &series.points {
                    let named = SeriesPoint { id, path: &entity.path, attribute: &series.attribute, point };
                    let day = day(point.observed_ms);
                    let period = periods.get(&day).copied().unwrap_or(FilePeriod::of(Span::Day, day));
                    points.entry(period).or_default().push(named);
                }
            }
        }
    }
    points
}

fn write(
    catalog: &mut FileCatalog,
    tenant: &TenantId,
    kind: &str,
    period: FilePeriod,
    points: &[SeriesPoint<'_>],
    now_ms: i64,
) -> Result<FileRecord, Error> {
    let number = catalog.number();
    let path = catalog.path_of(tenant.as_str(), kind, period, number);
    let mut writer = FileWriter::create(&catalog.files, &catalog.root, &path)?;
    let mut names = SeriesNames::default();
    for named in points {
        writer.push(names.row(named))?;
    }
    let place = (tenant.as_str().to_owned(), kind.to_owned(), period);
    Ok(FileRecord::new(place, number, writer.finish()?, now_ms))
}

/// The names of the previous row, so that they are copied only once per series.
#[derive(Default)]
struct SeriesNames {
    id: ByteArray,
    path: ByteArray,
    attribute: ByteArray,
    kind: ByteArray,
}

impl SeriesNames {
    fn row(&mut self, named: &SeriesPoint<'_>) -> PointRow {
        let SeriesPoint { id, path, attribute, point } = *named;
        for (known, name) in [
            (&mut self.id, id),
            (&mut self.path, path),
            (&mut self.attribute, attribute),
            (&mut self.kind, &*point.kind),
        ] {
            if *known == ByteArray::default() || known.data() != name.as_bytes() {
                *known = name.into();
            }
        }
        PointRow {
            id: self.id.clone(),
            path: self.path.clone(),
            attribute: self.attribute.clone(),
            kind: self.kind.clone(),
            observed: point.observed_ms,
            modified: point.modified_ms,
            value: (&*point.value).into(),
            number: point.number,
            metadata: point.metadata.as_deref().map(Into::into),
            offset: point.offset as i64,
        }
    }
}

impl FileRecord {
    pub(crate) fn new(place: (String, String, FilePeriod), number: u64, written: FileSummary, kept_ms: i64) -> Self {
        let (tenant, kind, FilePeriod { first_day: day, span }) = place;
        let FileSummary { rows, bytes, observed_ms, modified_ms, ids, paths, attributes, checksums } = written;
        let (sampled, copy) = (Vec::new(), None);
        Self {
            number,
            tenant,
            kind,
            day,
            span,
            rows,
            bytes,
            observed_ms,
            modified_ms,
            ids,
            kept_ms,
            sampled,
            paths,
            attributes,
            checksums,
            copy,
        }
    }
}
