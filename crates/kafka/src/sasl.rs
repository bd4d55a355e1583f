//! SaslHandshake and SaslAuthenticate with the mechanisms PLAIN, OAUTHBEARER, SCRAM-SHA-256 and SCRAM-SHA-512.
//!
//! ```text
//!   SaslHandshake(PLAIN) ─► SaslAuthenticate(name, password) ─► a principal: its tenant, its roles
//!   SaslHandshake(OAUTHBEARER) ─► SaslAuthenticate(token) ─► the same
//!   SaslHandshake(SCRAM) ─► SaslAuthenticate(name, nonce) ─► SaslAuthenticate(proof) ─► the same
//! ```
//!
//! A login may be repeated over its connection, by the same user; one whose lifetime has passed must be (KIP-368).
//!
//! A listener with logins serves nothing else before them. Without logins every client is an application of the tenant
//! `default` that may act in all tenants, as over HTTP.

use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use kafka_protocol::protocol::StrBytes;
use millstream_net::{
    ClientFirst, Login, LoginProtocol, LoginSource, Logins, RefusedLogin, ScramExchange, ScramMechanism,
    bearer_message, plain_message,
};

use crate::request_context::RequestContext;
use crate::sasl_state::{SaslState, mechanisms};

/// The delay of a failed login: Kafka's default of `connection.failed.authentication.delay.ms`.
const FAILED_LOGIN_DELAY: Duration = Duration::from_millis(100);
const UNKNOWN: &str = "no API token has this name and this secret";

/// SaslHandshake. Clients on librdkafka 2.0 log in only if version 0 is offered, and use version 1 all the same. After a
/// handshake of version 0 the credentials would arrive without a request header, which is not supported.
pub(crate) fn handshake(request: &SaslHandshakeRequest, context: &RequestContext) -> SaslHandshakeResponse {
    let response =
        SaslHandshakeResponse::default().with_mechanisms(mechanisms().map(StrBytes::from_static_str).collect());
    let error = if !context.broker.requires_logins() {
        ResponseError::IllegalSaslState
    } else if context.version == 0 {
        ResponseError::UnsupportedVersion
    } else {
        match SaslState::named(&request.mechanism) {
            Some(begun) => {
                *context.connection.sasl.lock() = begun;
                return response;
            }
            None => ResponseError::UnsupportedSaslMechanism,
        }
    };
    response.with_error_code(error.code())
}

async fn authenticate(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse {
    let context = &context;
    let state = std::mem::take(&mut *context.connection.sasl.lock());
    let Some(logins) = context.broker.logins.as_deref() else {
        return refusal(ResponseError::IllegalSaslState, "this listener takes no logins".to_owned());
    };
    match state {
        SaslState::Initial => {
            let known: Vec<_> = mechanisms().collect();
            let why = format!("SaslHandshake with one of the mechanisms {} comes first", known.join(", "));
            refusal(ResponseError::IllegalSaslState, why)
        }
        SaslState::Plain => plain(&request.auth_bytes, context, logins).await,
        SaslState::OAuthBearer => oauth_bearer(&request.auth_bytes, context, logins).await,
        SaslState::Scram(mechanism) => scram_first(mechanism, &request.auth_bytes, context, logins),
        SaslState::ScramProof(exchange, login) => scram_proof(*exchange, login, &request.auth_bytes, context),
    }
}

async fn plain(message: &[u8], context: &RequestContext, logins: &dyn Logins) -> SaslAuthenticateResponse {
    let Some((name, password)) = plain_message(message) else {
        let why = "the mechanism PLAIN takes a name and a password; the name to act under, if given, is the same name";
        return failed(context, why);
    };
    log_in(Some(name), password, context, logins).await
}

async fn oauth_bearer(message: &[u8], context: &RequestContext, logins: &dyn Logins) -> SaslAuthenticateResponse {
    match bearer_message(message) {
        Some(token) => log_in(None, token, context, logins).await,
        None => failed(context, "the mechanism OAUTHBEARER takes n,, and auth=Bearer TOKEN (RFC 7628)"),
    }
}

/// Logs in with a password, or with a token alone.
async fn log_in(
    name: Option<&str>,
    secret: &str,
    context: &RequestContext,
    logins: &dyn Logins,
) -> SaslAuthenticateResponse {
    match logins.log_in(name, secret).await {
        Ok(login) => admitted(context, login, SaslAuthenticateResponse::default()),
        Err(RefusedLogin::Unknown) => unknown(context, name.unwrap_or_default()),
        Err(RefusedLogin::Wrong(why)) => {
            let user = name.unwrap_or_default();
            tracing::debug!(peer = %context.connection.peer, user, %why, "kafka: a login was refused");
            failed(context, &why)
        }
        Err(RefusedLogin::Unchecked(why)) => {
            context.connection.refuse();
            refusal(ResponseError::SaslAuthenticationFailed, why)
        }
    }
}

fn scram_first(
    mechanism: ScramMechanism,
    message: &[u8],
    context: &RequestContext,
    logins: &dyn Logins,
) -> SaslAuthenticateResponse {
    let Some(first) = ClientFirst::parse(message) else {
        return failed(context, "SCRAM begins with n,,n=NAME,r=NONCE; channel binding is not supported");
    };
    // As in Kafka, an unknown name is told at once.
    let Some((credential, login)) = logins.scram(&first.name, mechanism) else { return unknown(context, &first.name) };
    let (exchange, answer) = ScramExchange::begin(mechanism, &first, credential);
    *context.connection.sasl.lock() = SaslState::ScramProof(Box::new(exchange), login);
    SaslAuthenticateResponse::default().with_auth_bytes(answer.into_bytes().into())
}

fn scram_proof(
    exchange: ScramExchange,
    login: Login,
    message: &[u8],
    context: &RequestContext,
) -> SaslAuthenticateResponse {
    let name = login.principal.name.clone();
    match exchange.finish(message) {
        Some(answer) => {
            let answer = answer.into_bytes().into();
            admitted(context, login, SaslAuthenticateResponse::default().with_auth_bytes(answer))
        }
        None => unknown(context, &name),
    }
}

/// The answer to a login that is right, if the listener has room for its connection.
fn admitted(context: &RequestContext, login: Login, answer: SaslAuthenticateResponse) -> SaslAuthenticateResponse {
    if let Some(user) = context.connection.other_user(&login.principal) {
        let why = format!(
            "the connection is that of user '{user}', and '{}' cannot log in over it; open another one",
            login.principal.name
        );
        context.connection.refuse();
        return refusal(ResponseError::SaslAuthenticationFailed, why);
    }
    let max_ms = context.broker.config.connections_max_reauth_ms;
    let lifetime_ms = session_lifetime_ms(max_ms, login.expires_ms, context.broker.transactions.now_ms());
    match context.connection.log_in(login, &context.broker, lifetime_ms.map(Duration::from_millis)) {
        // Not sent before version 1.
        Ok(()) if context.version >= 1 => {
            let told_ms = lifetime_ms.map_or(0, |lifetime_ms| i64::try_from(lifetime_ms).unwrap_or(i64::MAX));
            answer.with_session_lifetime_ms(told_ms)
        }
        Ok(()) => answer,
        Err(full) => refusal(ResponseError::SaslAuthenticationFailed, full.to_string()),
    }
}

/// The time for which a login lasts: the shorter of the setting, where 0 is no limit, and of the time that is left to its credentials.
fn session_lifetime_ms(max_ms: u64, expires_ms: Option<i64>, now_ms: i64) -> Option<u64> {
    let left_ms = expires_ms.map(|expires_ms| u64::try_from(expires_ms.saturating_sub(now_ms)).unwrap_or(0).max(1));
    let max_ms = Some(max_ms).filter(|max_ms| *max_ms > 0);
    max_ms.into_iter().chain(left_ms).min()
}

fn unknown(context: &RequestContext, name: &str) -> SaslAuthenticateResponse {
    tracing::debug!(peer = %context.connection.peer, user = name, "kafka: a login was refused");
    failed(context, UNKNOWN)
}

/// Refuses a login, counts it, and lets its connection be closed. A client that has failed too often is
/// told so instead of `why`.
fn failed(context: &RequestContext, why: &str) -> SaslAuthenticateResponse {
    context.connection.refuse();
    let throttle = &context.broker.throttle;
    let source = LoginSource { address: context.connection.peer.ip(), protocol: LoginProtocol::Kafka };
    let why = match throttle.check(source) {
        Ok(()) => {
            throttle.fail(source);
            why.to_owned()
        }
        Err(throttled) => throttled.to_string(),
    };
    refusal(ResponseError::SaslAuthenticationFailed, why)
}

fn refusal(error: ResponseError, why: String) -> SaslAuthenticateResponse {
    let message = Some(StrBytes::from_string(why));
    SaslAuthenticateResponse::default().with_error_code(error.code()).with_error_message(message)
}

/// Answers SaslAuthenticate, a failed login with a delay, so that a client that retries at once does so less often.
pub(crate) async fn answer(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse {
    let answer = authenticate(request, context).await;
    if answer.error_code == ResponseError::SaslAuthenticationFailed.code() {
        tokio::time::sleep(FAILED_LOGIN_DELAY).await;
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_lasts_as_long_as_the_setting_or_its_credentials() {
        for (max_ms, expires_ms, expected) in [
            (0, None, None),
            (5_000, None, Some(5_000)),
            (0, Some(10_700), Some(700)),
            (5_000, Some(10_700), Some(700)),
            (500, Some(10_700), Some(500)),
            // Expired meanwhile: 0 would mean for ever.
            (0, Some(9_000), Some(1)),
            (0, Some(i64::MIN), Some(1)),
        ] {
            assert_eq!(session_lifetime_ms(max_ms, expires_ms, 10_000), expected, "{max_ms}, {expires_ms:?}");
        }
    }
}
