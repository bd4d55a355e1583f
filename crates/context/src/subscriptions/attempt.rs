//! How one attempt to deliver a notification can end.

/// Why an attempt has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    /// The receiver certainly has not taken it.
    pub(crate) is_untaken: bool,
    pub(crate) reason: String,
}

impl Failed {
    /// The receiver was not reached.
    pub(crate) fn unreached(reason: impl Into<String>) -> Self {
        Self { is_untaken: true, reason: reason.into() }
    }

    /// The receiver may have taken it.
    pub(crate) fn unknown(reason: impl Into<String>) -> Self {
        Self { is_untaken: false, reason: reason.into() }
    }
}
