//! The reasons for which a packet cannot be read or written.

/// A packet that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Bytes that are no packet, or none that may stand here.
    #[error("malformed packet: {0}")]
    Malformed(&'static str),
    /// A packet that breaks a rule of the protocol.
    #[error("protocol error: {0}")]
    Protocol(&'static str),
    /// A packet that breaks a rule with a reason code of its own.
    #[error("{why}")]
    Refused {
        /// The code of [`crate::reason`] to answer with.
        reason: u8,
        /// The offending value and the rule.
        why: String,
    },
    /// A packet over the reader's limit.
    #[error("a packet of {size_bytes} bytes is over the limit of {limit_bytes}")]
    TooLarge {
        /// Size that the packet announces.
        size_bytes: usize,
        /// Largest packet that the reader takes.
        limit_bytes: usize,
    },
}

impl Error {
    pub(crate) fn refused(reason: u8, why: impl Into<String>) -> Self {
        Self::Refused { reason, why: why.into() }
    }
}

/// A packet that cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A field or the packet is longer than its length can say.
    #[error("{what} has {size_bytes} bytes; MQTT allows at most {limit_bytes}")]
    TooLong {
        /// The field with its article, such as "a filter".
        what: &'static str,
        /// The size of the field or packet.
        size_bytes: usize,
        /// The largest size that the encoding allows.
        limit_bytes: usize,
    },
    /// MQTT 3.1.1 has no login with a password alone.
    #[error("a password without a user name; give a user name, or use MQTT 5")]
    PasswordWithoutUser,
    /// SUBSCRIBE and UNSUBSCRIBE name at least one filter.
    #[error("no filter; name at least one")]
    NoFilter,
    /// Subscription identifiers are small numbers.
    #[error("subscription identifier {0}; MQTT allows 1 to 268435455")]
    SubscriptionId(u32),
}
