//! The positions of a statement's clauses.

/// The positions of a statement's clauses, for errors that show up at the end.
#[derive(Debug, Default)]
pub(super) struct Marks {
    pub(super) select: usize,
    pub(super) items: Vec<usize>,
    pub(super) group: usize,
    pub(super) having: usize,
    pub(super) order: Vec<usize>,
    pub(super) window: usize,
    pub(super) event_time: usize,
    pub(super) limit: usize,
}
