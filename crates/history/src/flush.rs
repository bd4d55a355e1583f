//! The points of a generation written to files: one for each tenant, type and day of observation.

use std::collections::BTreeMap;

use millstream_types::TenantId;
use parquet::data_type::ByteArray;

use crate::Error;
use crate::catalog::{Catalog, Directory};
use crate::catalog_record::FileRecord;
use crate::columns::Row;
use crate::file_writer::{FileWriter, Written};
use crate::generation::{Content, Kind};
use crate::point::{Point, day};

/// A point with the names of its series.
type Named<'g> = (&'g str, &'g str, &'g str, &'g Point);

/// What a flush has made.
#[derive(Debug, Default)]
pub(crate) struct Flushed {
    pub(crate) files: Vec<FileRecord>,
    /// Points for whose directory there may be no file.
    pub(crate) passed_over: u64,
}

/// Writes the files; all or none. Until they are named in the catalog they do not count.
pub(crate) fn flush(catalog: &mut Catalog, content: &Content, files_max: usize, now_ms: i64) -> Result<Flushed, Error> {
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
    catalog: &mut Catalog,
    content: &Content,
    files_max: usize,
    now_ms: i64,
    flushed: &mut Flushed,
) -> Result<(), Error> {
    let mut room = files_max.saturating_sub(catalog.table.files().count());
    for (tenant, kinds) in &content.tenants {
        for (kind_name, kind) in kinds {
            for (day, mut points) in by_day(kind) {
                let directory: Directory = (tenant.as_str().into(), kind_name.clone(), day);
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

fn by_day(kind: &Kind) -> BTreeMap<i32, Vec<Named<'_>>> {
    let mut days: BTreeMap<i32, Vec<Named<'_>>> = BTreeMap::new();
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
    catalog: &mut Catalog,
    tenant: &TenantId,
    kind: &str,
    day: i32,
    points: &[Named<'_>],
    now_ms: i64,
) -> Result<FileRecord, Error> {
    let number = catalog.number();
    let path = catalog.path_of(tenant.as_str(), kind, day, number);
    let mut writer = FileWriter::create(&catalog.files, &catalog.root, &path)?;
    let mut names = Names::default();
    for named in points {
        writer.push(names.row(named))?;
    }
    let place = (tenant.as_str().to_owned(), kind.to_owned(), day);
    Ok(FileRecord::new(place, number, writer.finish()?, now_ms))
}

/// The names of the row before, so that they are copied once for each series.
#[derive(Default)]
struct Names {
    id: ByteArray,
    path: ByteArray,
    attribute: ByteArray,
    kind: ByteArray,
}

impl Names {
    fn row(&mut self, (id, path, attribute, point): &Named<'_>) -> Row {
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
        Row {
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
    pub(crate) fn new(place: (String, String, i32), number: u64, written: Written, kept_ms: i64) -> Self {
        let (tenant, kind, day) = place;
        let Written { rows, bytes, observed_ms, modified_ms, ids } = written;
        let sampled = Vec::new();
        Self { number, tenant, kind, day, rows, bytes, observed_ms, modified_ms, ids, kept_ms, sampled }
    }
}
