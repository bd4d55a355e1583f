//! Entities, as NGSI-v2 knows them: the latest state of every thing, made of devices' measurements and clients' updates.
//!
//! ```text
//!  telemetry.<tenant> ──► measurement ──┐
//!                                       ├─► owner of (tenant, id) ──► one atomic append: _context + context.<tenant>
//!  POST, PATCH, PUT, DELETE /v2 ──► given ┘            │
//!  GET /v2/entities ◄── show ◄── snapshot ◄────────────┘
//! ```
//!
//! The state is a view over the compacted topic `_context`, partitioned by (tenant, entity id); every change is told in
//! `context.<tenant>`. An update is answered once it is durable, and a read after the answer sees it.
//!
//! Not here: devices and their registry (`connect`); what `server` alone knows reaches this crate by [`Mappings`]. What
//! entities were (`history`). Not yet: registrations, which are answered by 501.

mod alarms;
mod batch_routes;
mod blocks;
mod change_details;
mod change_topics;
mod condition;
mod config;
mod content;
mod datetime;
mod deprecations;
mod desk;
mod entities;
mod entity;
mod error;
mod geometry;
mod given;
mod index;
mod json;
mod list;
mod log_routes;
mod mapping;
mod measurement;
mod metrics_routes;
#[cfg(test)]
mod mutations;
mod names;
mod nearest;
mod op_query;
mod op_update;
mod operator;
mod owner_work;
mod places;
mod plain;
mod plan;
mod plane;
mod query;
mod refusal;
mod request;
mod request_counts;
mod request_watch;
mod routes;
mod scalars;
mod show;
mod stamps;
mod state;
mod state_record;
mod statistics_routes;
mod stats;
mod subscriptions;
mod summary;
mod syntax;
mod timing;
mod traffic;
mod trie;
mod troubles;
mod type_routes;
mod types;
mod update;
mod upkeep;
mod value_routes;
mod version_route;
mod watch;

pub use change_topics::{ALTERATION_TYPE, CHANGE_DETAILS, CHANGED_ATTRIBUTES, SERVICE_PATH};
pub use config::ContextConfig;
pub use error::Error;
pub use log_routes::LogLevel;
pub use mapping::{DEFAULT_ID_PREFIX, DEFAULT_TYPE, MAPPING_MEMBER, Mapping, Mappings, TenantMappings};
pub use plane::Context;
pub use stats::ContextStats;
pub use subscriptions::NotificationsConfig;
pub use troubles::MappingTrouble;
pub use version_route::Build;

use config::RECORD_MAX_BYTES;
use millstream_types::TenantId;

/// What an entity is partitioned by: all entities with one id have one owner.
fn partition_key(tenant: &TenantId, id: &str) -> Vec<u8> {
    [tenant.as_str().as_bytes(), &[0], id.as_bytes()].concat()
}
