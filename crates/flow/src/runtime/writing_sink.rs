//! A sink as its instance writes to it.

use crate::connector::Sink;

pub(super) struct WritingSink {
    pub(super) sink: Box<dyn Sink>,
    pub(super) has_started: bool,
}
