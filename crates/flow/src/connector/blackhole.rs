//! The sink `blackhole`: drops records.

use super::{Sink, Written};
use crate::Error;
use crate::batch::Batch;
use crate::document::{NodeType, Role};

pub(super) const SINK: NodeType = NodeType {
    name: "blackhole",
    role: Role::Sink,
    summary: "Drops every record; its counter still counts them.",
    keys: &[],
    can_end: false,
    keeps_state: false,
};

struct Blackhole;

pub(super) fn sink() -> Box<dyn Sink> {
    Box::new(Blackhole)
}

impl Sink for Blackhole {
    fn write(&mut self, _batch: &Batch) -> Result<Written, Error> {
        Ok(Written::Taken)
    }
}
