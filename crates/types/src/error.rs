//! The kinds of failure that cross crate borders. Each protocol maps them to its own codes.

use std::fmt;

/// A kind of failure, independent of the protocol that reports it.
///
/// Each library's `Error` maps to one of these; each protocol (HTTP, MQTT, Kafka, …) maps these to its own codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorCode {
    /// The request breaks a rule; the same request can never succeed.
    Invalid,
    /// The caller did not prove its identity.
    Unauthenticated,
    /// The caller is known but lacks the permission.
    Forbidden,
    /// The named object does not exist.
    NotFound,
    /// The current state forbids it: the object exists already, or several objects match.
    Conflict,
    /// A condition of the request (`If-Match`) does not hold.
    PreconditionFailed,
    /// The request exceeds a size limit.
    TooLarge,
    /// The caller's own rate or quota is used up.
    RateLimited,
    /// A shared queue or budget is full; nothing was accepted.
    Overloaded,
    /// No outcome in time; the call may or may not have taken effect.
    Timeout,
    /// A required part is missing or stopping; nothing was accepted.
    Unavailable,
    /// The stored bytes differ from the written ones.
    Corrupt,
    /// This version does not support the request.
    Unsupported,
    /// A fault of Millstream itself.
    Internal,
}

impl ErrorCode {
    /// The HTTP status with the same meaning.
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

    /// `true` if the same call may succeed later.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::RateLimited | Self::Overloaded | Self::Timeout | Self::Unavailable)
    }

    /// `true` if the call may have taken effect although it failed.
    pub const fn may_have_applied(self) -> bool {
        matches!(self, Self::Timeout | Self::Internal)
    }

    /// A short stable name for problem details and metrics.
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
    fn each_code_has_a_name_a_status_and_says_whether_a_retry_is_safe() {
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
