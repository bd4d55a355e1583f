//! NGSI-v2 entities: the latest state of every thing, from device measurements, client updates and records of updates.
//!
//! ```text
//!  telemetry.<tenant> ──────► measurement ──┐
//!  context_update.<tenant> ─► topic_update ─┼─► owner of (tenant, id) ──► one atomic append: _context + context.<tenant>
//!  POST, PATCH, PUT, DELETE ─► request_body ┘            │
//!  GET /v2/entities ◄── render ◄── snapshot ◄────────────┘
//! ```
//!
//! The state is a view over the compacted topic `_context`, partitioned by (tenant, entity id). Every change has a
//! record in `context.<tenant>`. An update is answered once it is durable, and a read after the answer sees it.
//!
//! Not here: devices and their registry (`connect`), whose mappings `server` supplies through [`Mappings`]; the past of
//! entities (`history`). Registrations are not supported: their routes answer 501.

mod config;
mod entities;
mod error;
mod flow_control;
mod ignored;
mod index;
mod maintenance;
mod mapping;
mod model;
#[cfg(test)]
mod mutations;
mod orion;
mod plane;
mod query;
mod reader;
mod refusal;
mod registrations;
mod requests;
mod state_topic;
mod statistics;
mod subscriptions;
mod tokens;

pub use config::{ContextConfig, NotificationsConfig, RegistrationsConfig};
pub use entities::change_topics::{ALTERATION_TYPE, CHANGE_DETAILS, CHANGED_ATTRIBUTES, SERVICE_PATH};
pub use error::Error;
pub use mapping::mapping_errors::MappingError;
pub use mapping::{DEFAULT_ID_PREFIX, DEFAULT_TYPE, MAPPING_MEMBER, Mapping, Mappings, TenantMappings};
pub use orion::log_routes::LogLevel;
pub use orion::version_route::Build;
pub use plane::Context;
pub use reader::{EntityMatch, EntityQuery, EntityReader};
pub use statistics::stats::ContextStats;
