//! Builds the value indexes that queries want. An owner indexes an attribute in short steps, so no command waits long.

use std::sync::Arc;

use millstream_types::TenantId;
use millstream_view::Draft;

use crate::entities::view::{EntityChange, EntityReply, EntityView};

/// Entities that one step indexes; it takes about a millisecond.
const STEP_ENTITIES: usize = 1_000;

/// Indexes the values of the next entities.
pub(crate) fn step(
    view: &EntityView,
    draft: &mut Draft<'_, EntityView>,
    tenant: TenantId,
    attribute: Arc<str>,
) -> EntityReply {
    let Some(entities) = draft.state().of(&tenant) else { return EntityReply::Updated };
    let is_known = entities.indexed().any(|(known, _)| *known == attribute);
    if !is_known && entities.indexed().count() >= view.indexed_attributes_max {
        return EntityReply::Updated;
    }
    if entities.values(&attribute).is_some() {
        return EntityReply::Updated;
    }
    let built = entities.next_built(&attribute, STEP_ENTITIES);
    draft.change(EntityChange::Index { tenant, attribute, built });
    EntityReply::MoreToDo
}
