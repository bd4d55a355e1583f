//! The part of one instance in an epoch.

use std::collections::BTreeMap;

use millstream_log::PositionCommit;

use super::event_time::PartitionTimes;
use crate::connector::Prepared;
use crate::delivery::SourcePosition;
use crate::state::StateChanges;

#[derive(Default)]
pub(super) struct EpochPart {
    pub(super) changes: StateChanges,
    pub(super) prepared: Vec<Box<dyn Prepared>>,
    pub(super) positions: Vec<PositionCommit>,
    /// The same positions, by source.
    pub(super) read: BTreeMap<String, Vec<SourcePosition>>,
    /// The records that the instance's sources without a log have read, by node.
    pub(super) places: BTreeMap<String, u64>,
    /// The latest event times of the partitions that the instance's sources have read, by node.
    pub(super) times: BTreeMap<String, PartitionTimes>,
    /// The watermark to which nodes with state have come, by node.
    pub(super) watermarks: BTreeMap<String, i64>,
    /// The keys that have state, by node.
    pub(super) keys: BTreeMap<String, u64>,
    /// The digests of all state, by node.
    pub(super) digests: BTreeMap<String, u64>,
}

impl EpochPart {
    /// `true` if there is nothing to be committed.
    pub(super) fn is_empty(&self) -> bool {
        let Self { changes, prepared, positions, read: _, places, times: _, watermarks: _, keys: _, digests: _ } = self;
        changes.len() == 0 && prepared.is_empty() && positions.is_empty() && places.is_empty()
    }
}
