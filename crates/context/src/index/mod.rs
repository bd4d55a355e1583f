//! Persistent indexes over the entities of one tenant in one partition: what is shared with a snapshot is not copied.

mod cells;
mod ids;
#[cfg(test)]
mod model;
mod values;

pub(crate) use cells::Cells;
pub(crate) use ids::Ids;
pub(crate) use values::{Built, Value, Values};
