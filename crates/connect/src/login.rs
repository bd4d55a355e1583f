//! Checks device logins: a client certificate, a JSON Web Token, or `auth-id@tenant` and a password. HTTP sends the last two
//! with each request, MQTT once. A certificate is looked at first; one that no tenant trusts is no login, and the others count.
//!
//! A cached login costs one registry look-up. A new login with a fast hash is checked on the calling thread. A slow
//! hash is checked on worker threads behind a bounded queue, so a storm of logins does not delay devices that are
//! already logged in.

mod certificate;
mod password;
mod refusal;
mod token;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::HeaderValue;
use axum::http::header::AUTHORIZATION;
use millstream_http::{Authenticator, Claim, Identity, JsonWebToken, Metrics, Problem, Reach, Verdict, Workers};
use millstream_net::{ClientCertificate, ClientTrust};
use millstream_net::{LoginProtocol, LoginSource, LoginThrottle};
use millstream_types::{AccessScope, NameError, Principal, Role, Roles, TenantId, WallClock};

use certificate::CertificateVerdict;
use password::Basic;
use refusal::{LoginRefusal, RefusalLog};
use token::of_client_id;

use crate::adapter::{HTTP_ADAPTER, UNAUTHENTICATED};
use crate::credential_cache::{CachedLogin, CredentialCache, Fingerprint};
use crate::provisioning::{NewDevice, Provisioning};
use crate::registry::{Anchor, Credential, Login, Registry, Secret};
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
    refusals: RefusalLog,
    provisioning: Arc<Provisioning>,
    throttle: Arc<LoginThrottle>,
}

/// A login that was found right and is not remembered yet.
struct NewLogin {
    login: Login,
    secret: usize,
    anchor: Option<Anchor>,
    proof_ends_ms: i64,
}

/// The parts of an MQTT CONNECT that a device logs in with.
#[derive(Clone, Copy)]
pub(crate) struct MqttClaim<'a> {
    pub(crate) certificate: Option<&'a Arc<ClientCertificate>>,
    pub(crate) user: Option<&'a str>,
    pub(crate) password: &'a [u8],
    pub(crate) client_id: &'a str,
    pub(crate) address: IpAddr,
}

/// The parts that [`DeviceLogins`] is made of.
pub(crate) struct DeviceLoginsParts {
    pub(crate) registry: Registry,
    pub(crate) credential_cache: CredentialCache,
    pub(crate) workers: Workers,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) is_required: bool,
    pub(crate) provisioning: Arc<Provisioning>,
    pub(crate) throttle: Arc<LoginThrottle>,
}

impl DeviceLogins {
    pub(crate) fn new(parts: DeviceLoginsParts, metrics: &Metrics) -> Self {
        let DeviceLoginsParts { registry, credential_cache, workers, wall, is_required, provisioning, throttle } =
            parts;
        let (attempts, refusals) = (Self::attempts(metrics), RefusalLog::new(metrics));
        Self(Arc::new(LoginParts {
            registry,
            credential_cache,
            workers,
            wall,
            is_required,
            attempts,
            refusals,
            provisioning,
            throttle,
        }))
    }

    /// The counter of login checks, under Hono's name.
    fn attempts(metrics: &Metrics) -> TenantCounter {
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

    /// Logs in an MQTT connection by certificate, token or password. A throttled client gets a problem with status 429.
    pub(crate) async fn log_in(&self, claim: MqttClaim<'_>) -> Result<Arc<CachedLogin>, Problem> {
        let source = LoginSource { address: claim.address, protocol: LoginProtocol::Mqtt };
        let has_other = claim.user.is_some() || !claim.password.is_empty();
        if let Some(certificate) = claim.certificate {
            match self.0.by_certificate(certificate) {
                CertificateVerdict::LoggedIn(verified) => return Ok(self.told(verified).await),
                CertificateVerdict::NotTrusted(_) if has_other => {}
                CertificateVerdict::NotTrusted(refusal) | CertificateVerdict::Refused(refusal) => {
                    return Err(self.0.refuse(refusal, source));
                }
                CertificateVerdict::Unknown(device) => return self.provision(device, certificate, source).await,
            }
        }
        // No HTTP header begins with these prefixes, so a header never has the fingerprint of an MQTT login.
        if JsonWebToken::is_one(claim.password) {
            let shown = [b"mqtt-jwt\0", claim.client_id.as_bytes(), b"\0", claim.password].concat();
            let fingerprint = self.0.credential_cache.fingerprint(&shown);
            let token = std::str::from_utf8(claim.password).unwrap_or_default();
            return self.0.token_login(token, || of_client_id(claim.client_id), fingerprint, source);
        }
        let (user, password) = (claim.user.unwrap_or_default(), claim.password);
        let shown = [b"mqtt\0", &(user.len() as u64).to_be_bytes()[..], user.as_bytes(), password].concat();
        let fingerprint = self.0.credential_cache.fingerprint(&shown);
        if let Some(verified) = self.0.remembered(&fingerprint) {
            return Ok(verified);
        }
        let attempt = self.0.attempt(|| Basic::of(user, password), fingerprint, source)?;
        if let Some(verified) = self.0.check(&attempt, Credential::fast) {
            return Ok(verified);
        }
        if attempt.login.credential.slow().next().is_none() {
            return Err(self.0.refused(&attempt.given, source));
        }
        self.check_slowly(attempt).await
    }

    /// Registers the device of a certificate and logs it in.
    async fn provision(
        &self,
        device: NewDevice,
        certificate: &ClientCertificate,
        source: LoginSource,
    ) -> Result<Arc<CachedLogin>, Problem> {
        let tenant = device.tenant.clone();
        self.0.provisioning.device_of_certificate(device).await.inspect_err(|problem| {
            if problem.status().is_client_error() {
                self.0.throttle.fail(source);
            }
            self.0.refusals.not_registered(&tenant, certificate.subject(), problem, source.address);
        })?;
        match self.0.by_certificate(certificate) {
            CertificateVerdict::LoggedIn(verified) => Ok(verified),
            CertificateVerdict::NotTrusted(refusal) | CertificateVerdict::Refused(refusal) => {
                Err(self.0.refuse(refusal, source))
            }
            CertificateVerdict::Unknown(_) => Err(Problem::internal("a device that was registered is unknown")),
        }
    }

    /// Makes up for the event of a device whose registration applications have not been told of.
    async fn told(&self, verified: Arc<CachedLogin>) -> Arc<CachedLogin> {
        let device = &verified.identity.principal.name;
        if self.0.provisioning.is_untold(&verified.tenant, device) {
            self.0.provisioning.tell(&verified.tenant, device).await;
        }
        verified
    }

    /// True if an authority of a tenant makes the certificate count now.
    pub(crate) fn is_trusted(&self, certificate: &ClientCertificate) -> bool {
        self.0.trusts(certificate, self.0.wall.now_ms().div_euclid(1_000))
    }

    /// Renews a cached login against the current registry; `None` if its secret was removed, changed or has expired.
    pub(crate) fn renewed(&self, verified: &Arc<CachedLogin>) -> Option<Arc<CachedLogin>> {
        self.0.renewed(verified)
    }
}

impl ClientTrust for DeviceLogins {
    fn asks_for_certificates(&self) -> bool {
        self.0.registry.has_anchors()
    }

    fn trusts(&self, certificate: &ClientCertificate, now_s: i64) -> bool {
        self.0.trusts(certificate, now_s)
    }
}

impl Authenticator for DeviceLogins {
    fn authenticate<'a>(&'a self, claim: Claim<'a>) -> Verdict<'a> {
        let source = LoginSource { address: claim.peer.ip(), protocol: LoginProtocol::Http };
        let header = claim.headers.get(AUTHORIZATION.as_str());
        if let Some(certificate) = claim.client_certificate {
            match self.0.by_certificate(certificate) {
                CertificateVerdict::LoggedIn(verified) => return self.admitted(verified),
                CertificateVerdict::NotTrusted(_) if header.is_some() => {}
                CertificateVerdict::NotTrusted(refusal) => {
                    let otherwise = self.0.without_login(&claim);
                    return Verdict::Now(otherwise.map_err(|_| self.0.refuse(refusal, source)));
                }
                CertificateVerdict::Refused(refusal) => return Verdict::Now(Err(self.0.refuse(refusal, source))),
                CertificateVerdict::Unknown(device) => {
                    return Verdict::Later(Box::pin(async move {
                        let verified = self.provision(device, certificate, source).await?;
                        Ok(verified.identity.clone())
                    }));
                }
            }
        }
        let Some(header) = header else {
            return Verdict::Now(self.0.without_login(&claim));
        };
        if let Some(token) = split_scheme(header, b"bearer ") {
            return Verdict::Now(self.0.http_token(token, &claim, source));
        }
        let fingerprint = self.0.credential_cache.fingerprint(header);
        if let Some(verified) = self.0.remembered(&fingerprint) {
            return Verdict::Now(Ok(verified.identity.clone()));
        }
        let attempt = match self.0.attempt(|| Basic::parse(header), fingerprint, source) {
            Ok(attempt) => attempt,
            Err(problem) => return Verdict::Now(Err(problem)),
        };
        if let Some(verified) = self.0.check(&attempt, Credential::fast) {
            return Verdict::Now(Ok(verified.identity.clone()));
        }
        if attempt.login.credential.slow().next().is_none() {
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

impl DeviceLogins {
    /// The verdict for a device that has logged in by certificate.
    fn admitted(&self, verified: Arc<CachedLogin>) -> Verdict<'_> {
        if self.0.provisioning.is_untold(&verified.tenant, &verified.identity.principal.name) {
            return Verdict::Later(Box::pin(async move { Ok(self.told(verified).await.identity.clone()) }));
        }
        Verdict::Now(Ok(verified.identity.clone()))
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

    /// See [`DeviceLogins::renewed`]. An equal hash or key means the same secret, even if other members have changed.
    fn renewed(&self, verified: &Arc<CachedLogin>) -> Option<Arc<CachedLogin>> {
        if self.is_current(verified) {
            return Some(verified.clone());
        }
        let now_ms = self.wall.now_ms();
        let snapshot = self.registry.snapshot(&verified.tenant);
        let known = snapshot.state.tenant(&verified.tenant)?;
        let Login { version, born, credential, .. } =
            known.login(verified.credential.kind, verified.auth_id.as_str())?;
        if !credential.enabled || *born != verified.born || now_ms > verified.proof_ends_ms {
            return None;
        }
        if !verified.is_vouched_for(&known.anchors) {
            return None;
        }
        let old = &verified.credential.secrets[verified.secret];
        let is_it = |secret: &Secret| secret.material == old.material && secret.is_valid_at(now_ms);
        let secret = credential.secrets.iter().position(is_it)?;
        Some(Arc::new(CachedLogin {
            tenant: verified.tenant.clone(),
            auth_id: verified.auth_id.clone(),
            version: *version,
            born: *born,
            credential: credential.clone(),
            secret,
            anchor: verified.anchor.clone(),
            proof_ends_ms: verified.proof_ends_ms,
            identity: verified.identity.clone(),
            seen_at: AtomicU64::new(snapshot.next.0),
        }))
    }

    /// True if the credentials and the trust anchor have not changed since the check, and nothing has expired.
    fn is_current(&self, verified: &CachedLogin) -> bool {
        let snapshot = self.registry.snapshot(&verified.tenant);
        if verified.seen_at.load(Ordering::Relaxed) != snapshot.next.0 {
            let Some(known) = snapshot.state.tenant(&verified.tenant) else { return false };
            let login = known.login(verified.credential.kind, verified.auth_id.as_str());
            let is_same = login.is_some_and(|login| login.version == verified.version);
            if !is_same || !verified.is_vouched_for(&known.anchors) {
                return false;
            }
            verified.seen_at.store(snapshot.next.0, Ordering::Relaxed);
        }
        verified.is_valid_at(self.wall.now_ms())
    }

    /// Remembers a login that was found right; `None` if its credentials have changed in the meantime.
    fn enter(&self, tenant: &TenantId, found: NewLogin, fingerprint: Fingerprint) -> Option<Arc<CachedLogin>> {
        let NewLogin { login, secret, anchor, proof_ends_ms } = found;
        let Login { device, version, born, credential } = login;
        let roles = Roles::NONE.with(Role::Device);
        let principal = Principal {
            tenant: tenant.clone(),
            name: device.as_str().to_owned(),
            roles,
            scope: AccessScope::default(),
        };
        let verified = Arc::new(CachedLogin {
            tenant: tenant.clone(),
            auth_id: credential.auth_id.clone(),
            version,
            born,
            credential,
            secret,
            anchor,
            proof_ends_ms,
            identity: Identity {
                principal: Arc::new(principal),
                reach: Reach::OneTenant,
                revocation: None,
                expires_ms: None,
            },
            seen_at: AtomicU64::new(u64::MAX),
        });
        let verified = self.renewed(&verified)?;
        self.attempts.count(Some(&verified.tenant), "succeeded");
        self.credential_cache.insert(fingerprint, verified.clone());
        Some(verified)
    }

    /// Logs in the device of a token in a request's header.
    fn http_token(&self, token: &[u8], claim: &Claim<'_>, source: LoginSource) -> Result<Identity, Problem> {
        let named = || {
            let name = |parameter| claim.param(parameter).ok().flatten().filter(|name| !name.is_empty());
            Some((name("tenant")?.into_owned(), name("device")?.into_owned()))
        };
        let path = claim.path.as_bytes();
        let fingerprint = self.credential_cache.fingerprint_of([b"bearer\0", path, b"\0", token].into_iter());
        let token = std::str::from_utf8(token).unwrap_or_default();
        self.token_login(token, named, fingerprint, source).map(|verified| verified.identity.clone())
    }

    /// Logs in the device of a token. A signature is not guessed, so failures of others at its address do not matter.
    fn token_login(
        &self,
        token: &str,
        otherwise: impl FnOnce() -> Option<(String, String)>,
        fingerprint: Fingerprint,
        source: LoginSource,
    ) -> Result<Arc<CachedLogin>, Problem> {
        if let Some(verified) = self.remembered(&fingerprint) {
            return Ok(verified);
        }
        self.by_token(token, otherwise, fingerprint).map_err(|refusal| self.refuse(refusal, source))
    }

    /// Counts a refused certificate or token as a failed login, and makes its problem. Once too many logins from its address
    /// have failed that is all that it is told.
    fn refuse(&self, refusal: LoginRefusal, source: LoginSource) -> Problem {
        if let Err(throttled) = self.throttle.check(source) {
            return throttled.into();
        }
        self.throttle.fail(source);
        self.attempts.count(refusal.tenant.as_ref(), "unauthorized");
        self.refusals.refuse(refusal, source.address)
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
                .rule("Authorization: Basic with auth-id@tenant and a password, Bearer with a JSON Web Token, or a client certificate")
                .remedy("send one of them"));
        };
        let roles = Roles::NONE.with(Role::Device);
        let principal = Principal { tenant, name: UNAUTHENTICATED.to_owned(), roles, scope: AccessScope::default() };
        Ok(Identity { principal: Arc::new(principal), reach: Reach::OneTenant, revocation: None, expires_ms: None })
    }
}

/// The tenant of a user name; a name without `@tenant` belongs to the tenant `default`.
pub(crate) fn tenant_of(user: &str) -> Result<TenantId, NameError> {
    TenantId::new(user.rsplit_once('@').map_or(TenantId::DEFAULT, |(_, tenant)| tenant))
}

/// The token behind the scheme, which is given in lower case with the space behind it.
fn split_scheme<'a>(header: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let (scheme, token) = header.split_at_checked(wanted.len())?;
    scheme.eq_ignore_ascii_case(wanted).then(|| token.trim_ascii())
}
