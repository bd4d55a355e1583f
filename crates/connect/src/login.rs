//! Devices log in with `auth-id@tenant` and a password: by HTTP Basic with each request, over MQTT once.
//!
//! A login that was right once costs a look into the registry; a new one is checked here if its hash is fast, and on
//! threads of its own if it is slow, with a bounded queue in front: a storm of logins holds up nobody who is logged in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::HeaderValue;
use axum::http::header::AUTHORIZATION;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use millstream_http::{
    Authenticator, Claim, Full, Identity, Metrics, PlainClaim, Problem, Reach, Reason, Verdict, Workers,
};
use millstream_types::{ErrorCode, NameError, Principal, Role, Roles, TenantId, WallClock};

use crate::http::ADAPTER;
use crate::registry::{Credential, Login, Registry, Secret, Version};
use crate::tenant_counter::TenantCounter;
use crate::verified::{Fingerprint, Verified, VerifiedLogins};

/// The name of a caller whose tenant lets devices send without logging in. No device id looks like it.
pub(crate) const UNAUTHENTICATED: &str = "(unauthenticated)";

const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"millstream\", charset=\"UTF-8\"");

/// Judges the logins of devices.
#[derive(Clone)]
pub(crate) struct Logins(Arc<Parts>);

struct Parts {
    registry: Registry,
    verified: VerifiedLogins,
    workers: Workers,
    wall: Arc<dyn WallClock>,
    is_required: bool,
    attempts: TenantCounter,
}

/// What a device presents.
#[derive(Clone)]
struct Basic {
    tenant: TenantId,
    auth_id: String,
    password: Vec<u8>,
}

/// A login whose password is still to be checked.
struct Attempt {
    given: Basic,
    fingerprint: Fingerprint,
    version: Version,
    born: Version,
    credential: Arc<Credential>,
    device: String,
}

impl Logins {
    pub(crate) fn new(
        registry: Registry,
        verified: VerifiedLogins,
        workers: Workers,
        wall: Arc<dyn WallClock>,
        is_required: bool,
        attempts: TenantCounter,
    ) -> Self {
        Self(Arc::new(Parts { registry, verified, workers, wall, is_required, attempts }))
    }

    /// Counts logins whose password is checked, under Hono's name.
    pub(crate) fn attempts(metrics: &Metrics) -> TenantCounter {
        let help = "Logins that were checked; those that are remembered are not among them.";
        TenantCounter::new(metrics, "hono_authentication_attempts_total", help, "outcome", &[])
    }

    /// Logins that wait for a thread.
    pub(crate) fn waiting(&self) -> usize {
        self.0.workers.waiting()
    }

    /// Logins that are remembered.
    pub(crate) fn cached(&self) -> usize {
        self.0.verified.count()
    }

    /// Ends the threads.
    pub(crate) fn stop(&self) {
        self.0.workers.stop();
    }

    /// Logs in with user name and password, once for as long as the connection lives.
    pub(crate) async fn log_in(&self, user: &str, password: &[u8]) -> Result<Arc<Verified>, Problem> {
        // No header begins like this, so that none has the fingerprint of a connection's login.
        let claim = [b"mqtt\0", &(user.len() as u64).to_be_bytes()[..], user.as_bytes(), password].concat();
        let fingerprint = self.0.verified.fingerprint(&claim);
        if let Some(verified) = self.0.remembered(&fingerprint) {
            return Ok(verified);
        }
        let attempt = self.0.attempt(Basic::of(user, password)?, fingerprint)?;
        if let Some(verified) = self.0.check(&attempt, Credential::fast) {
            return Ok(verified);
        }
        if attempt.credential.slow().next().is_none() {
            return Err(self.0.refused(&attempt.given));
        }
        self.check_slowly(attempt).await
    }

    /// A login that was right, as it is now; `None` if its secret has gone, changed or expired.
    pub(crate) fn renewed(&self, verified: &Arc<Verified>) -> Option<Arc<Verified>> {
        self.0.renewed(verified)
    }

    async fn check_slowly(&self, attempt: Attempt) -> Result<Arc<Verified>, Problem> {
        let parts = self.0.clone();
        let given = attempt.given.clone();
        let verdict = self.0.workers.submit(move || parts.check(&attempt, Credential::slow)).map_err(|full| {
            self.0.attempts.count(Some(&given.tenant), "unavailable");
            overloaded(full)
        })?;
        match verdict.await {
            Ok(Some(verified)) => Ok(verified),
            Ok(None) => Err(self.0.refused(&given)),
            Err(_) => Err(Problem::internal("the threads that check logins have ended")),
        }
    }
}

impl Authenticator for Logins {
    fn authenticate<'a>(&'a self, claim: Claim<'a>) -> Verdict<'a> {
        let Some(header) = claim.headers.get(AUTHORIZATION) else {
            return Verdict::Now(self.0.without_login(&claim));
        };
        let fingerprint = self.0.verified.fingerprint(header.as_bytes());
        if let Some(verified) = self.0.remembered(&fingerprint) {
            return Verdict::Now(Ok(verified.identity.clone()));
        }
        let attempt = match Basic::parse(header.as_bytes()).and_then(|given| self.0.attempt(given, fingerprint)) {
            Ok(attempt) => attempt,
            Err(problem) => return Verdict::Now(Err(problem)),
        };
        if let Some(verified) = self.0.check(&attempt, Credential::fast) {
            return Verdict::Now(Ok(verified.identity.clone()));
        }
        if attempt.credential.slow().next().is_none() {
            return Verdict::Now(Err(self.0.refused(&attempt.given)));
        }
        Verdict::Later(Box::pin(async move {
            let verified = self.check_slowly(attempt).await?;
            Ok(verified.identity.clone())
        }))
    }

    fn authenticate_plain(&self, claim: PlainClaim<'_>) -> Option<Identity> {
        let authorization = claim.header("authorization")?;
        let fingerprint = self.0.verified.fingerprint(authorization);
        let known = self.0.remembered(&fingerprint);
        let verified = known.or_else(|| {
            let given = Basic::parse(authorization).ok()?;
            let attempt = self.0.find(given, fingerprint).ok()?;
            self.0.check(&attempt, Credential::fast)
        });
        verified.map(|verified| verified.identity.clone())
    }

    fn open_remedy(&self) -> Option<&'static str> {
        (!self.0.is_required).then_some("set connect.http.authentication_required = true")
    }
}

/// Secrets with their place among all of the credential.
type Secrets<'a> = Box<dyn Iterator<Item = usize> + 'a>;

impl Credential {
    fn fast(&self) -> Secrets<'_> {
        Box::new((0..self.secrets.len()).filter(|at| !self.secrets[*at].password.is_slow()))
    }

    fn slow(&self) -> Secrets<'_> {
        Box::new((0..self.secrets.len()).filter(|at| self.secrets[*at].password.is_slow()))
    }
}

impl Parts {
    /// Who it is, if the same header was right before and its secret still is.
    fn remembered(&self, fingerprint: &Fingerprint) -> Option<Arc<Verified>> {
        let known = self.verified.get(fingerprint)?;
        if self.is_current(&known) {
            return Some(known);
        }
        let renewed = self.renewed(&known)?;
        self.verified.insert(*fingerprint, renewed.clone());
        Some(renewed)
    }

    /// As [`Logins::renewed`]. The same hash is the same secret, whatever has changed around it.
    fn renewed(&self, verified: &Arc<Verified>) -> Option<Arc<Verified>> {
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
        Some(Arc::new(Verified {
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

    /// Whether the device's credentials are those that the login was checked against, and its secret has not expired.
    fn is_current(&self, verified: &Verified) -> bool {
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

    /// Finds what a new login is to be checked against.
    fn attempt(&self, given: Basic, fingerprint: Fingerprint) -> Result<Attempt, Problem> {
        self.find(given, fingerprint).map_err(|given| self.refused(&given))
    }

    /// As [`Parts::attempt`]; what is not found counts for nothing.
    fn find(&self, given: Basic, fingerprint: Fingerprint) -> Result<Attempt, Basic> {
        let snapshot = self.registry.snapshot(&given.tenant);
        let known = snapshot.state.tenant(&given.tenant);
        let login = known.and_then(|known| known.login(&given.auth_id)).filter(|login| login.credential.enabled);
        let Some(login) = login else { return Err(given) };
        let (version, born, credential) = (login.version, login.born, login.credential.clone());
        Ok(Attempt { fingerprint, version, born, credential, device: login.device.as_str().to_owned(), given })
    }

    /// Checks the password against some of the credential's secrets; remembers it if it is right.
    fn check(&self, attempt: &Attempt, secrets: fn(&Credential) -> Secrets<'_>) -> Option<Arc<Verified>> {
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
        let verified = Arc::new(Verified {
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
        self.verified.insert(attempt.fingerprint, verified.clone());
        Some(verified)
    }

    /// Counts a login that is not right.
    fn refused(&self, given: &Basic) -> Problem {
        let is_known = self.registry.snapshot(&given.tenant).state.tenant(&given.tenant).is_some();
        self.attempts.count(is_known.then_some(&given.tenant), "unauthorized");
        wrong(&given.user())
    }

    /// Lets a request without credentials pass if the tenant that its path names allows it.
    fn without_login(&self, claim: &Claim<'_>) -> Result<Identity, Problem> {
        let named = claim.param("tenant")?.filter(|name| !name.is_empty());
        let tenant = named.map_or_else(|| Ok(None), |name| TenantId::new(&name).map(Some))?;
        let allowed = tenant.filter(|tenant| {
            let snapshot = self.registry.snapshot(tenant);
            let stored = snapshot.state.tenant(tenant).and_then(|known| known.tenant.as_deref());
            stored.is_some_and(|stored| match stored.value.adapter(ADAPTER) {
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

/// The tenant that a user name is of; one without `@tenant` is of the tenant `default`.
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

/// One text for all reasons: who guesses learns nothing from it.
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
