//! The kinds of requests that are served, each with its range of versions.
//!
//! [`crate::dispatch`] builds the list from its table of handlers; everything else reads it from the broker.

use std::sync::Arc;

/// The served versions of one kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ApiVersionRange {
    pub(crate) key: i16,
    pub(crate) min: i16,
    pub(crate) max: i16,
}

impl ApiVersionRange {
    pub(crate) fn contains(&self, key: i16, version: i16) -> bool {
        self.key == key && (self.min..=self.max).contains(&version)
    }
}

/// All kinds of requests that are served. A clone shares the list.
#[derive(Debug, Clone)]
pub(crate) struct SupportedApis(Arc<[ApiVersionRange]>);

impl SupportedApis {
    pub(crate) fn new(apis: impl Iterator<Item = ApiVersionRange>) -> Self {
        Self(apis.collect())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ApiVersionRange> {
        self.0.iter()
    }

    pub(crate) fn contains(&self, key: i16, version: i16) -> bool {
        self.iter().any(|api| api.contains(key, version))
    }
}
