//! Rule sets of the query parser.

/// Requests must keep all current rules. A stored subscription is read by the rules of its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    Sent,
    Stored,
}
