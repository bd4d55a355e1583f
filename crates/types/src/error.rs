//! The kinds of failure that cross a crate's border: one table from which every door takes its own code.

use std::fmt;

/// What went wrong, independent of the protocol that reports it.
///
/// Each library's `Error` maps onto one of these; each door (HTTP, MQTT, Kafka, …) maps these onto its own codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorCode {
    /// The request contradicts a rule; the same request can never succeed.
    Invalid,
    /// The caller did not prove who it is.
    Unauthenticated,
    /// The caller is known and may not do this.
    Forbidden,
    /// What the request names does not exist.
    NotFound,
    /// The state forbids it: it exists already, or several things match.
    Conflict,
    /// A condition sent along (`If-Match`) does not hold.
    PreconditionFailed,
    /// A size limit was passed.
    TooLarge,
    /// The caller's own rate or quota is used up.
    RateLimited,
    /// A shared queue or budget is full; nothing was taken.
    Overloaded,
    /// No verdict in time; the call may or may not have taken effect.
    Timeout,
    /// A needed part is away or stopping; nothing was taken.
    Unavailable,
    /// Stored bytes are not what was written.
    Corrupt,
    /// Asked for, and this version does not do it.
    Unsupported,
    /// A fault of ours.
    Internal,
}

impl ErrorCode {
    /// The HTTP status that says the same.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::PreconditionFailed => 412,
            Self::TooLarge => 413,
            Self::RateLimited => 429,
            Self::Corrupt | Self::Internal => 500,
            Self::Unsupported => 501,
            Self::Overloaded | Self::Timeout | Self::Unavailable => 503,
        }
    }

    /// Whether the same call may succeed later.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::RateLimited | Self::Overloaded | Self::Timeout | Self::Unavailable)
    }

    /// Whether the call may have taken effect although it failed.
    pub const fn may_have_applied(self) -> bool {
        matches!(self, Self::Timeout | Self::Internal)
    }

    /// A short stable name, as it stands in problem details and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not-found",
            Self::Conflict => "conflict",
            Self::PreconditionFailed => "precondition-failed",
            Self::TooLarge => "too-large",
            Self::RateLimited => "rate-limited",
            Self::Overloaded => "overloaded",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Corrupt => "corrupt",
            Self::Unsupported => "unsupported",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorCode::*;

    #[test]
    fn each_code_says_its_name_its_status_and_what_the_caller_may_do() {
        const RETRY: bool = true;
        const MAYBE_APPLIED: bool = true;
        for (code, name, status, retryable, may_have_applied) in [
            (Invalid, "invalid", 400, !RETRY, !MAYBE_APPLIED),
            (Unauthenticated, "unauthenticated", 401, !RETRY, !MAYBE_APPLIED),
            (Forbidden, "forbidden", 403, !RETRY, !MAYBE_APPLIED),
            (NotFound, "not-found", 404, !RETRY, !MAYBE_APPLIED),
            (Conflict, "conflict", 409, !RETRY, !MAYBE_APPLIED),
            (PreconditionFailed, "precondition-failed", 412, !RETRY, !MAYBE_APPLIED),
            (TooLarge, "too-large", 413, !RETRY, !MAYBE_APPLIED),
            (RateLimited, "rate-limited", 429, RETRY, !MAYBE_APPLIED),
            (Overloaded, "overloaded", 503, RETRY, !MAYBE_APPLIED),
            (Timeout, "timeout", 503, RETRY, MAYBE_APPLIED),
            (Unavailable, "unavailable", 503, RETRY, !MAYBE_APPLIED),
            (Corrupt, "corrupt", 500, !RETRY, !MAYBE_APPLIED),
            (Unsupported, "unsupported", 501, !RETRY, !MAYBE_APPLIED),
            (Internal, "internal", 500, !RETRY, MAYBE_APPLIED),
        ] {
            assert_eq!(code.to_string(), name);
            assert_eq!(code.http_status(), status, "{name}");
            assert_eq!(code.is_retryable(), retryable, "{name}");
            assert_eq!(code.may_have_applied(), may_have_applied, "{name}");
        }
    }
}
