//! The failure of one delivery attempt.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) kind: FailureKind,
    pub(crate) reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The receiver is down: it would take no other notification now.
    Unreached,
    /// The receiver is there and has certainly not taken this notification.
    Refused,
    /// The receiver may have taken the notification.
    Unknown,
}

impl Failed {
    /// The receiver was not reached.
    pub(crate) fn unreached(reason: impl Into<String>) -> Self {
        Self { kind: FailureKind::Unreached, reason: reason.into() }
    }

    /// The receiver has not taken the notification, but may take others.
    pub(crate) fn refused(reason: impl Into<String>) -> Self {
        Self { kind: FailureKind::Refused, reason: reason.into() }
    }

    /// The receiver may have taken the notification.
    pub(crate) fn unknown(reason: impl Into<String>) -> Self {
        Self { kind: FailureKind::Unknown, reason: reason.into() }
    }
}
