//! Removes entities whose `dateExpires` has passed. An owner removes them in short steps and notifies nobody.

use std::sync::Arc;

use millstream_types::TenantId;
use millstream_view::Draft;

use crate::entities::change_details::ChangeOrigin;
use crate::entities::change_record;
use crate::entities::view::{EntityChange, EntityReply, EntityView};
use crate::model::entity::Entity;

/// Entities that one step removes.
const STEP_ENTITIES: usize = 256;
/// The alteration type in the change record of an expired entity.
const EXPIRED: &str = "entityExpire";

/// Removes the next expired entities.
pub(crate) fn step(view: &EntityView, draft: &mut Draft<'_, EntityView>) -> EntityReply {
    let now_ms = draft.now_ms();
    let mut due: Vec<(TenantId, Arc<Entity>)> = Vec::new();
    for (tenant, entities) in draft.state().tenants() {
        let expired = entities.expired(now_ms).filter_map(|place| entities.get(&place.key));
        due.extend(expired.take(STEP_ENTITIES - due.len()).map(|entity| (tenant.clone(), entity.clone())));
        if due.len() >= STEP_ENTITIES {
            break;
        }
    }
    let is_full = due.len() >= STEP_ENTITIES;
    for (tenant, entity) in due {
        // A topic that was deleted meanwhile gets no record.
        if let Some(tell) = view.topics.known_partition(&tenant, &entity.key.id) {
            draft.publish(tell, change_record::of_removal(&entity, EXPIRED, &ChangeOrigin::default(), now_ms));
        }
        draft.change(EntityChange::Remove { tenant, key: entity.key.clone() });
    }
    if is_full { EntityReply::MoreToDo } else { EntityReply::Updated }
}
