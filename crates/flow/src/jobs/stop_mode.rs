//! The ways to stop a job.

/// The way in which a job is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Finishes the records that were read, and commits an epoch with them, from which another job can go on.
    Checkpoint,
    /// Finishes the records that were read.
    Graceful,
    /// Drops the records in flight; a later job of the same group reads them again.
    Immediate,
}
