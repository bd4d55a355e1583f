//! What owners do when they are reminded: let go of entities that have come to their end, index values step by step.

use std::sync::Arc;

use millstream_types::TenantId;
use millstream_view::Draft;

use crate::change_details::Origin;
use crate::entities::{Answer, Change, EntityView, tell_end};
use crate::entity::Entity;

/// Entities that one step indexes; it takes about a millisecond.
const INDEX_STEP: usize = 1_000;
/// Entities that one step lets go of.
const EXPIRE_STEP: usize = 256;
/// What became of an entity that came to its end by itself. Nobody is notified of it.
const EXPIRED: &str = "entityExpire";

/// Takes the next entities into the index of an attribute's values.
pub(crate) fn index(
    view: &EntityView,
    draft: &mut Draft<'_, EntityView>,
    tenant: TenantId,
    attribute: Arc<str>,
) -> Answer {
    let Some(entities) = draft.state().of(&tenant) else { return Answer::Updated };
    let is_known = entities.indexed().any(|(known, _)| *known == attribute);
    if !is_known && entities.indexed().count() >= view.indexed_attributes_max {
        return Answer::Updated;
    }
    if entities.values(&attribute).is_some() {
        return Answer::Updated;
    }
    let built = entities.next_built(&attribute, INDEX_STEP);
    draft.change(Change::Index { tenant, attribute, built });
    Answer::MoreToDo
}

/// Lets go of entities that have come to their end.
pub(crate) fn expire(view: &EntityView, draft: &mut Draft<'_, EntityView>) -> Answer {
    let now_ms = draft.now_ms();
    let mut due: Vec<(TenantId, Arc<Entity>)> = Vec::new();
    for (tenant, entities) in draft.state().tenants() {
        let expired = entities.expired(now_ms).filter_map(|place| entities.get(&place.key));
        due.extend(expired.take(EXPIRE_STEP - due.len()).map(|entity| (tenant.clone(), entity.clone())));
        if due.len() >= EXPIRE_STEP {
            break;
        }
    }
    let is_full = due.len() >= EXPIRE_STEP;
    for (tenant, entity) in due {
        // A topic that was deleted meanwhile hears of nothing any more.
        if let Some(tell) = view.topics.known_partition(&tenant, &entity.key.id) {
            draft.publish(tell, tell_end(&entity, EXPIRED, &Origin::default(), now_ms));
        }
        draft.change(Change::Remove { tenant, key: entity.key.clone() });
    }
    if is_full { Answer::MoreToDo } else { Answer::Updated }
}
