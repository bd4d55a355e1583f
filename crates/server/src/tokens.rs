//! API tokens that are made while the server runs: one view for all tenants, and the logins of three listeners, which an
//! identity provider's tokens share.
//!
//! ```text
//!   POST, DELETE /api/tokens ──► TokensView (state topic `_tokens`) ──► once durable ──► ApiTokens ──► HTTP, Kafka, Redis
//! ```
//!
//! Invariants
//! - A secret is in one answer and nowhere else: stored are its SHA-256 and SCRAM's keys.
//! - A token is accepted and refused once its record is durable, before the caller has the answer.

mod record;
mod routes;
mod submissions;

use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::BoxFuture;
use millstream_http::{ApiToken, ApiTokens, Identity, LoopbackApplications, Reach, RoleName, TokenIssuer};
use millstream_net::{
    Login, LoginCheck, LoginThrottle, Logins, RefusedLogin, Revocation, ScramCredential, ScramMechanism, ScramUser,
};
use millstream_store::UserLogin;
use millstream_types::{PartitionId, StateTopic, TenantId, TopicName, WallClock};
use millstream_view::{Error, Failure, ViewRuntime, Views, ViewsConfig};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};

use self::record::{TokenAnswer, TokenCommand, TokenRecord, TokensView};
pub(crate) use self::routes::routes;

const PARTITION: PartitionId = PartitionId(0);
const INBOX_MAX_BYTES: usize = 1 << 20;
/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;
/// The beginning of each secret, by which scanners for leaked secrets know it.
const SECRET_PREFIX: &str = "mst_";

/// The API tokens of the configuration and those that were made.
pub(crate) struct Tokens {
    views: Arc<Views<TokensView>>,
    pub(crate) logins: Arc<ApiTokens>,
    /// SCRAM's keys for the tokens of the configuration.
    configured: Vec<ConfiguredScram>,
    wall: Arc<dyn WallClock>,
}

struct ConfiguredScram {
    name: String,
    /// `None` for all tenants.
    tenant: Option<TenantId>,
    hash: [u8; 32],
    keys: [ScramCredential; 2],
}

/// A token to be made.
pub(crate) struct NewToken {
    name: String,
    tenant: Option<TenantId>,
    roles: Vec<RoleName>,
    topics: Vec<String>,
    types: Vec<String>,
    keys: Vec<String>,
    groups: Vec<String>,
    transactional_ids: Vec<String>,
    expires_ms: Option<i64>,
    created_by: String,
}

impl Tokens {
    /// Reads the tokens that were made. Blocks while the state is rebuilt.
    pub(crate) fn open(
        ground: &ViewRuntime,
        tokens: &[ApiToken],
        hosts: &[String],
        issuer: Option<Arc<dyn TokenIssuer>>,
        throttle: Arc<LoginThrottle>,
    ) -> anyhow::Result<Arc<Self>> {
        let wall = Arc::clone(&ground.wall);
        let without = LoopbackApplications::called(hosts);
        let logins = ApiTokens::new(tokens)?.throttled_by(throttle).timed_by(Arc::clone(&wall)).or_else(without);
        let logins = Arc::new(match issuer {
            Some(issuer) => logins.issued_by(issuer),
            None => logins,
        });
        let configured = tokens.iter().map(|token| ConfiguredScram {
            name: token.name.clone(),
            // Checked by the logins; the name of all tenants is none.
            tenant: TenantId::new(&token.tenant).ok(),
            hash: hash(&token.token),
            keys: ScramMechanism::ALL.map(|mechanism| ScramCredential::derive(mechanism, &token.token)),
        });
        let config = ViewsConfig {
            partitions: 1,
            inbox_max_bytes: INBOX_MAX_BYTES,
            dirty_max_bytes: INBOX_MAX_BYTES,
            ..ViewsConfig::default()
        };
        let view = TokensView { logins: Arc::clone(&logins) };
        let views = Views::open(view, &TopicName::internal(StateTopic::Tokens), &config, ground)
            .with_context(|| format!("cannot read the API tokens in topic {}", StateTopic::Tokens.name()))?;
        for (name, record) in &views.snapshot(PARTITION).state {
            logins.add(record.registered(name));
        }
        Ok(Arc::new(Self { views, logins, configured: configured.collect(), wall }))
    }

    /// Makes a token. Returns its secret.
    async fn create(&self, new: NewToken) -> Result<(String, TokenAnswer), Error> {
        let secret = secret();
        let [of_sha_256, of_sha_512] = ScramMechanism::ALL.map(|mechanism| ScramCredential::derive(mechanism, &secret));
        let record = TokenRecord {
            tenant: new.tenant.map(|tenant| tenant.to_string()),
            roles: new.roles,
            topics: new.topics,
            types: new.types,
            keys: new.keys,
            groups: new.groups,
            transactional_ids: new.transactional_ids,
            created_ms: self.wall.now_ms(),
            created_by: new.created_by,
            expires_ms: new.expires_ms,
            hash: hash(&secret),
            scram_sha_256: of_sha_256,
            scram_sha_512: of_sha_512,
        };
        let answer = self.views.ask(PARTITION, TokenCommand::Create(new.name, Arc::new(record))).await?;
        Ok((secret, answer))
    }

    async fn revoke(&self, name: String, tenant: Option<TenantId>) -> Result<TokenAnswer, Error> {
        self.views.ask(PARTITION, TokenCommand::Revoke(name, tenant)).await
    }

    fn all(&self) -> imbl::OrdMap<String, Arc<TokenRecord>> {
        self.views.snapshot(PARTITION).state.clone()
    }

    pub(crate) fn failures(&self) -> Vec<Failure> {
        self.views.failures()
    }

    pub(crate) fn stop(&self) {
        self.views.stop();
    }
}

fn hash(secret: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
    hash
}

fn secret() -> String {
    let mut bytes = [0; SECRET_BYTES];
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    format!("{SECRET_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
}

fn login(Identity { principal, reach, revocation, expires_ms }: Identity) -> Login {
    Login { principal, in_every_tenant: reach == Reach::EveryTenant, revocation, expires_ms }
}

/// API tokens as names and passwords.
impl Logins for Tokens {
    fn open_access(&self) -> Option<Revocation> {
        self.logins.open_access()
    }

    fn log_in<'a>(&'a self, name: Option<&'a str>, password: &'a str) -> LoginCheck<'a> {
        Box::pin(async move { self.logins.log_in(name, password).await.map(login) })
    }

    fn scram(&self, name: &str, mechanism: ScramMechanism) -> Option<(ScramCredential, Login)> {
        let configured = self.configured.iter().find(|configured| configured.name == name);
        let (keys, hash) = match configured {
            Some(ConfiguredScram { keys: [of_sha_256, of_sha_512], hash, .. }) => match mechanism {
                ScramMechanism::Sha256 => (of_sha_256.clone(), *hash),
                ScramMechanism::Sha512 => (of_sha_512.clone(), *hash),
            },
            None => {
                let snapshot = self.views.snapshot(PARTITION);
                let record = snapshot.state.get(name)?;
                (record.scram(mechanism).clone(), record.hash)
            }
        };
        Some((keys, login(self.logins.holder_of_hash(&hash)?)))
    }

    fn scram_users(&self, tenant: Option<&TenantId>) -> Vec<ScramUser> {
        let user = |name: &str, of_sha_256: &ScramCredential, of_sha_512: &ScramCredential| ScramUser {
            name: name.to_owned(),
            sha_256_iterations: of_sha_256.iterations(),
            sha_512_iterations: of_sha_512.iterations(),
        };
        let is_of = |own: Option<&TenantId>| tenant.is_none_or(|tenant| own == Some(tenant));
        let configured = self.configured.iter().filter(|configured| is_of(configured.tenant.as_ref()));
        let configured = configured
            .map(|ConfiguredScram { name, keys: [of_sha_256, of_sha_512], .. }| user(name, of_sha_256, of_sha_512));
        let made = self.all();
        let made = made.iter().filter(|(_, record)| record.is_of(tenant));
        let made = made.map(|(name, record)| user(name, &record.scram_sha_256, &record.scram_sha_512));
        configured.chain(made).collect()
    }
}

/// API tokens as names and passwords. A client that gives a password only is called `default`: the token is enough.
impl millstream_store::Logins for Tokens {
    fn open_access(&self) -> Option<Revocation> {
        self.logins.open_access()
    }

    fn log_in<'a>(&'a self, name: &'a str, password: &'a [u8]) -> BoxFuture<'a, Result<UserLogin, RefusedLogin>> {
        let name = Some(name).filter(|name| *name != "default");
        Box::pin(async move {
            let password = std::str::from_utf8(password).map_err(|_| RefusedLogin::Unknown)?;
            let Identity { principal, revocation, .. } = self.logins.log_in(name, password).await?;
            Ok(UserLogin { principal, revocation })
        })
    }
}
