//! The outcome of a command.

use std::borrow::Cow;

/// The end of a command. Each command has exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// The device received the command.
    Accepted,
    /// The device was not connected, or did not acknowledge the command.
    Released,
    /// The command is malformed, or a limit or the registry forbids it.
    Rejected,
    /// The device did not connect in time.
    Expired,
}

impl End {
    /// The name in notices and answers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Released => "released",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
        }
    }
}

/// The end of a command, as the application reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) end: End,
    /// The status code, as in HTTP.
    pub(crate) status: u16,
    /// The reason for which the command did not reach the device; empty if it did.
    pub(crate) why: Cow<'static, str>,
}

impl Outcome {
    pub(crate) const ACCEPTED: Self = Self { end: End::Accepted, status: 202, why: Cow::Borrowed("") };
    pub(crate) const EXPIRED: Self = Self {
        end: End::Expired,
        status: 504,
        why: Cow::Borrowed("the device did not take the command before its time to live had passed"),
    };

    pub(crate) fn released(why: impl Into<Cow<'static, str>>) -> Self {
        Self { end: End::Released, status: 503, why: why.into() }
    }

    pub(crate) fn unknown_device() -> Self {
        Self::rejected(404, "the device is unknown or disabled, or its tenant is")
    }

    pub(crate) fn rejected(status: u16, why: impl Into<Cow<'static, str>>) -> Self {
        Self { end: End::Rejected, status, why: why.into() }
    }
}
