//! The steps that fill a table and keep it up to date.

use std::sync::Arc;

use millstream_types::TenantId;

use super::table::LookupTable;
use crate::Error;
use crate::connector::{Services, Waker};
use crate::document::Node;
use crate::state::StateMemory;

/// The surroundings of a feed.
pub(crate) struct FeedContext<'a> {
    pub(crate) services: &'a Services,
    pub(crate) tenant: &'a TenantId,
    /// The lookup.
    pub(crate) node: &'a Node,
    pub(crate) table: &'a Arc<LookupTable>,
    pub(crate) memory: StateMemory,
    /// Wakes the task that takes the feed's steps.
    pub(crate) waker: Waker,
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FeedStep {
    /// There may be more to do at once.
    Again,
    /// The table is whole from now on.
    Loaded,
    /// Nothing to do until the waker is called.
    Wait,
}

/// The feed of one table.
pub(crate) trait TableFeed: Send {
    /// Goes on. Does not wait.
    ///
    /// # Errors
    /// The table cannot be read, or there is no memory for it.
    fn step(&mut self) -> Result<FeedStep, Error>;
}
