//! Checks device logins: `auth-id@tenant` and a password, sent by HTTP Basic with each request or once over MQTT.
//!
//! A cached login costs one registry look-up. A new login with a fast hash is checked on the calling thread. A slow
//! hash is checked on worker threads behind a bounded queue, so a storm of logins does not delay devices that are
//! already logged in.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::HeaderValue;
use axum::http::header::AUTHORIZATION;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use millstream_http::{Authenticator, Claim, Full, Identity, Metrics, Problem, Reach, Reason, Verdict, Workers};
use millstream_types::{
    ErrorCode, LoginProtocol, LoginSource, LoginThrottle, NameError, Principal, Role, Roles, TenantId, WallClock,
};

use crate::adapter::{HTTP_ADAPTER, UNAUTHENTICATED};
use crate::credential_cache::{CachedLogin, CredentialCache, Fingerprint};
use crate::registry::{Credential, Login, Registry, Secret, Version};
use crate::tenant_counter::TenantCounter;

const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"millstream\", charset=\"UTF-8\"");

/// Checks the logins of devices.
#[derive(Clone)]
pub(crate) struct DeviceLogins(Arc<LoginParts>);

struct LoginParts {
    registry: Registry,
    credential_cache: CredentialCache,
    workers: Workers,
    wall: Arc<dyn WallClock>,
    is_required: bool,
    attempts: TenantCounter,
    throttle: Arc<LoginThrottle>,
}

/// User name and password of a device.
#[derive(Clone)]
struct Basic {
    tenant: TenantId,
    auth_id: String,
    password: Vec<u8>,
}

/// A login whose password is not checked yet.
struct Attempt {
    given: Basic,
    source: LoginSource,
    fingerprint: Fingerprint,
    version: Version,
    born: Version,
    credential: Arc<Credential>,
    device: String,
}

impl DeviceLogins {
    pub(crate) fn new(
        registry: Registry,
        credential_cache: CredentialCache,
        workers: Workers,
        wall: Arc<dyn WallClock>,
        is_required: bool,
        attempts: TenantCounter,
        throttle: Arc<LoginThrottle>,
    ) -> Self {
        Self(Arc::new(LoginParts { registry, credential_cache, workers, wall, is_required, attempts, throttle }))
    }

    /// The counter of password checks, under Hono's name.
    pub(crate) fn attempts(metrics: &Metrics) -> TenantCounter {
        let help = "Logins that were checked; those that are remembered are not among them.";
        TenantCounter::new(metrics, "hono_authentication_attempts_total", help, "outcome", &[])
    }

    /// Number of logins that wait for a worker thread.
    pub(crate) fn waiting(&self) -> usize {
        self.0.workers.waiting()
    }

    pub(crate) fn cached(&self) -> usize {
        self.0.credential_cache.count()
    }

    pub(crate) fn stop(&self) {
        self.0.workers.stop();
    }

    /// Logs in an MQTT connection with user name and password. A throttled client gets a problem with status 429.
    pub(crate) async fn log_in(
        &self,
        user: &str,
        password: &[u8],
        address: IpAddr,
    ) -> Result<Arc<CachedLogin>, Problem> {
        // No HTTP header begins with this prefix, so a header never has the fingerprint of an MQTT login.
        let claim = [b"mqtt\0", &(user.len() as u64).to_be_bytes()[..], user.as_bytes(), password].concat();
        let fingerprint = self.0.credential_cache.fingerprint(&claim);
        if let Some(verified) = self.0.remembered(&fingerprint) {
            return Ok(verified);
        }
        let source = LoginSource { address, protocol: LoginProtocol::Mqtt };
        let attempt = self.0.attempt(|| Basic::of(user, password), fingerprint, source)?;
        if let Some(verified) = self.0.check(&attempt, Credential::fast) {
            return Ok(verified);
        }
        if attempt.credential.slow().next().is_none() {
            return Err(self.0.refused(&attempt.given, source));
        }
        self.check_slowly(attempt).await
    }

    /// Renews a cached login against the current registry; `None` if its secret was removed, changed or has expired.
    pub(crate) fn renewed(&self, verified: &Arc<CachedLogin>) -> Option<Arc<CachedLogin>> {
        self.0.renewed(verified)
    }

    async fn check_slowly(&self, attempt: Attempt) -> Result<Arc<CachedLogin>, Problem> {
        let parts = self.0.clone();
        let (given, source) = (attempt.given.clone(), attempt.source);
        let verdict = self.0.workers.submit(move || parts.check(&attempt, Credential::slow)).map_err(|full| {
            self.0.attempts.count(Some(&given.tenant), "unavailable");
            overloaded(full)
        })?;
        match verdict.await {
            Ok(Some(verified)) => Ok(verified),
            Ok(None) => Err(self.0.refused(&given, source)),
            Err(_) => Err(Problem::internal("the threads that check logins have ended")),
        }
    }
}

impl Authenticator for DeviceLogins {
    fn authenticate<'a>(&'a self, claim: Claim<'a>) -> Verdict<'a> {
        let Some(header) = claim.headers.get(AUTHORIZATION.as_str()) else {
            return Verdict::Now(self.0.without_login(&claim));
        };
        let fingerprint = self.0.credential_cache.fingerprint(header);
        if let Some(verified) = self.0.remembered(&fingerprint) {
            return Verdict::Now(Ok(verified.identity.clone()));
        }
        let source = LoginSource { address: claim.peer.ip(), protocol: LoginProtocol::Http };
        let attempt = match self.0.attempt(|| Basic::parse(header), fingerprint, source) {
            Ok(attempt) => attempt,
            Err(problem) => return Verdict::Now(Err(problem)),
        };
        if let Some(verified) = self.0.check(&attempt, Credential::fast) {
            return Verdict::Now(Ok(verified.identity.clone()));
        }
        if attempt.credential.slow().next().is_none() {
            return Verdict::Now(Err(self.0.refused(&attempt.given, source)));
        }
        Verdict::Later(Box::pin(async move {
            let verified = self.check_slowly(attempt).await?;
            Ok(verified.identity.clone())
        }))
    }

    fn open_remedy(&self) -> Option<&'static str> {
        (!self.0.is_required).then_some("set connect.http.authentication_required = true")
    }
}

/// Secrets with their index in the credential.
type Secrets<'a> = Box<dyn Iterator<Item = usize> + 'a>;

impl Credential {
    fn fast(&self) -> Secrets<'_> {
        Box::new((0..self.secrets.len()).filter(|at| !self.secrets[*at].password.is_slow()))
    }

    fn slow(&self) -> Secrets<'_> {
        Box::new((0..self.secrets.len()).filter(|at| self.secrets[*at].password.is_slow()))
    }
}

impl LoginParts {
    /// The cached login of this fingerprint, if its secret is still valid.
    fn remembered(&self, fingerprint: &Fingerprint) -> Option<Arc<CachedLogin>> {
        let known = self.credential_cache.get(fingerprint)?;
        if self.is_current(&known) {
            return Some(known);
        }
        let renewed = self.renewed(&known)?;
        self.credential_cache.insert(*fingerprint, renewed.clone());
        Some(renewed)
    }

    /// See [`DeviceLogins::renewed`]. An equal hash means the same secret, even if other members have changed.
    fn renewed(&self, verified: &Arc<CachedLogin>) -> Option<Arc<CachedLogin>> {
        if self.is_current(verified) {
            return Some(verified.clone());
        }
        let snapshot = self.registry.snapshot(&verified.tenant);
        let login = snapshot.state.tenant(&verified.tenant)?.login(verified.auth_id.as_str())?;
        let Login { version, born, credential, .. } = login;
        if !credential.enabled || *born != verified.born {
            return None;
        }
        let (old, now_ms) = (&verified.credential.secrets[verified.secret], self.wall.now_ms());
        let is_it = |secret: &Secret| secret.password == old.password && secret.is_valid_at(now_ms);
        let secret = credential.secrets.iter().position(is_it)?;
        Some(Arc::new(CachedLogin {
            tenant: verified.tenant.clone(),
            auth_id: verified.auth_id.clone(),
            version: *version,
            born: *born,
            credential: credential.clone(),
            secret,
            identity: verified.identity.clone(),
            seen_at: AtomicU64::new(snapshot.next.0),
        }))
    }

    /// True if the credentials have not changed since the check and the secret has not expired.
    fn is_current(&self, verified: &CachedLogin) -> bool {
        let snapshot = self.registry.snapshot(&verified.tenant);
        if verified.seen_at.load(Ordering::Relaxed) != snapshot.next.0 {
            let known = snapshot.state.tenant(&verified.tenant);
            let login = known.and_then(|known| known.login(verified.auth_id.as_str()));
            if login.is_none_or(|login| login.version != verified.version) {
                return false;
            }
            verified.seen_at.store(snapshot.next.0, Ordering::Relaxed);
        }
        verified.credential.secrets[verified.secret].is_valid_at(self.wall.now_ms())
    }

    /// Finds the credential for a new login, unless too many logins from its address have failed.
    fn attempt(
        &self,
        read: impl FnOnce() -> Result<Basic, Problem>,
        fingerprint: Fingerprint,
        source: LoginSource,
    ) -> Result<Attempt, Problem> {
        self.throttle.check(source)?;
        let given = read().inspect_err(|_| self.throttle.fail(source))?;
        self.find(given, fingerprint, source).map_err(|given| self.refused(&given, source))
    }

    /// See [`LoginParts::attempt`]; an unknown login is not counted as a failure.
    fn find(&self, given: Basic, fingerprint: Fingerprint, source: LoginSource) -> Result<Attempt, Basic> {
        let snapshot = self.registry.snapshot(&given.tenant);
        let known = snapshot.state.tenant(&given.tenant);
        let login = known.and_then(|known| known.login(&given.auth_id)).filter(|login| login.credential.enabled);
        let Some(login) = login else { return Err(given) };
        let (version, born, credential) = (login.version, login.born, login.credential.clone());
        let device = login.device.as_str().to_owned();
        Ok(Attempt { source, fingerprint, version, born, credential, device, given })
    }

    /// Checks the password against the given secrets and caches a correct login.
    fn check(&self, attempt: &Attempt, secrets: fn(&Credential) -> Secrets<'_>) -> Option<Arc<CachedLogin>> {
        // The same login may have been checked while this one waited.
        if let Some(verified) = self.remembered(&attempt.fingerprint) {
            return Some(verified);
        }
        let now_ms = self.wall.now_ms();
        let is_right = |at: &usize| {
            let secret = &attempt.credential.secrets[*at];
            secret.is_valid_at(now_ms) && secret.password.matches(&attempt.given.password)
        };
        let secret = secrets(&attempt.credential).find(is_right)?;
        let roles = Roles::NONE.with(Role::Device);
        let tenant = attempt.given.tenant.clone();
        let principal = Principal { tenant: tenant.clone(), name: attempt.device.clone(), roles };
        let verified = Arc::new(CachedLogin {
            tenant,
            auth_id: attempt.credential.auth_id.clone(),
            version: attempt.version,
            born: attempt.born,
            credential: attempt.credential.clone(),
            secret,
            identity: Identity { principal: Arc::new(principal), reach: Reach::OneTenant },
            seen_at: AtomicU64::new(u64::MAX),
        });
        // The credentials may have changed while the password was hashed.
        let verified = self.renewed(&verified)?;
        self.attempts.count(Some(&verified.tenant), "succeeded");
        self.credential_cache.insert(attempt.fingerprint, verified.clone());
        Some(verified)
    }

    /// Counts a failed login and makes its problem.
    fn refused(&self, given: &Basic, source: LoginSource) -> Problem {
        self.throttle.fail(source);
        let is_known = self.registry.snapshot(&given.tenant).state.tenant(&given.tenant).is_some();
        self.attempts.count(is_known.then_some(&given.tenant), "unauthorized");
        wrong(&given.user())
    }

    /// Admits a request without credentials if the tenant in its path allows that.
    fn without_login(&self, claim: &Claim<'_>) -> Result<Identity, Problem> {
        let named = claim.param("tenant")?.filter(|name| !name.is_empty());
        let tenant = named.map_or_else(|| Ok(None), |name| TenantId::new(&name).map(Some))?;
        let allowed = tenant.filter(|tenant| {
            let snapshot = self.registry.snapshot(tenant);
            let stored = snapshot.state.tenant(tenant).and_then(|known| known.tenant.as_deref());
            stored.is_some_and(|stored| match stored.value.adapter(HTTP_ADAPTER) {
                Some(adapter) => !adapter.device_authentication_required,
                None => !self.is_required,
            })
        });
        let Some(tenant) = allowed else {
            return Err(Problem::unauthenticated(CHALLENGE, "a device logs in with each request")
                .value("no Authorization header")
                .rule("Authorization: Basic with auth-id@tenant and a password")
                .remedy("send that header"));
        };
        let roles = Roles::NONE.with(Role::Device);
        let principal = Principal { tenant, name: UNAUTHENTICATED.to_owned(), roles };
        Ok(Identity { principal: Arc::new(principal), reach: Reach::OneTenant })
    }
}

impl Basic {
    /// Reads the header's value (RFC 7617).
    fn parse(header: &[u8]) -> Result<Self, Problem> {
        let text = split_scheme(header).and_then(|token| BASE64.decode(token).ok());
        let Some((user, password)) = text.as_deref().and_then(split_password) else {
            return Err(Problem::unauthenticated(CHALLENGE, "the Authorization header is no HTTP Basic login")
                .value(String::from_utf8_lossy(header.split(|byte| *byte == b' ').next().unwrap_or_default()))
                .rule("Basic, then base64 of auth-id@tenant:password")
                .remedy("send that header"));
        };
        Self::of(user, password)
    }

    fn of(user: &str, password: &[u8]) -> Result<Self, Problem> {
        let auth_id = user.rsplit_once('@').map_or(user, |(auth_id, _)| auth_id);
        let tenant = tenant_of(user).map_err(|_| wrong(user))?;
        Ok(Self { tenant, auth_id: auth_id.to_owned(), password: password.to_owned() })
    }

    fn user(&self) -> String {
        format!("{}@{}", self.auth_id, self.tenant)
    }
}

/// The tenant of a user name; a name without `@tenant` belongs to the tenant `default`.
pub(crate) fn tenant_of(user: &str) -> Result<TenantId, NameError> {
    TenantId::new(user.rsplit_once('@').map_or(TenantId::DEFAULT, |(_, tenant)| tenant))
}

fn split_scheme(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked(6)?;
    scheme.eq_ignore_ascii_case(b"basic ").then(|| token.trim_ascii())
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
        .rule(format!("connect.logins_max_waiting = {}", full.waiting))
        .remedy("try again later")
}
