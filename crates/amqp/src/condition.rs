//! The names of errors (AMQP 1.0, section 2.8.14 to 2.8.18), and Hono's own.

/// An internal error of the peer.
pub const INTERNAL_ERROR: &str = "amqp:internal-error";
/// A node that does not exist.
pub const NOT_FOUND: &str = "amqp:not-found";
/// An action without the right to it.
pub const UNAUTHORIZED_ACCESS: &str = "amqp:unauthorized-access";
/// Bytes that cannot be decoded.
pub const DECODE_ERROR: &str = "amqp:decode-error";
/// A limit that is reached.
pub const RESOURCE_LIMIT_EXCEEDED: &str = "amqp:resource-limit-exceeded";
/// A frame that may not stand here.
pub const NOT_ALLOWED: &str = "amqp:not-allowed";
/// A field with an invalid value.
pub const INVALID_FIELD: &str = "amqp:invalid-field";
/// A function that does not exist here.
pub const NOT_IMPLEMENTED: &str = "amqp:not-implemented";
/// A state that forbids the action.
pub const PRECONDITION_FAILED: &str = "amqp:precondition-failed";
/// A node that has been removed.
pub const RESOURCE_DELETED: &str = "amqp:resource-deleted";
/// A frame that is not allowed in this state.
pub const ILLEGAL_STATE: &str = "amqp:illegal-state";
/// A connection that the operator ends.
pub const CONNECTION_FORCED: &str = "amqp:connection:forced";
/// A frame that breaks the framing.
pub const FRAMING_ERROR: &str = "amqp:connection:framing-error";
/// A window that was overrun.
pub const WINDOW_VIOLATION: &str = "amqp:session:window-violation";
/// A link handle that is in use.
pub const HANDLE_IN_USE: &str = "amqp:session:handle-in-use";
/// A link handle without a link.
pub const UNATTACHED_HANDLE: &str = "amqp:session:unattached-handle";
/// A link that the operator ends.
pub const DETACH_FORCED: &str = "amqp:link:detach-forced";
/// More deliveries than there was credit for.
pub const TRANSFER_LIMIT_EXCEEDED: &str = "amqp:link:transfer-limit-exceeded";
/// A message that is larger than the link takes.
pub const MESSAGE_SIZE_EXCEEDED: &str = "amqp:link:message-size-exceeded";
/// A link that another connection has taken over.
pub const STOLEN: &str = "amqp:link:stolen";
/// Hono's: a message that breaks a rule.
pub const BAD_REQUEST: &str = "hono:bad-request";
