//! Conditional requests: `If-Match` on writes of one entity, `If-None-Match` on reads of one.

use axum::http::HeaderMap;
use axum::http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};

use crate::model::entity::Entity;
use crate::refusal::{ErrorName, Refusal};

/// The versions in a conditional header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Versions {
    Any,
    Of(Vec<String>),
}

impl Versions {
    fn read(headers: &HeaderMap, name: &HeaderName) -> Option<Self> {
        let given: Vec<&str> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
        let tags: Vec<&str> = given.iter().flat_map(|list| list.split(',')).map(str::trim).collect();
        match tags[..] {
            [] => None,
            ["*"] => Some(Self::Any),
            _ => Some(Self::Of(tags.into_iter().map(str::to_owned).collect())),
        }
    }

    fn have(&self, tag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Of(tags) => tags.iter().any(|known| known == tag),
        }
    }

    /// Reads the versions in the header `If-Match`.
    pub(crate) fn of_write(headers: &HeaderMap) -> Option<Self> {
        Self::read(headers, &IF_MATCH)
    }

    /// Refuses a write of the entity `id` if it has another version or does not exist.
    pub(crate) fn check(&self, entity: Option<&Entity>, id: &str) -> Result<(), Refusal> {
        let why = match entity.map(Entity::tag) {
            Some(tag) if self.have(&tag) => return Ok(()),
            Some(tag) => format!("entity '{id}' has the version {tag}, which If-Match does not name; read it again"),
            None => format!("entity '{id}' does not exist, and If-Match names a version; leave that out to create it"),
        };
        Err(Refusal::new(ErrorName::PreconditionFailed, why))
    }
}

/// `If-None-Match` names the version of `entity`.
pub(crate) fn is_known(headers: &HeaderMap, entity: &Entity) -> bool {
    // Weak and strong tags are equivalent: the version determines the reply.
    let tag = entity.tag();
    match Versions::read(headers, &IF_NONE_MATCH) {
        None => false,
        Some(Versions::Any) => true,
        Some(Versions::Of(tags)) => tags.iter().any(|known| known.strip_prefix("W/").unwrap_or(known) == tag),
    }
}
