//! The response of a device to a command.

use std::sync::Arc;

use bytes::Bytes;

/// A device's response to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) device: Arc<str>,
    /// The device's own status: 200 to 299 or 400 to 599.
    pub(crate) status: u16,
    pub(crate) content_type: Option<Box<str>>,
    pub(crate) payload: Bytes,
}
