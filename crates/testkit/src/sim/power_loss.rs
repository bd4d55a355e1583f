//! The effect of a power loss.

/// The fate of unsynced changes in a crash of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerLoss {
    /// All of them are lost.
    DropAll,
    /// Some survive, whole or torn, in any order.
    Torn,
}
