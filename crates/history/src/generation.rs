//! Points that are in no file yet.
//!
//! A generation is written to while it is the current one, then only read, and dropped once its points are in files. A
//! reader that holds it misses nothing, whatever becomes of it meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use millstream_types::{PartitionId, Position, TenantId, TopicId, TopicName};
use parking_lot::RwLock;

use crate::change::{Change, Changed};
use crate::point::{Point, day, number};

/// What a series or an entity takes beside its names and points, about.
const NODE_BYTES: usize = 256;

/// Where a source has been read to: everything before is in the generation, or in an earlier one.
pub(crate) type Positions = HashMap<(TopicId, PartitionId), (TopicName, Position)>;

/// Points of all tenants.
#[derive(Debug, Default)]
pub(crate) struct Generation(RwLock<Content>);

/// What a generation holds.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) tenants: HashMap<TenantId, BTreeMap<Arc<str>, Kind>>,
    pub(crate) positions: Positions,
    pub(crate) points: usize,
    pub(crate) bytes: usize,
    /// Directories that its points belong to.
    pub(crate) directories: usize,
}

/// Points of one type of entities.
#[derive(Debug, Default)]
pub(crate) struct Kind {
    /// By id; of one id the entities in several service paths.
    pub(crate) entities: BTreeMap<Arc<str>, Vec<Entity>>,
    days: std::collections::BTreeSet<i32>,
}

/// Points of one entity.
#[derive(Debug)]
pub(crate) struct Entity {
    pub(crate) path: Arc<str>,
    pub(crate) series: Vec<Series>,
}

/// Points of one attribute, in the order of the changes.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) attribute: Arc<str>,
    pub(crate) points: Vec<Point>,
}

/// When and where a change was recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recorded {
    pub(crate) timestamp_ms: i64,
    pub(crate) offset: u64,
}

impl Generation {
    /// Looks at it; whoever writes waits meanwhile.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Content) -> T) -> T {
        look(&self.0.read())
    }

    /// Changes it.
    pub(crate) fn write<T>(&self, change: impl FnOnce(&mut Content) -> T) -> T {
        change(&mut self.0.write())
    }
}

impl Content {
    /// Adds the points of a change. How many there are.
    pub(crate) fn add(&mut self, tenant: &TenantId, change: &Change<'_>, recorded: Recorded) -> usize {
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
        // One walk for an entity that is known, as most are.
        let same_id = match kind.entities.get_mut(&*change.id) {
            Some(same_id) => same_id,
            None => {
                bytes += NODE_BYTES + change.id.len();
                kind.entities.entry((*change.id).into()).or_insert_with(|| Vec::with_capacity(1))
            }
        };
        let days_before = kind.days.len();
        let entity = entity(same_id, change, &mut bytes);
        for changed in &change.attributes {
            let series = series(entity, &changed.name, &mut bytes);
            let point = point(changed, series.points.last(), recorded);
            kind.days.insert(day(point.observed_ms));
            // Most series of many get one point at first: room for several would be room that nobody counts.
            if series.points.is_empty() {
                series.points.reserve_exact(1);
            }
            let metadata_bytes = point.metadata.as_ref().map_or(0, |text| text.len());
            bytes += size_of::<Point>() + point.value.len() + 16 + metadata_bytes;
            series.points.push(point);
        }
        self.directories += kind.days.len() - days_before;
        self.bytes += bytes;
        self.points += change.attributes.len();
        change.attributes.len()
    }
}

fn entity<'e>(same_id: &'e mut Vec<Entity>, change: &Change<'_>, bytes: &mut usize) -> &'e mut Entity {
    let at = same_id.iter().position(|entity| &*entity.path == change.path).unwrap_or_else(|| {
        *bytes += NODE_BYTES + change.path.len();
        let at = same_id.partition_point(|entity| &*entity.path < change.path);
        same_id.insert(at, Entity { path: change.path.into(), series: Vec::new() });
        at
    });
    &mut same_id[at]
}

fn series<'e>(entity: &'e mut Entity, attribute: &str, bytes: &mut usize) -> &'e mut Series {
    let at = entity.series.iter().position(|series| &*series.attribute == attribute).unwrap_or_else(|| {
        *bytes += NODE_BYTES + attribute.len();
        let at = entity.series.partition_point(|series| &*series.attribute < attribute);
        entity.series.insert(at, Series { attribute: attribute.into(), points: Vec::new() });
        at
    });
    &mut entity.series[at]
}

/// What the point before has as well is shared with it.
fn point(changed: &Changed<'_>, before: Option<&Point>, recorded: Recorded) -> Point {
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
