//! The failure of one delivery attempt.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    /// The receiver has certainly not taken the notification.
    pub(crate) is_untaken: bool,
    pub(crate) reason: String,
}

impl Failed {
    /// The receiver was not reached.
    pub(crate) fn unreached(reason: impl Into<String>) -> Self {
        Self { is_untaken: true, reason: reason.into() }
    }

    /// The receiver may have taken the notification.
    pub(crate) fn unknown(reason: impl Into<String>) -> Self {
        Self { is_untaken: false, reason: reason.into() }
    }
}
