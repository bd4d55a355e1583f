//! Who still uses what NGSI will do without: counted, and named in a line where that is wanted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_types::TenantId;

use crate::entities::Action;
use crate::geometry;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Deprecations {
    used: AtomicU64,
    are_logged: AtomicBool,
}

impl Deprecations {
    pub(crate) fn new(are_logged: bool) -> Self {
        Self { are_logged: are_logged.into(), ..Self::default() }
    }

    /// Notes the types of locations that GeoJSON has replaced.
    pub(crate) fn note(&self, tenant: &TenantId, action: &Action) {
        for attribute in action.attributes() {
            let Some(kind) = attribute.content.kind().filter(|kind| geometry::is_deprecated(kind)) else { continue };
            self.used.fetch_add(1, Ordering::Relaxed);
            if self.are_logged() {
                let (entity, attribute) = (action.id(), &attribute.name);
                tracing::warn!(%tenant, %entity, %attribute, kind, "a deprecated type is used; geo:json takes its place");
            }
        }
    }

    /// How often anything deprecated was used.
    pub(crate) fn count(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Counts anew.
    pub(crate) fn reset(&self) {
        self.used.store(0, Ordering::Relaxed);
    }

    /// Whether there is a line for each use.
    pub(crate) fn are_logged(&self) -> bool {
        self.are_logged.load(Ordering::Relaxed)
    }

    /// From now on there is, or is not.
    pub(crate) fn log(&self, are_logged: bool) {
        self.are_logged.store(are_logged, Ordering::Relaxed);
    }
}
