//! Logins with access tokens of an OpenID Connect provider.
//!
//! ```text
//!   a token ──► cached by its hash (`http`) ──else──► signature by a known key ──► claims ──► tenant and roles
//!                                                        └─ unknown key ──► the task asks the provider ──┘
//! ```
//!
//! One task owns the conversation with the provider; logins read what it has found, and wait for it only if a token names
//! an unknown key.
//!
//! Invariants
//! - A token is accepted only with a signature by one of the provider's current keys, in an algorithm of the settings.
//! - While the provider is away, the keys that are known go on; the start of the server does not wait for it.
//! - The provider is asked at most once in `oidc.keys_retry_s`, however many tokens name unknown keys.

mod claims;
mod config;
mod discovery;
mod keys;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millstream_cli::Authorities;
use millstream_http::{IssuedToken, IssuedVerdict, JsonWebToken, Problem, Reason, TokenCheck, TokenIssuer};
use millstream_types::{ErrorCode, WallClock};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use self::claims::{ClaimedCaller, check_issuer, refuse};
pub(crate) use self::config::OidcConfig;
pub(crate) use self::discovery::LoginEndpoints;
use self::discovery::{REQUEST_TIMEOUT, discover};
use self::keys::{KeySet, SignatureCheck};

/// Types of tokens that are access tokens; a token may also have none.
const ACCESS_TOKEN_TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// The provider, as far as it is known.
pub(crate) struct OidcProvider {
    config: OidcConfig,
    authorities: Authorities,
    wall: Arc<dyn WallClock>,
    known: watch::Sender<KnownProvider>,
    /// Tells the task that a token names an unknown key.
    wants_keys: Notify,
}

#[derive(Default)]
struct KnownProvider {
    keys: KeySet,
    endpoints: LoginEndpoints,
    /// The time at which the provider was last asked; `None` before the first time.
    asked_at: Option<Instant>,
    is_being_asked: bool,
    /// The reason for which it could not be asked, the last time.
    failure: Option<String>,
}

/// A token that is read, with claims that are not trusted yet.
struct UnverifiedToken<'a> {
    token: JsonWebToken<'a>,
    claims: Value,
}

impl OidcProvider {
    /// The provider of the settings, which must be valid; `None` without one. Nothing is asked before [`OidcProvider::run`].
    pub(crate) fn open(config: &OidcConfig, wall: Arc<dyn WallClock>) -> anyhow::Result<Option<Arc<Self>>> {
        if !config.is_on() {
            return Ok(None);
        }
        let file = Some(Path::new(&config.ca_file)).filter(|path| !path.as_os_str().is_empty());
        let authorities = Authorities::read("oidc.ca_file", file)?;
        let (config, known, wants_keys) = (config.clone(), watch::Sender::default(), Notify::new());
        Ok(Some(Arc::new(Self { config, authorities, wall, known, wants_keys })))
    }

    pub(crate) fn config(&self) -> &OidcConfig {
        &self.config
    }

    pub(crate) fn endpoints(&self) -> LoginEndpoints {
        self.known.borrow().endpoints.clone()
    }

    /// The origins that the console asks when somebody logs in: the issuer's, and that of the address for tokens.
    pub(crate) fn origins(&self) -> Vec<String> {
        let token_endpoint = self.endpoints().token_endpoint;
        let urls = [Some(&self.config.issuer), token_endpoint.as_ref()].into_iter().flatten();
        let mut origins: Vec<String> = urls.filter_map(|url| origin(url)).collect();
        origins.dedup();
        origins
    }

    /// Keeps the provider's keys, for as long as the server runs.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            self.ask().await;
            let is_known = self.known.borrow().failure.is_none();
            let wait_s = if is_known { self.config.keys_max_age_s } else { self.config.keys_retry_s };
            let due = Instant::now() + Duration::from_secs(wait_s.into());
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                () = self.key_wanted() => {}
            }
        }
    }

    /// Resolves when a login wants an unknown key and the provider may be asked.
    async fn key_wanted(&self) {
        loop {
            self.wants_keys.notified().await;
            if self.may_ask(self.known.borrow().asked_at) {
                return;
            }
        }
    }

    fn may_ask(&self, asked_at: Option<Instant>) -> bool {
        asked_at.is_none_or(|at| at.elapsed() >= Duration::from_secs(self.config.keys_retry_s.into()))
    }

    async fn ask(&self) {
        self.known.send_modify(|known| {
            known.is_being_asked = true;
            known.asked_at = Some(Instant::now());
        });
        let answer = discover(&self.config.issuer, &self.authorities).await;
        let issuer = &self.config.issuer;
        self.known.send_modify(|known| {
            known.is_being_asked = false;
            match answer {
                Ok(discovered) => {
                    if known.failure.is_some() || known.keys.len() == 0 {
                        tracing::info!(issuer, keys = discovered.keys.len(), "the identity provider's keys are known");
                    }
                    (known.keys, known.endpoints, known.failure) = (discovered.keys, discovered.endpoints, None);
                }
                Err(error) => {
                    let why = format!("{error:#}");
                    if known.failure.is_none() {
                        let keys = known.keys.len();
                        tracing::warn!(
                            issuer,
                            why,
                            keys,
                            "the identity provider's keys cannot be fetched; those known go on"
                        );
                    }
                    known.failure = Some(why);
                }
            }
        });
    }

    /// Checks all that needs no key.
    fn read<'a>(&self, text: &'a str) -> Result<UnverifiedToken<'a>, Problem> {
        let token = JsonWebToken::read(text).map_err(|error| refuse(error.to_string()))?;
        let allowed = &self.config.algorithms;
        if !allowed.contains(&token.algorithm) {
            let allowed: Vec<String> = allowed.iter().map(|algorithm| format!("{algorithm:?}")).collect();
            return Err(refuse(format!("its alg is {:?}", token.algorithm))
                .rule(format!("oidc.algorithms are {}", allowed.join(", "))));
        }
        let is_access_token = |typ: &String| ACCESS_TOKEN_TYPES.iter().any(|known| typ.eq_ignore_ascii_case(known));
        if !token.typ.as_ref().is_none_or(is_access_token) {
            return Err(
                refuse("its typ is not that of an access token".to_owned()).rule("typ is JWT or at+jwt, if any")
            );
        }
        let claims: Value = token.claims().map_err(|error| refuse(error.to_string()))?;
        check_issuer(&claims, &self.config)?;
        Ok(UnverifiedToken { token, claims })
    }

    /// Checks the signature with the known keys, then the claims; `None` if no known key is that of the token.
    fn verify(&self, read: &UnverifiedToken<'_>) -> Option<IssuedVerdict> {
        let signature = self.known.borrow().keys.signature(&read.token);
        let key = match signature {
            SignatureCheck::UnknownKey => return None,
            SignatureCheck::Wrong => return Some(Err(refuse("its signature is wrong".to_owned()))),
            SignatureCheck::By(key) => key,
        };
        let caller = ClaimedCaller::of(&read.claims, &self.config, self.wall.now_ms());
        Some(caller.map(|ClaimedCaller { name, tenant, roles, expires_ms }| IssuedToken {
            name,
            tenant,
            roles,
            expires_ms,
            key,
        }))
    }

    /// Has the provider asked for a key that is not known, and checks the token then.
    async fn verify_with_new_keys(&self, read: UnverifiedToken<'_>) -> IssuedVerdict {
        let mut changes = self.known.subscribe();
        self.wants_keys.notify_one();
        // The description and the keys are a request each.
        let asked = tokio::time::timeout(2 * REQUEST_TIMEOUT, async {
            let before = changes.borrow().asked_at;
            let is_answered =
                |known: &KnownProvider| !known.is_being_asked && (known.asked_at != before || !self.may_ask(before));
            // The sender lives in `self`.
            drop(changes.wait_for(is_answered).await);
        });
        // After the time limit the token is checked with the keys there are.
        drop(asked.await);
        self.verify(&read).unwrap_or_else(|| Err(self.unknown_key()))
    }

    fn unknown_key(&self) -> Problem {
        match &self.known.borrow().failure {
            None => refuse("the identity provider has no such key".to_owned()).remedy("get a new token"),
            Some(why) => {
                let detail = "the key of the token is not known, and the identity provider cannot be asked";
                Problem::new(Reason::Code(ErrorCode::Unavailable), format!("{detail}: {why}"))
                    .remedy("try again when the provider is there")
            }
        }
    }
}

/// The scheme, host and port of a URL.
fn origin(url: &str) -> Option<String> {
    let uri: hyper::Uri = url.parse().ok()?;
    Some(format!("{}://{}", uri.scheme_str()?, uri.authority()?))
}

impl TokenIssuer for OidcProvider {
    fn check<'a>(&'a self, token: &'a str) -> Option<TokenCheck<'a>> {
        if !JsonWebToken::is_one(token.as_bytes()) {
            return None;
        }
        let read = match self.read(token) {
            Ok(read) => read,
            Err(problem) => return Some(TokenCheck::Now(Err(problem))),
        };
        if let Some(verdict) = self.verify(&read) {
            return Some(TokenCheck::Now(verdict));
        }
        let may_wait = {
            let known = self.known.borrow();
            known.is_being_asked || self.may_ask(known.asked_at)
        };
        Some(match may_wait {
            true => TokenCheck::Later(Box::pin(self.verify_with_new_keys(read))),
            false => TokenCheck::Now(Err(self.unknown_key())),
        })
    }

    fn has_key(&self, key: &[u8; 32]) -> bool {
        self.known.borrow().keys.has(key)
    }
}
