//! The view that keeps entities: commands and decisions, the state of one partition, its records on disk, change topics.
//!
//! Owner: one thread for each partition of `_context` changes the state (`decide.rs`); readers use snapshots. Device
//! measurements enter by `measurement.rs`, records of `context_update.<tenant>` by `topic_update.rs`, requests by
//! `requests`; all become commands to the owner.
//!
//! Not here: what an entity is (`model`), HTTP (`requests`), the search structures (`index`), filters (`query`).

pub(crate) mod batch_update;
pub(crate) mod change_details;
pub(crate) mod change_record;
pub(crate) mod change_topics;
pub(crate) mod condition;
pub(crate) mod decide;
pub(crate) mod expiry;
pub(crate) mod measurement;
pub(crate) mod stamps;
pub(crate) mod state;
pub(crate) mod state_record;
pub(crate) mod topic_update;
pub(crate) mod types;
pub(crate) mod value_index;
pub(crate) mod view;

use millstream_types::TenantId;

/// The partition key of an entity. All entities with one id have one owner.
pub(crate) fn partition_key(tenant: &TenantId, id: &str) -> Vec<u8> {
    [tenant.as_str().as_bytes(), &[0], id.as_bytes()].concat()
}
