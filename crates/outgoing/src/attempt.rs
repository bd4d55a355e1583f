//! The failure of one delivery attempt.

/// The failure of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// What is known of the receiver after it.
    pub kind: FailureKind,
    /// The reason, in words.
    pub reason: String,
}

/// What is known of the receiver after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The receiver is down: it would take no other notification now.
    Unreached,
    /// The receiver is there and has certainly not taken this notification.
    Refused,
    /// The receiver may have taken the notification.
    Unknown,
}

impl Failed {
    /// The receiver was not reached.
    pub fn unreached(reason: impl Into<String>) -> Self {
        Self { kind: FailureKind::Unreached, reason: reason.into() }
    }

    /// The receiver has not taken the notification, but may take others.
    pub fn refused(reason: impl Into<String>) -> Self {
        Self { kind: FailureKind::Refused, reason: reason.into() }
    }

    /// The receiver may have taken the notification.
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self { kind: FailureKind::Unknown, reason: reason.into() }
    }
}
