//! Points that are not in files yet.
//!
//! A memtable takes points while it is the current one. Then it is sealed, flushed and dropped. A reader that holds
//! it can still read it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use millstream_types::{PartitionId, Position, TenantId, TopicId, TopicName};
use parking_lot::RwLock;

use crate::change::{ChangedAttribute, EntityChange};
use crate::file_period::{FilePeriod, PERIODS_MAX, Span};
use crate::point::{Point, day, number};

/// Approximate memory of a series or an entity without its names and points.
const NODE_BYTES: usize = 256;

/// The next position of each source; this memtable and earlier ones contain everything before it.
pub(crate) type Positions = HashMap<(TopicId, PartitionId), (TopicName, Position)>;

/// The points of all tenants.
#[derive(Debug, Default)]
pub(crate) struct Memtable(RwLock<MemtableContent>);

#[derive(Debug, Default)]
pub(crate) struct MemtableContent {
    pub(crate) tenants: HashMap<TenantId, BTreeMap<Arc<str>, EntitiesOfType>>,
    pub(crate) positions: Positions,
    pub(crate) points: usize,
    pub(crate) bytes: usize,
    /// Number of directories that a flush will write to, approximately.
    pub(crate) directories: usize,
}

/// The points of one entity type.
#[derive(Debug, Default)]
pub(crate) struct EntitiesOfType {
    /// Entities by id; one id can exist in several service paths.
    pub(crate) entities: BTreeMap<Arc<str>, Vec<EntitySeries>>,
    pub(crate) days: BTreeSet<i32>,
}

/// Notes a day of observation; returns how many more files a flush will write.
fn add_day(days: &mut BTreeSet<i32>, day: i32) -> usize {
    let has_own_file = days.len() < 2 * PERIODS_MAX;
    let is_new_file = has_own_file || days.range(FilePeriod::of(Span::Year, day).days()).next().is_none();
    usize::from(days.insert(day) && is_new_file)
}

/// The points of one entity.
#[derive(Debug)]
pub(crate) struct EntitySeries {
    pub(crate) path: Arc<str>,
    pub(crate) series: Vec<AttributeSeries>,
}

/// The points of one attribute, in change order.
#[derive(Debug)]
pub(crate) struct AttributeSeries {
    pub(crate) attribute: Arc<str>,
    pub(crate) points: Vec<Point>,
}

/// Time stamp and offset of a change record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordStamp {
    pub(crate) timestamp_ms: i64,
    pub(crate) offset: u64,
}

impl Memtable {
    /// Reads the content; writers wait meanwhile.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&MemtableContent) -> T) -> T {
        look(&self.0.read())
    }

    pub(crate) fn write<T>(&self, change: impl FnOnce(&mut MemtableContent) -> T) -> T {
        change(&mut self.0.write())
    }
}

impl MemtableContent {
    /// Adds the points of a change and returns their number.
    pub(crate) fn add(&mut self, tenant: &TenantId, change: &EntityChange<'_>, recorded: RecordStamp) -> usize {
        let mut bytes = 0;
        let kinds = match self.tenants.get_mut(tenant) {
            Some(kinds) => kinds,
            None => self.tenants.entry(tenant.clone()).or_default(),
        };
        let kind = match kinds.get_mut(&*change.kind) {
            Some(kind) => kind,
            None => {
                bytes += NODE_BYTES + change.kind.len();
                kinds.entry((*change.kind).into()).or_default()
            }
        };
        // A known entity, the usual case, needs one lookup.
        let same_id = match kind.entities.get_mut(&*change.id) {
            Some(same_id) => same_id,
            None => {
                bytes += NODE_BYTES + change.id.len();
                kind.entities.entry((*change.id).into()).or_insert_with(|| Vec::with_capacity(1))
            }
        };
        let entity = entity(same_id, change, &mut bytes);
        for changed in &change.attributes {
            let series = series(entity, &changed.name, &mut bytes);
            let point = point(changed, series.points.last(), recorded);
            self.directories += add_day(&mut kind.days, day(point.observed_ms));
            // Most series start with one point; reserve no memory that the accounting does not see.
            if series.points.is_empty() {
                series.points.reserve_exact(1);
            }
            let metadata_bytes = point.metadata.as_ref().map_or(0, |text| text.len());
            bytes += size_of::<Point>() + point.value.len() + 16 + metadata_bytes;
            series.points.push(point);
        }
        self.bytes += bytes;
        self.points += change.attributes.len();
        change.attributes.len()
    }
}

fn entity<'e>(
    same_id: &'e mut Vec<EntitySeries>,
    change: &EntityChange<'_>,
    bytes: &mut usize,
) -> &'e mut EntitySeries {
    let at = same_id.iter().position(|entity| &*entity.path == change.path).unwrap_or_else(|| {
        *bytes += NODE_BYTES + change.path.len();
        let at = same_id.partition_point(|entity| &*entity.path < change.path);
        same_id.insert(at, EntitySeries { path: change.path.into(), series: Vec::new() });
        at
    });
    &mut same_id[at]
}

fn series<'e>(entity: &'e mut EntitySeries, attribute: &str, bytes: &mut usize) -> &'e mut AttributeSeries {
    let at = entity.series.iter().position(|series| &*series.attribute == attribute).unwrap_or_else(|| {
        *bytes += NODE_BYTES + attribute.len();
        let at = entity.series.partition_point(|series| &*series.attribute < attribute);
        entity.series.insert(at, AttributeSeries { attribute: attribute.into(), points: Vec::new() });
        at
    });
    &mut entity.series[at]
}

/// Builds a point that shares type and metadata with the previous one if they are equal.
fn point(changed: &ChangedAttribute<'_>, before: Option<&Point>, recorded: RecordStamp) -> Point {
    let kind = before.filter(|before| *before.kind == changed.kind).map(|before| before.kind.clone());
    let shared = before.and_then(|before| before.metadata.clone());
    let metadata = changed.metadata.as_deref();
    Point {
        observed_ms: changed.observed_ms.unwrap_or(recorded.timestamp_ms),
        modified_ms: recorded.timestamp_ms,
        offset: recorded.offset,
        kind: kind.unwrap_or_else(|| (*changed.kind).into()),
        value: changed.value.into(),
        number: number(changed.value),
        metadata: if shared.as_deref() == metadata { shared } else { metadata.map(Into::into) },
    }
}
