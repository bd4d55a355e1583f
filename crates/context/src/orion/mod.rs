//! The routes of FIWARE Orion for operators: statistics, metrics, log level and version.
//!
//! Nothing here changes an entity. Not here: the counts themselves (`statistics`).

pub(crate) mod log_routes;
pub(crate) mod metrics_routes;
pub(crate) mod statistics_routes;
pub(crate) mod version_route;
