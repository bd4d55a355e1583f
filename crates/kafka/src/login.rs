//! Who a connection speaks for: SASL with the mechanism PLAIN.
//!
//! ```text
//!   SaslHandshake(PLAIN) ─► SaslAuthenticate(name, password) ─► a principal: its tenant, its roles
//! ```
//!
//! Where logins are asked for, nothing else is served before; where none are, everybody is an application of the tenant
//! `default`.

use std::fmt;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use kafka_protocol::protocol::StrBytes;
use millstream_types::Principal;

use crate::caller::Caller;

/// The only mechanism.
const PLAIN: &str = "PLAIN";

/// Knows users by their passwords.
pub trait Logins: Send + Sync + 'static {
    /// The user of that name, if the password is right.
    fn log_in(&self, name: &str, password: &str) -> Option<Arc<Principal>>;
}

impl fmt::Debug for dyn Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Logins")
    }
}

/// SaslHandshake. Clients on librdkafka 2.0 log in only where version 0 is offered, and use version 1 all the same; behind a
/// handshake of version 0 credentials would come without any request around them, which is not served.
pub(crate) fn handshake(request: &SaslHandshakeRequest, caller: &Caller) -> SaslHandshakeResponse {
    let response = SaslHandshakeResponse::default().with_mechanisms(vec![StrBytes::from_static_str(PLAIN)]);
    let error = if caller.node.logins.is_none() {
        ResponseError::IllegalSaslState
    } else if caller.version == 0 {
        ResponseError::UnsupportedVersion
    } else if request.mechanism.as_str() != PLAIN {
        ResponseError::UnsupportedSaslMechanism
    } else {
        caller.connection.shake_hands();
        return response;
    };
    response.with_error_code(error.code())
}

/// SaslAuthenticate.
pub(crate) fn authenticate(request: &SaslAuthenticateRequest, caller: &Caller) -> SaslAuthenticateResponse {
    let refuse = |error: ResponseError, why: &str| {
        SaslAuthenticateResponse::default()
            .with_error_code(error.code())
            .with_error_message(Some(StrBytes::from_string(why.to_owned())))
    };
    let Some(logins) = caller.node.logins.as_ref().filter(|_| caller.connection.has_shaken_hands()) else {
        return refuse(ResponseError::IllegalSaslState, "SaslHandshake with the mechanism PLAIN comes first");
    };
    let Some((name, password)) = name_and_password(&request.auth_bytes) else {
        let why = "the mechanism PLAIN takes a name and a password; the name to act under, if given, is the same name";
        return refuse(ResponseError::SaslAuthenticationFailed, why);
    };
    match logins.log_in(name, password) {
        Some(principal) => {
            caller.connection.log_in(principal, &caller.node);
            SaslAuthenticateResponse::default()
        }
        None => {
            tracing::warn!(peer = %caller.connection.peer, user = name, "kafka: a login was refused");
            refuse(ResponseError::SaslAuthenticationFailed, "no API token has this name and this secret")
        }
    }
}

/// Of `[name to act under] NUL name NUL password` (RFC 4616).
fn name_and_password(message: &[u8]) -> Option<(&str, &str)> {
    let mut parts = std::str::from_utf8(message).ok()?.split('\0');
    let (acting, name, password) = (parts.next()?, parts.next()?, parts.next()?);
    (parts.next().is_none() && (acting.is_empty() || acting == name)).then_some((name, password))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_message_is_a_name_and_a_password_and_nothing_else() {
        assert_eq!(name_and_password(b"\0ops\0secret"), Some(("ops", "secret")));
        assert_eq!(name_and_password(b"ops\0ops\0secret"), Some(("ops", "secret")));
        for bad in [&b"ops\0secret"[..], b"other\0ops\0secret", b"\0ops\0secret\0more", b"\0\xff\0secret", b""] {
            assert_eq!(name_and_password(bad), None, "{bad:?}");
        }
    }
}
