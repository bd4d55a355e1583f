//! Counts uses of deprecated NGSI features, and logs them if configured.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_types::TenantId;

use crate::entities::view::WriteAction;
use crate::model::geometry;

#[derive(Debug, Default)]
pub(crate) struct Deprecations {
    used: AtomicU64,
    are_logged: AtomicBool,
}

impl Deprecations {
    pub(crate) fn new(are_logged: bool) -> Self {
        Self { are_logged: are_logged.into(), ..Self::default() }
    }

    /// Counts location types that GeoJSON replaces.
    pub(crate) fn note(&self, tenant: &TenantId, action: &WriteAction) {
        for attribute in action.attributes() {
            let Some(kind) = attribute.content.kind().filter(|kind| geometry::is_deprecated(kind)) else { continue };
            self.used.fetch_add(1, Ordering::Relaxed);
            if self.are_logged() {
                let (entity, attribute) = (action.id(), &attribute.name);
                tracing::warn!(%tenant, %entity, %attribute, kind, "a deprecated type is used; geo:json takes its place");
            }
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn reset(&self) {
        self.used.store(0, Ordering::Relaxed);
    }

    pub(crate) fn are_logged(&self) -> bool {
        self.are_logged.load(Ordering::Relaxed)
    }

    /// Switches the log lines on or off.
    pub(crate) fn log(&self, are_logged: bool) {
        self.are_logged.store(are_logged, Ordering::Relaxed);
    }
}
