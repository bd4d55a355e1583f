//! Logins by user name and password: the credential, the check on this thread or on another, and the refusal.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use millstream_http::{Full, Problem, Reason};
use millstream_net::LoginSource;
use millstream_types::{ErrorCode, TenantId};

use super::{CHALLENGE, DeviceLogins, LoginParts, NewLogin, split_scheme, tenant_of};
use crate::credential_cache::{CachedLogin, Fingerprint};
use crate::password::PasswordHash;
use crate::registry::{Credential, CredentialType, Login};

/// User name and password of a device.
#[derive(Clone)]
pub(super) struct Basic {
    tenant: TenantId,
    auth_id: String,
    password: Vec<u8>,
}

/// A login whose password is not checked yet.
pub(super) struct Attempt {
    pub(super) given: Basic,
    source: LoginSource,
    fingerprint: Fingerprint,
    pub(super) login: Login,
}

/// Secrets with their index in the credential.
pub(super) type Secrets<'a> = Box<dyn Iterator<Item = usize> + 'a>;

impl Credential {
    pub(super) fn fast(&self) -> Secrets<'_> {
        Box::new((0..self.secrets.len()).filter(|at| self.is_slow(*at) == Some(false)))
    }

    pub(super) fn slow(&self) -> Secrets<'_> {
        Box::new((0..self.secrets.len()).filter(|at| self.is_slow(*at) == Some(true)))
    }

    /// True if the hash of the password takes long; `None` if the secret has no password.
    fn is_slow(&self, at: usize) -> Option<bool> {
        self.secrets[at].material.password().map(PasswordHash::is_slow)
    }
}

impl DeviceLogins {
    pub(super) async fn check_slowly(&self, attempt: Attempt) -> Result<Arc<CachedLogin>, Problem> {
        let parts = self.0.clone();
        let (given, source) = (attempt.given.clone(), attempt.source);
        let verdict =
            self.0.workers.submit(Some(&given.tenant), move || parts.check(&attempt, Credential::slow)).map_err(
                |full| {
                    self.0.attempts.count(Some(&given.tenant), "unavailable");
                    overloaded(full)
                },
            )?;
        match verdict.await {
            Ok(Some(verified)) => Ok(verified),
            Ok(None) => Err(self.0.refused(&given, source)),
            Err(_) => Err(Problem::internal("the threads that check logins have ended")),
        }
    }
}

impl LoginParts {
    /// Finds the credential for a new login, unless too many by its name from its address have failed.
    pub(super) fn attempt(
        &self,
        read: impl FnOnce() -> Result<Basic, Problem>,
        fingerprint: Fingerprint,
        source: LoginSource,
    ) -> Result<Attempt, Problem> {
        let given = read().map_err(|problem| self.unreadable(problem, source))?;
        self.throttle.check_name(source, &given.user())?;
        self.find(given, fingerprint, source).map_err(|given| self.refused(&given, source))
    }

    /// Counts a login that names nobody.
    fn unreadable(&self, problem: Problem, source: LoginSource) -> Problem {
        if let Err(throttled) = self.throttle.check(source) {
            return throttled.into();
        }
        self.throttle.fail(source);
        problem
    }

    /// See [`LoginParts::attempt`]; an unknown login is not counted as a failure.
    fn find(&self, given: Basic, fingerprint: Fingerprint, source: LoginSource) -> Result<Attempt, Basic> {
        let snapshot = self.registry.snapshot(&given.tenant);
        let known = snapshot.state.tenant(&given.tenant);
        let login = known.and_then(|known| known.login(CredentialType::HashedPassword, &given.auth_id));
        match login.filter(|login| login.credential.enabled) {
            Some(login) => Ok(Attempt { source, fingerprint, login: login.clone(), given }),
            None => Err(given),
        }
    }

    /// Checks the password against the given secrets and caches a correct login.
    pub(super) fn check(&self, attempt: &Attempt, secrets: fn(&Credential) -> Secrets<'_>) -> Option<Arc<CachedLogin>> {
        // The same login may have been checked while this one waited.
        if let Some(verified) = self.remembered(&attempt.fingerprint) {
            return Some(verified);
        }
        let (now_ms, credential) = (self.wall.now_ms(), &attempt.login.credential);
        let is_right = |at: &usize| {
            let secret = &credential.secrets[*at];
            let password = secret.material.password();
            secret.is_valid_at(now_ms) && password.is_some_and(|hash| hash.matches(&attempt.given.password))
        };
        let secret = secrets(credential).find(is_right)?;
        let found = NewLogin { login: attempt.login.clone(), secret, anchor: None, proof_ends_ms: i64::MAX };
        self.enter(&attempt.given.tenant, found, attempt.fingerprint)
    }

    /// Counts a failed login and makes its problem.
    pub(super) fn refused(&self, given: &Basic, source: LoginSource) -> Problem {
        self.throttle.fail_name(source, &given.user());
        let is_known = self.registry.snapshot(&given.tenant).state.tenant(&given.tenant).is_some();
        self.attempts.count(is_known.then_some(&given.tenant), "unauthorized");
        wrong(&given.user())
    }
}

impl Basic {
    /// Reads the header's value (RFC 7617).
    pub(super) fn parse(header: &[u8]) -> Result<Self, Problem> {
        let text = split_scheme(header, b"basic ").and_then(|token| BASE64.decode(token).ok());
        let Some((user, password)) = text.as_deref().and_then(split_password) else {
            return Err(Problem::unauthenticated(
                CHALLENGE,
                "the Authorization header is neither HTTP Basic nor Bearer",
            )
            .value(String::from_utf8_lossy(header.split(|byte| *byte == b' ').next().unwrap_or_default()))
            .rule("Basic, then base64 of auth-id@tenant:password; or Bearer, then a JSON Web Token")
            .remedy("send that header"));
        };
        Self::of(user, password)
    }

    pub(super) fn of(user: &str, password: &[u8]) -> Result<Self, Problem> {
        let auth_id = user.rsplit_once('@').map_or(user, |(auth_id, _)| auth_id);
        let tenant = tenant_of(user).map_err(|_| wrong(user))?;
        Ok(Self { tenant, auth_id: auth_id.to_owned(), password: password.to_owned() })
    }

    fn user(&self) -> String {
        format!("{}@{}", self.auth_id, self.tenant)
    }
}

fn split_password(text: &[u8]) -> Option<(&str, &[u8])> {
    let colon = text.iter().position(|byte| *byte == b':')?;
    Some((std::str::from_utf8(&text[..colon]).ok()?, &text[colon + 1..]))
}

/// All reasons give the same text, so that an attacker learns nothing from it.
fn wrong(user: &str) -> Problem {
    Problem::unauthenticated(CHALLENGE, "tenant, auth-id and password do not fit")
        .value(user)
        .rule("auth-id@tenant names an enabled credential of a device, with a secret that is valid now")
        .remedy("check user name and password, or the device's credentials in the registry")
}

fn overloaded(full: Full) -> Problem {
    Problem::new(Reason::Code(ErrorCode::Overloaded), "overloaded: too many logins wait to be checked")
        .value(full.waiting)
        .rule(format!(
            "connect.logins_max_waiting = {}, of which a tenant takes no more than it leaves free",
            full.limit
        ))
        .remedy("try again later")
}
