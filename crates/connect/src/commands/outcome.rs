//! How a command ends.

use std::borrow::Cow;

/// How a command has ended: each has exactly one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// The device has it.
    Accepted,
    /// Its device was away, or did not acknowledge it.
    Released,
    /// It is malformed, or a limit or the registry forbids it.
    Rejected,
    /// Its device did not come in time.
    Expired,
}

impl End {
    /// As notices and answers say it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Released => "released",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
        }
    }
}

/// A command's end, as the application is told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) end: End,
    /// As in HTTP.
    pub(crate) status: u16,
    /// Why it did not reach the device; empty if it did.
    pub(crate) why: Cow<'static, str>,
}

impl Outcome {
    pub(crate) const ACCEPTED: Self = Self { end: End::Accepted, status: 202, why: Cow::Borrowed("") };
    pub(crate) const EXPIRED: Self = Self {
        end: End::Expired,
        status: 504,
        why: Cow::Borrowed("the device did not take the command before its time to live had passed"),
    };

    pub(crate) fn released(why: &'static str) -> Self {
        Self { end: End::Released, status: 503, why: Cow::Borrowed(why) }
    }

    pub(crate) fn unknown_device() -> Self {
        Self::rejected(404, "the device is unknown or disabled, or its tenant is")
    }

    pub(crate) fn rejected(status: u16, why: impl Into<Cow<'static, str>>) -> Self {
        Self { end: End::Rejected, status, why: why.into() }
    }
}
