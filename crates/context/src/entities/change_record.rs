//! Renders the records of the change topics: an entity's new version or its removal.

use std::sync::Arc;

use millstream_view::Publish;

use crate::entities::change_details::{self, ChangeOrigin};
use crate::entities::change_topics::{self, ALTERATION_TYPE, CHANGE_DETAILS, CHANGED_ATTRIBUTES, SERVICE_PATH};
use crate::model::entity::Entity;
use crate::model::render;
use crate::model::update::{AttributeDifference, Differs};

/// The change record of a new version: the differences and the requested attributes.
pub(crate) fn of(
    before: Option<&Entity>,
    after: &Entity,
    differences: &[AttributeDifference],
    asked: &[Arc<str>],
    origin: &ChangeOrigin,
    timestamp_ms: i64,
) -> Publish {
    let changed: Vec<Arc<str>> = differences.iter().map(|difference| difference.name.clone()).collect();
    let alteration = match before {
        None => "entityCreate",
        Some(_) if changed.is_empty() && !origin.is_forced => "entityUpdate",
        Some(_) => "entityChange",
    };
    let details = change_details::text(before, after, differences, asked, origin);
    record(after, alteration, changed, details, timestamp_ms)
}

/// The change record of a removed entity.
pub(crate) fn of_removal(before: &Entity, alteration: &str, origin: &ChangeOrigin, timestamp_ms: i64) -> Publish {
    let changed: Vec<Arc<str>> = before.attributes.iter().map(|attribute| attribute.name.clone()).collect();
    let gone = |name: &Arc<str>| AttributeDifference { name: name.clone(), what: Differs::Removed };
    let differences: Vec<AttributeDifference> = changed.iter().map(gone).collect();
    let details = change_details::text(Some(before), before, &differences, &[], origin);
    record(before, alteration, changed, details, timestamp_ms)
}

fn record(entity: &Entity, alteration: &str, changed: Vec<Arc<str>>, details: Vec<u8>, timestamp_ms: i64) -> Publish {
    Publish {
        timestamp_ms,
        key: Some(entity.key.id.as_bytes().to_vec()),
        value: Some(render::normalized(entity).into_bytes()),
        headers: vec![
            (ALTERATION_TYPE.into(), alteration.as_bytes().to_vec()),
            (CHANGED_ATTRIBUTES.into(), change_topics::listed(&changed).into_bytes()),
            (SERVICE_PATH.into(), entity.key.path.as_bytes().to_vec()),
            (CHANGE_DETAILS.into(), details),
        ],
    }
}
