//! API tokens: bearer secrets, each with a tenant and roles, from the configuration or made while the server runs.
//!
//! Only SHA-256 hashes are kept. A presented token is hashed and compared with every configured entry in constant time, so
//! neither the response time nor a memory dump reveals a token. A slow hash would add nothing: secrets that the server
//! makes are random numbers of 256 bits, which nobody guesses however fast the hash is.

mod issued;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use millstream_net::{LoginProtocol, LoginSource, LoginThrottle, RefusedLogin};
use millstream_net::{Revocation, Revoker};
use millstream_types::{AccessScope, ErrorCode, Principal, Role, Roles, SystemClock, TenantId, WallClock};
use parking_lot::RwLock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use self::issued::IssuedTokens;
pub use self::issued::{IssuedToken, IssuedVerdict, TokenCheck, TokenIssuer};
use crate::{Authenticator, Claim, Error, Identity, LoopbackApplications, Problem, Reach, Reason, Verdict};

/// Shortest secret; a shorter one could be guessed.
pub const TOKEN_MIN_CHARS: usize = 16;
/// The value of [`ApiToken::tenant`] that means all tenants.
pub const EVERY_TENANT: &str = "*";

const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"millstream\"");
const WRONG_TOKEN: HeaderValue = HeaderValue::from_static("Bearer realm=\"millstream\", error=\"invalid_token\"");

/// One API token, as it is configured.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiToken {
    /// The caller's name in logs.
    pub name: String,
    /// The secret that the caller sends as `Authorization: Bearer <token>`; at least 16 characters.
    pub token: String,
    /// The tenant it is good for, or `*` for all. Default `default`.
    #[serde(default = "default_tenant")]
    pub tenant: String,
    /// The caller's roles in that tenant: `reader`, `writer`, `admin`.
    pub roles: Vec<RoleName>,
}

fn default_tenant() -> String {
    TenantId::DEFAULT.to_owned()
}

impl fmt::Debug for ApiToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiToken({} in {}, {:?})", self.name, self.tenant, self.roles)
    }
}

/// A role of an application, as written in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RoleName {
    /// `reader`: [`Role::Reader`], for entities, streams and queries.
    Reader,
    /// `writer`: [`Role::Writer`], for entities, records and commands.
    Writer,
    /// `admin`: [`Role::Admin`], for tenants, devices, credentials, topics and jobs.
    Admin,
}

impl RoleName {
    /// All roles of applications, in the order of the enum.
    pub const ALL: [Self; 3] = [Self::Reader, Self::Writer, Self::Admin];
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::Reader => Self::Reader,
            RoleName::Writer => Self::Writer,
            RoleName::Admin => Self::Admin,
        }
    }
}

/// A token that was made while the server ran.
#[derive(Debug, Clone)]
pub struct RegisteredToken {
    /// The caller's name, which no other token has.
    pub name: String,
    /// SHA-256 of the secret, by which it is found.
    pub hash: [u8; 32],
    /// The tenant it is good for; `None` for all.
    pub tenant: Option<TenantId>,
    /// The caller's roles in that tenant.
    pub roles: Vec<RoleName>,
    /// The part of the tenant for which it is good.
    pub scope: AccessScope,
    /// Wall time from which on it is refused, milliseconds since 1970-01-01T00:00:00Z.
    pub expires_ms: Option<i64>,
}

/// Authenticates callers by their API tokens: those of the configuration, which never change, and registered ones, which are
/// added and removed while the server runs. Beside them it takes the tokens of an identity provider, if there is one.
///
/// Without any token the callers are [`LoopbackApplications`]. From the first token on, until the process ends, a token
/// is required, even if it is removed again: nobody opens a server by removing its tokens.
pub struct ApiTokens {
    configured: Vec<TokenEntry>,
    /// By the hash of the secret. The map's own hashes are seeded at random, so a lookup's time tells nothing.
    registered: RwLock<HashMap<[u8; 32], TokenEntry>>,
    issued: Option<IssuedTokens>,
    are_required: AtomicBool,
    without: LoopbackApplications,
    /// Ends what callers without a token have begun.
    open: (Revoker, Revocation),
    throttle: Arc<LoginThrottle>,
    wall: Arc<dyn WallClock>,
}

impl fmt::Debug for ApiTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiTokens({:?}, {} registered)", self.configured, self.registered.read().len())
    }
}

struct TokenEntry {
    hash: [u8; 32],
    identity: Identity,
    /// Ends the logins with the token when it is dropped; `None` for a token of the configuration.
    revoker: Option<Revoker>,
}

impl fmt::Debug for TokenEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.identity.fmt(f)
    }
}

impl ApiTokens {
    /// Checks and hashes the configured tokens.
    ///
    /// # Errors
    /// [`Error::InvalidToken`] for a secret that is too short or given twice, an illegal tenant, or no role.
    pub fn new(tokens: &[ApiToken]) -> Result<Self, Error> {
        let mut configured: Vec<TokenEntry> = Vec::with_capacity(tokens.len());
        for token in tokens {
            let entry = TokenEntry::configured(token)?;
            if let Some(twin) = configured.iter().find(|other| other.hash == entry.hash) {
                let rule = format!("has the same secret as '{}'; give each its own", twin.name());
                return Err(Error::InvalidToken { name: token.name.clone(), rule });
            }
            configured.push(entry);
        }
        let open = Revoker::default();
        let revocation = open.revocation();
        Ok(Self {
            are_required: AtomicBool::new(!configured.is_empty()),
            configured,
            registered: RwLock::default(),
            issued: None,
            without: LoopbackApplications::default(),
            open: (open, revocation),
            throttle: Arc::default(),
            wall: Arc::new(SystemClock::default()),
        })
    }

    /// Limits requests with a wrong token by `throttle`; without it there is no limit. A
    /// right token is always accepted.
    #[must_use]
    pub fn throttled_by(self, throttle: Arc<LoginThrottle>) -> Self {
        Self { throttle, ..self }
    }

    /// Takes the time at which tokens expire from `wall`.
    #[must_use]
    pub fn timed_by(self, wall: Arc<dyn WallClock>) -> Self {
        Self { wall, ..self }
    }

    /// Accepts tokens of this issuer, too. Every caller needs a token then.
    #[must_use]
    pub fn issued_by(self, issuer: Arc<dyn TokenIssuer>) -> Self {
        Self { issued: Some(IssuedTokens::of(issuer)), are_required: AtomicBool::new(true), ..self }
    }

    /// Accepts callers of `without` while there has been no token.
    #[must_use]
    pub fn or_else(self, without: LoopbackApplications) -> Self {
        Self { without, ..self }
    }

    /// `true` once there has been a token, or if there is an issuer of tokens: then every caller needs one.
    pub fn are_required(&self) -> bool {
        self.are_required.load(Ordering::Acquire)
    }

    /// The signal that callers without a token must end; `None` once every caller needs a token.
    pub fn open_access(&self) -> Option<Revocation> {
        (!self.are_required()).then(|| self.open.1.clone())
    }

    /// `true` if the configuration has a token of this name.
    pub fn is_configured(&self, name: &str) -> bool {
        self.configured.iter().any(|entry| entry.name() == name)
    }

    /// Accepts a registered token from now on.
    pub fn add(&self, token: RegisteredToken) {
        let entry = TokenEntry::registered(token);
        self.registered.write().insert(entry.hash, entry);
        self.are_required.store(true, Ordering::Release);
        self.open.0.revoke();
    }

    /// Refuses a registered token from now on, and ends the logins that use it.
    pub fn remove(&self, hash: &[u8; 32]) {
        drop(self.registered.write().remove(hash));
    }

    /// Ends the logins whose tokens have expired.
    pub fn end_expired(&self) {
        let now_ms = self.wall.now_ms();
        for entry in self.registered.read().values().filter(|entry| !entry.is_valid(now_ms)) {
            if let Some(revoker) = &entry.revoker {
                revoker.revoke();
            }
        }
        if let Some(issued) = &self.issued {
            issued.end_expired(now_ms);
        }
    }

    /// Returns the holder of the token with this secret, in the token's own tenant (`default` for a token of all
    /// tenants). For protocols in which clients log in with name and password: an API token has the name, if one is
    /// given; a token of an issuer says itself who its holder is.
    ///
    /// # Errors
    /// [`RefusedLogin`] says whether the secret is wrong or could not be checked.
    pub async fn log_in(&self, name: Option<&str>, secret: &str) -> Result<Identity, RefusedLogin> {
        let hash = Sha256::digest(secret).into();
        if let Some(holder) = self.holder_of_hash(&hash) {
            let is_named = name.is_none_or(|name| holder.principal.name == name);
            return if is_named { Ok(holder) } else { Err(RefusedLogin::Unknown) };
        }
        let Some(issued) = &self.issued else { return Err(RefusedLogin::Unknown) };
        if let Some(holder) = issued.holder(&hash, self.wall.now_ms()) {
            return Ok(holder);
        }
        let verdict = match issued.check(secret) {
            None => return Err(RefusedLogin::Unknown),
            Some(TokenCheck::Now(verdict)) => verdict,
            Some(TokenCheck::Later(verdict)) => verdict.await,
        };
        self.admit(hash, verdict).map_err(|problem| match is_wrong(&problem) {
            true => RefusedLogin::Wrong(problem.text()),
            false => RefusedLogin::Unchecked(problem.text()),
        })
    }

    /// Returns the holder of the token with the hash of its secret, for a caller that proves the secret in another way.
    pub fn holder_of_hash(&self, hash: &[u8; 32]) -> Option<Identity> {
        // All entries are compared, even after a match.
        let configured = self.configured.iter().fold(None, |found, entry| match same(&entry.hash, hash) {
            true => Some(entry.identity.clone()),
            false => found,
        });
        configured.or_else(|| {
            let registered = self.registered.read();
            let entry = registered.get(hash).filter(|entry| entry.is_valid(self.wall.now_ms()));
            entry.map(|entry| entry.identity.clone())
        })
    }

    /// Remembers the token of this hash if the verdict is good. Returns its holder.
    fn admit(&self, hash: [u8; 32], verdict: IssuedVerdict) -> Result<Identity, Problem> {
        let token = verdict?;
        let holder = self.issued.as_ref().and_then(|issued| issued.add(hash, token));
        holder.ok_or_else(|| {
            Problem::new(Reason::Code(ErrorCode::Overloaded), "too many tokens of the identity provider are in use")
                .remedy("try again when connections have ended")
        })
    }

    fn identify<'a>(&'a self, claim: Claim<'a>) -> Verdict<'a> {
        let secret = match self.secret(&claim) {
            Ok(secret) => secret,
            Err(problem) => return Verdict::Now(Err(problem)),
        };
        let hash = Sha256::digest(secret).into();
        let known = self.holder_of_hash(&hash);
        let issued = || self.issued.as_ref()?.holder(&hash, self.wall.now_ms());
        if let Some(identity) = known.or_else(issued) {
            return Verdict::Now(claim.tenant().and_then(|tenant| in_tenant(identity, tenant)));
        }
        let text = std::str::from_utf8(secret).ok();
        match text.zip(self.issued.as_ref()).and_then(|(text, issued)| issued.check(text)) {
            None => Verdict::Now(Err(self.unknown(&claim))),
            Some(TokenCheck::Now(verdict)) => Verdict::Now(self.conclude(&claim, hash, verdict)),
            Some(TokenCheck::Later(verdict)) => {
                Verdict::Later(Box::pin(async move { self.conclude(&claim, hash, verdict.await) }))
            }
        }
    }

    /// The outcome of a request with a token of the issuer.
    fn conclude(&self, claim: &Claim<'_>, hash: [u8; 32], verdict: IssuedVerdict) -> Result<Identity, Problem> {
        match self.admit(hash, verdict) {
            Ok(identity) => in_tenant(identity, claim.tenant()?),
            Err(problem) => {
                if is_wrong(&problem) {
                    self.count_failure(claim)?;
                }
                let is_challenged = problem.status() == StatusCode::UNAUTHORIZED;
                Err(if is_challenged { problem.header(WWW_AUTHENTICATE, WRONG_TOKEN) } else { problem })
            }
        }
    }

    /// The refusal of a secret that is no token's.
    fn unknown(&self, claim: &Claim<'_>) -> Problem {
        if let Err(throttled) = self.count_failure(claim) {
            return throttled;
        }
        Problem::unauthenticated(WRONG_TOKEN, "the API token is not known, was revoked or has expired")
            .rule("only tokens of the configuration and those that 'POST /api/tokens' made are taken")
            .remedy("check the token, or have an admin make a new one")
    }

    /// The secret in the request's header.
    fn secret<'a>(&self, claim: &Claim<'a>) -> Result<&'a [u8], Problem> {
        let Some(header) = claim.headers.get(AUTHORIZATION.as_str()) else {
            return Err(Problem::unauthenticated(CHALLENGE, "this listener wants an API token")
                .rule("each request carries Authorization: Bearer <token>")
                .remedy("send the secret of an API token"));
        };
        if let Some(secret) = bearer(header) {
            return Ok(secret);
        }
        self.count_failure(claim)?;
        Err(Problem::unauthenticated(CHALLENGE, "the Authorization header is not a bearer token")
            .rule("Authorization: Bearer <token>")
            .remedy("send the secret of an API token"))
    }

    fn count_failure(&self, claim: &Claim<'_>) -> Result<(), Problem> {
        let source = LoginSource { address: claim.peer.ip(), protocol: LoginProtocol::Http };
        self.throttle.check(source)?;
        self.throttle.fail(source);
        Ok(())
    }
}

impl TokenEntry {
    fn configured(token: &ApiToken) -> Result<Self, Error> {
        let refuse = |rule: String| Err(Error::InvalidToken { name: token.name.clone(), rule });
        if token.token.chars().count() < TOKEN_MIN_CHARS {
            return refuse(format!("is shorter than {TOKEN_MIN_CHARS} characters; choose a longer one"));
        }
        if token.roles.is_empty() {
            return refuse("has no role; give it one or more of reader, writer, admin".to_owned());
        }
        let tenant = match &*token.tenant {
            EVERY_TENANT => None,
            tenant => match TenantId::new(tenant) {
                Ok(tenant) => Some(tenant),
                Err(error) => return refuse(error.to_string()),
            },
        };
        let hash = Sha256::digest(token.token.as_bytes()).into();
        let (name, roles, scope) = (token.name.clone(), token.roles.clone(), AccessScope::default());
        let token = RegisteredToken { name, hash, tenant, roles, scope, expires_ms: None };
        Ok(Self::new(token, None))
    }

    fn registered(token: RegisteredToken) -> Self {
        Self::new(token, Some(Revoker::default()))
    }

    fn new(token: RegisteredToken, revoker: Option<Revoker>) -> Self {
        let RegisteredToken { name, hash, tenant, roles, scope, expires_ms } = token;
        let reach = if tenant.is_some() { Reach::OneTenant } else { Reach::EveryTenant };
        let roles = roles.into_iter().fold(Roles::NONE, |roles, role| roles.with(role.into()));
        let principal = Arc::new(Principal { tenant: tenant.unwrap_or_default(), name, roles, scope });
        let revocation = revoker.as_ref().map(Revoker::revocation);
        Self { hash, identity: Identity { principal, reach, revocation, expires_ms }, revoker }
    }

    fn name(&self) -> &str {
        &self.identity.principal.name
    }

    /// `true` if somebody else holds the login.
    fn is_in_use(&self) -> bool {
        self.revoker.as_ref().is_some_and(|revoker| revoker.holders() > 1)
    }

    fn is_valid(&self, now_ms: i64) -> bool {
        self.identity.expires_ms.is_none_or(|expires_ms| now_ms < expires_ms)
    }
}

/// The caller in the requested tenant, or else in the token's own.
fn in_tenant(identity: Identity, wanted: Option<TenantId>) -> Result<Identity, Problem> {
    let own = &identity.principal;
    let Some(tenant) = wanted.filter(|tenant| *tenant != own.tenant) else { return Ok(identity) };
    match identity.reach {
        Reach::EveryTenant => {
            let principal = Principal { tenant, ..Principal::clone(own) };
            Ok(Identity { principal: Arc::new(principal), ..identity })
        }
        Reach::OneTenant => Err(Problem::forbidden(format!("token '{}' is not good for this tenant", own.name))
            .value(&tenant)
            .rule(format!("it is good for tenant '{}'", own.tenant))
            .remedy("name that tenant, or use a token of the requested tenant")),
    }
}

impl Authenticator for ApiTokens {
    fn authenticate<'a>(&'a self, claim: Claim<'a>) -> Verdict<'a> {
        match self.open_access() {
            None => self.identify(claim),
            Some(open) => {
                Verdict::Now(self.without.identify(&claim).map(|caller| Identity { revocation: Some(open), ..caller }))
            }
        }
    }

    fn open_remedy(&self) -> Option<&'static str> {
        if self.are_required() { None } else { self.without.open_remedy() }
    }
}

/// `true` if the token was checked and is no good, `false` if it could not be checked.
fn is_wrong(problem: &Problem) -> bool {
    problem.status().is_client_error()
}

fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, secret) = header.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| secret.trim_ascii()).filter(|secret| !secret.is_empty())
}

/// Compares in a time that does not depend on the position of the difference.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    std::hint::black_box(a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b))) == 0
}

#[cfg(test)]
mod tests {
    use millstream_types::ManualClock;

    use super::*;

    fn holder(tokens: &ApiTokens, name: Option<&str>, secret: &str) -> Option<Identity> {
        let login = tokens.log_in(name, secret);
        futures_util::FutureExt::now_or_never(login).expect("no issuer is asked").ok()
    }

    #[test]
    fn tokens_that_cannot_work_are_refused_without_telling_the_secret() {
        let good = ApiToken {
            name: "grafana".into(),
            token: "sixteen-chars-ok".into(),
            tenant: "acme".into(),
            roles: vec![RoleName::Reader],
        };
        assert!(ApiTokens::new(std::slice::from_ref(&good)).is_ok());
        let check = |tokens: &[ApiToken], rule: &str| {
            let refusal = ApiTokens::new(tokens).unwrap_err().to_string();
            assert!(refusal.contains("grafana") && refusal.contains(rule) && !refusal.contains("sixteen"), "{refusal}");
        };
        let tokens = ApiTokens::new(std::slice::from_ref(&good)).unwrap();
        assert_eq!(holder(&tokens, Some("grafana"), "sixteen-chars-ok").unwrap().principal.tenant.as_str(), "acme");
        assert!(holder(&tokens, Some("grafana"), "sixteen-chars-no").is_none());
        assert!(holder(&tokens, Some("other"), "sixteen-chars-ok").is_none());
        check(&[ApiToken { token: "sixteen".into(), ..good.clone() }], "16 characters");
        check(&[ApiToken { tenant: "a b".into(), ..good.clone() }], "not a tenant id");
        check(&[ApiToken { roles: vec![], ..good.clone() }], "no role");
        check(&[good.clone(), good.clone()], "same secret");
        assert!(!format!("{good:?}").contains("sixteen"));
    }

    #[test]
    fn a_registered_token_is_good_until_it_expires_or_is_removed_and_a_login_is_required_from_then_on() {
        let wall = Arc::new(ManualClock::at(0));
        let tokens = ApiTokens::new(&[]).unwrap().timed_by(wall.clone());
        assert!(!tokens.are_required() && tokens.open_remedy().is_some());
        let registered = |name: &str, expires_ms| RegisteredToken {
            name: name.to_owned(),
            hash: Sha256::digest(name).into(),
            tenant: None,
            roles: vec![RoleName::Admin],
            scope: AccessScope::default(),
            expires_ms,
        };
        tokens.add(registered("short", Some(1_000)));
        tokens.add(registered("long", None));
        assert!(tokens.are_required() && tokens.open_remedy().is_none());
        let ends = |name: &str| holder(&tokens, Some(name), name).unwrap().revocation.unwrap();
        let (short, long) = (ends("short"), ends("long"));
        tokens.end_expired();
        assert!(!short.is_revoked());
        wall.advance(std::time::Duration::from_secs(1));
        assert!(holder(&tokens, None, "short").is_none());
        tokens.end_expired();
        assert!(short.is_revoked() && !long.is_revoked());
        tokens.remove(&Sha256::digest("long").into());
        assert!(long.is_revoked() && holder(&tokens, None, "long").is_none() && tokens.are_required());
    }
}
