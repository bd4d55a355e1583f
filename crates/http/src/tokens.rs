//! API tokens: bearer secrets from the configuration, each with a tenant and roles.
//!
//! Only SHA-256 hashes are kept. A presented token is hashed and compared with every entry in constant time, so neither
//! the response time nor a memory dump reveals a token.

use std::fmt;
use std::sync::Arc;

use axum::http::HeaderValue;
use axum::http::header::AUTHORIZATION;
use millstream_types::{LoginProtocol, LoginSource, LoginThrottle, Principal, Role, Roles, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Authenticator, Claim, Error, Identity, Problem, Reach, Verdict};

/// Shortest secret; a shorter one could be guessed.
pub const TOKEN_MIN_CHARS: usize = 16;
/// The value of [`ApiToken::tenant`] that means all tenants.
pub const EVERY_TENANT: &str = "*";

const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"millstream\"");

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

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::Reader => Self::Reader,
            RoleName::Writer => Self::Writer,
            RoleName::Admin => Self::Admin,
        }
    }
}

/// Authenticates callers by their API tokens.
#[derive(Debug)]
pub struct ApiTokens {
    entries: Vec<TokenEntry>,
    throttle: Arc<LoginThrottle>,
}

struct TokenEntry {
    hash: [u8; 32],
    identity: Identity,
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
        let mut entries: Vec<TokenEntry> = Vec::with_capacity(tokens.len());
        for token in tokens {
            let entry = TokenEntry::new(token)?;
            if let Some(twin) = entries.iter().find(|other| other.hash == entry.hash) {
                let rule = format!("has the same secret as '{}'; give each its own", twin.identity.principal.name);
                return Err(Error::InvalidToken { name: token.name.clone(), rule });
            }
            entries.push(entry);
        }
        Ok(Self { entries, throttle: Arc::default() })
    }

    /// Limits requests with a wrong token by `throttle`; without it there is no limit. A
    /// right token is always accepted.
    #[must_use]
    pub fn throttled_by(self, throttle: Arc<LoginThrottle>) -> Self {
        Self { throttle, ..self }
    }

    /// Returns the holder of the token with this name and secret, in the token's own tenant (`default` for a token of
    /// all tenants). For protocols in which clients log in with name and password.
    pub fn holder(&self, name: &str, secret: &str) -> Option<Identity> {
        let entry = self.find(secret.as_bytes())?;
        (entry.identity.principal.name == name).then(|| entry.identity.clone())
    }

    /// Returns the holder of the token with this secret, as [`ApiTokens::holder`] does, whatever its name.
    pub fn holder_of(&self, secret: &str) -> Option<Identity> {
        self.find(secret.as_bytes()).map(|entry| entry.identity.clone())
    }

    fn find(&self, secret: &[u8]) -> Option<&TokenEntry> {
        let hash: [u8; 32] = Sha256::digest(secret).into();
        // All entries are compared, even after a match.
        self.entries.iter().fold(None, |found, entry| if same(&entry.hash, &hash) { Some(entry) } else { found })
    }

    fn identify(&self, claim: &Claim<'_>) -> Result<Identity, Problem> {
        let Some(header) = claim.headers.get(AUTHORIZATION.as_str()) else {
            return Err(Problem::unauthenticated(CHALLENGE, "this listener wants an API token")
                .rule("each request carries Authorization: Bearer <token>")
                .remedy("send a configured token"));
        };
        let Some(secret) = bearer(header) else {
            self.count_failure(claim)?;
            return Err(Problem::unauthenticated(CHALLENGE, "the Authorization header is not a bearer token")
                .rule("Authorization: Bearer <token>")
                .remedy("send a configured token"));
        };
        let Some(entry) = self.find(secret) else {
            self.count_failure(claim)?;
            let challenge = HeaderValue::from_static("Bearer realm=\"millstream\", error=\"invalid_token\"");
            return Err(Problem::unauthenticated(challenge, "the API token is not known")
                .rule("only configured tokens are taken")
                .remedy("check the token, or add it to the configuration"));
        };
        entry.in_tenant(claim.tenant()?)
    }

    fn count_failure(&self, claim: &Claim<'_>) -> Result<(), Problem> {
        let source = LoginSource { address: claim.peer.ip(), protocol: LoginProtocol::Http };
        self.throttle.check(source)?;
        self.throttle.fail(source);
        Ok(())
    }
}

impl TokenEntry {
    fn new(token: &ApiToken) -> Result<Self, Error> {
        let refuse = |rule: String| Err(Error::InvalidToken { name: token.name.clone(), rule });
        if token.token.chars().count() < TOKEN_MIN_CHARS {
            return refuse(format!("is shorter than {TOKEN_MIN_CHARS} characters; choose a longer one"));
        }
        if token.roles.is_empty() {
            return refuse("has no role; give it one or more of reader, writer, admin".to_owned());
        }
        let (tenant, reach) = if token.tenant == EVERY_TENANT {
            (TenantId::default(), Reach::EveryTenant)
        } else {
            match TenantId::new(&token.tenant) {
                Ok(tenant) => (tenant, Reach::OneTenant),
                Err(error) => return refuse(error.to_string()),
            }
        };
        let roles = token.roles.iter().fold(Roles::NONE, |roles, role| roles.with((*role).into()));
        let principal = Arc::new(Principal { tenant, name: token.name.clone(), roles });
        Ok(Self { hash: Sha256::digest(token.token.as_bytes()).into(), identity: Identity { principal, reach } })
    }

    /// The caller in the requested tenant, or else in the token's own.
    fn in_tenant(&self, wanted: Option<TenantId>) -> Result<Identity, Problem> {
        let own = &self.identity.principal;
        let Some(tenant) = wanted.filter(|tenant| *tenant != own.tenant) else { return Ok(self.identity.clone()) };
        match self.identity.reach {
            Reach::EveryTenant => {
                let principal = Principal { tenant, name: own.name.clone(), roles: own.roles };
                Ok(Identity { principal: Arc::new(principal), reach: Reach::EveryTenant })
            }
            Reach::OneTenant => Err(Problem::forbidden(format!("token '{}' is not good for this tenant", own.name))
                .value(&tenant)
                .rule(format!("it is good for tenant '{}'", own.tenant))
                .remedy("name that tenant, or use a token of the requested tenant")),
        }
    }
}

impl Authenticator for ApiTokens {
    fn authenticate<'a>(&'a self, claim: Claim<'a>) -> Verdict<'a> {
        Verdict::Now(self.identify(&claim))
    }

    fn open_remedy(&self) -> Option<&'static str> {
        None
    }
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
    use super::*;

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
        assert_eq!(tokens.holder("grafana", "sixteen-chars-ok").unwrap().principal.tenant.as_str(), "acme");
        assert!(tokens.holder("grafana", "sixteen-chars-no").is_none());
        assert!(tokens.holder("other", "sixteen-chars-ok").is_none());
        check(&[ApiToken { token: "sixteen".into(), ..good.clone() }], "16 characters");
        check(&[ApiToken { tenant: "a b".into(), ..good.clone() }], "not a tenant id");
        check(&[ApiToken { roles: vec![], ..good.clone() }], "no role");
        check(&[good.clone(), good.clone()], "same secret");
        assert!(!format!("{good:?}").contains("sixteen"));
    }
}
