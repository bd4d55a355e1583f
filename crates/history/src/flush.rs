//! Writes a memtable to files, one per tenant, type and day of observation.

use std::collections::BTreeMap;

use millstream_types::TenantId;
use parquet::data_type::ByteArray;

use crate::Error;
use crate::catalog::{DayDirectory, FileCatalog};
use crate::catalog_record::FileRecord;
use crate::columns::PointRow;
use crate::file_writer::{FileSummary, FileWriter};
use crate::memtable::{EntitiesOfType, MemtableContent};
use crate::point::{Point, day};

/// A point with id, path and attribute.
type SeriesPoint<'g> = (&'g str, &'g str, &'g str, &'g Point);

#[derive(Debug, Default)]
pub(crate) struct Flushed {
    pub(crate) files: Vec<FileRecord>,
    /// Points dropped because of `history.files_max`.
    pub(crate) passed_over: u64,
}

/// Writes all files, or none if one fails. The files do not count until the catalog names them.
pub(crate) fn flush(
    catalog: &mut FileCatalog,
    content: &MemtableContent,
    files_max: usize,
    now_ms: i64,
) -> Result<Flushed, Error> {
    let mut flushed = Flushed::default();
    match write_all(catalog, content, files_max, now_ms, &mut flushed) {
        Ok(()) => Ok(flushed),
        Err(error) => {
            catalog.discard(&flushed.files);
            Err(error)
        }
    }
}

fn write_all(
    catalog: &mut FileCatalog,
    content: &MemtableContent,
    files_max: usize,
    now_ms: i64,
    flushed: &mut Flushed,
) -> Result<(), Error> {
    let mut room = files_max.saturating_sub(catalog.table.files().count());
    for (tenant, kinds) in &content.tenants {
        for (kind_name, kind) in kinds {
            for (day, mut points) in by_day(kind) {
                let directory: DayDirectory = (tenant.as_str().into(), kind_name.clone(), day);
                if room == 0 && !catalog.table.has_directory(&directory) {
                    flushed.passed_over += points.len() as u64;
                    continue;
                }
                room = room.saturating_sub(1);
                points.sort_unstable_by_key(|(id, path, attribute, point)| {
                    (*id, *path, *attribute, point.observed_ms, point.offset)
                });
                flushed.files.push(write(catalog, tenant, kind_name, day, &points, now_ms)?);
            }
        }
    }
    Ok(())
}

fn by_day(kind: &EntitiesOfType) -> BTreeMap<i32, Vec<SeriesPoint<'_>>> {
    let mut days: BTreeMap<i32, Vec<SeriesPoint<'_>>> = BTreeMap::new();
    for (id, same_id) in &kind.entities {
        for entity in same_id {
            for series in &entity.series {
                for point in &series.points {
                    let named = (&**id, &*entity.path, &*series.attribute, point);
                    days.entry(day(point.observed_ms)).or_default().push(named);
                }
            }
        }
    }
    days
}

fn write(
    catalog: &mut FileCatalog,
    tenant: &TenantId,
    kind: &str,
    day: i32,
    points: &[SeriesPoint<'_>],
    now_ms: i64,
) -> Result<FileRecord, Error> {
    let number = catalog.number();
    let path = catalog.path_of(tenant.as_str(), kind, day, number);
    let mut writer = FileWriter::create(&catalog.files, &catalog.root, &path)?;
    let mut names = SeriesNames::default();
    for named in points {
        writer.push(names.row(named))?;
    }
    let place = (tenant.as_str().to_owned(), kind.to_owned(), day);
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
    fn row(&mut self, (id, path, attribute, point): &SeriesPoint<'_>) -> PointRow {
        for (known, name) in [
            (&mut self.id, *id),
            (&mut self.path, *path),
            (&mut self.attribute, *attribute),
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
    pub(crate) fn new(place: (String, String, i32), number: u64, written: FileSummary, kept_ms: i64) -> Self {
        let (tenant, kind, day) = place;
        let FileSummary { rows, bytes, observed_ms, modified_ms, ids, checksums } = written;
        let sampled = Vec::new();
        Self { number, tenant, kind, day, rows, bytes, observed_ms, modified_ms, ids, kept_ms, sampled, checksums }
    }
}
