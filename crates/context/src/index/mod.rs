//! Persistent indexes over the entities of one tenant in one partition. Snapshots share them without copies.

pub(crate) mod blocks;
mod cells;
mod ids;
#[cfg(test)]
mod model;
pub(crate) mod places;
pub(crate) mod trie;
mod values;

pub(crate) use cells::Cells;
pub(crate) use ids::Ids;
pub(crate) use values::{Built, IndexValue, Values};
