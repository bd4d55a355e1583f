//! Single entities for other planes of the process, in keyValues form.

use std::fmt;
use std::sync::Arc;

use millstream_types::{TenantId, WallClock};
use millstream_view::{Error, Slots};

use crate::entities::partition_key;
use crate::entities::view::EntityView;
use crate::model::render::push_key_values;

/// Reads entities by id from the state in memory. Never waits.
pub struct EntityReader {
    pub(crate) views: Arc<Slots<EntityView>>,
    pub(crate) wall: Arc<dyn WallClock>,
}

/// The entity to read, and the parts of it.
#[derive(Debug, Clone, Copy)]
pub struct EntityQuery<'a> {
    /// The tenant of the entity.
    pub tenant: &'a TenantId,
    /// The entity's id.
    pub id: &'a str,
    /// The entity's type; any if `None`.
    pub kind: Option<&'a str>,
    /// The entity's service path, exactly.
    pub service_path: &'a str,
    /// The attributes to give, each once, as `attrs` of a request names them; all if the list is empty.
    pub attributes: &'a [String],
}

/// The number of entities that a query fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntityMatch {
    /// There is no such entity, or it has expired.
    None,
    /// There is one.
    One,
    /// Entities of several types have the id.
    Several,
}

impl fmt::Debug for EntityReader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("EntityReader").field(&self.views).finish()
    }
}

impl EntityReader {
    /// Appends the entity that `query` names to `out`, if there is exactly one, as a JSON object in keyValues form. Every
    /// answered update is in it.
    ///
    /// # Errors
    /// [`Error::Loading`], [`Error::Elsewhere`] if the entity's partition is not here.
    pub fn read(&self, query: &EntityQuery<'_>, out: &mut String) -> Result<EntityMatch, Error> {
        let EntityQuery { tenant, id, kind, service_path, attributes } = *query;
        let snapshot = self.views.snapshot(self.views.partition_of(&partition_key(tenant, id)))?;
        let now_ms = self.wall.now_ms();
        let same = snapshot.state.of(tenant).into_iter().flat_map(|entities| entities.with_id(id));
        let mut fitting = same.filter(|entity| {
            *entity.key.path == *service_path
                && kind.is_none_or(|kind| *entity.key.kind == *kind)
                && !entity.has_expired(now_ms)
        });
        let Some(entity) = fitting.next() else { return Ok(EntityMatch::None) };
        if fitting.next().is_some() {
            return Ok(EntityMatch::Several);
        }
        push_key_values(entity, attributes, out);
        Ok(EntityMatch::One)
    }
}
