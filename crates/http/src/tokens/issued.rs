//! Tokens of an identity provider, which are verified once and then found by their hash until they end.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use millstream_types::{AccessScope, TenantId};
use parking_lot::RwLock;

use super::{RegisteredToken, RoleName, TokenEntry};
use crate::{Identity, Problem};

/// Most tokens that are remembered as verified. One beyond takes the place of one that nobody uses at the moment.
const VERIFIED_MAX: usize = 10_000;

/// A token that its issuer vouches for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedToken {
    /// The caller's name for logs and quotas.
    pub name: String,
    /// The tenant it is good for; `None` for all.
    pub tenant: Option<TenantId>,
    /// The caller's roles in that tenant.
    pub roles: Vec<RoleName>,
    /// Wall time from which on it is refused, milliseconds since 1970-01-01T00:00:00Z.
    pub expires_ms: i64,
    /// SHA-256 of the key that has signed it.
    pub key: [u8; 32],
}

/// The verdict on a token. A problem with status 503 says that it could not be checked.
pub type IssuedVerdict = Result<IssuedToken, Problem>;

/// The check of a token.
pub enum TokenCheck<'a> {
    /// The verdict is known without a wait.
    Now(IssuedVerdict),
    /// The issuer's keys are asked for first. Nothing is asked before the first poll.
    Later(Pin<Box<dyn Future<Output = IssuedVerdict> + Send + 'a>>),
}

/// Verifies tokens that an identity provider has issued.
pub trait TokenIssuer: Send + Sync + 'static {
    /// Checks a token; `None` if it is in no form that the issuer's tokens have.
    fn check<'a>(&'a self, token: &'a str) -> Option<TokenCheck<'a>>;

    /// `true` as long as the issuer signs with the key of this SHA-256.
    fn has_key(&self, key: &[u8; 32]) -> bool;
}

/// The tokens of an issuer that were verified.
pub(super) struct IssuedTokens {
    issuer: Arc<dyn TokenIssuer>,
    verified: RwLock<HashMap<[u8; 32], VerifiedToken>>,
}

struct VerifiedToken {
    entry: TokenEntry,
    key: [u8; 32],
}

impl IssuedTokens {
    pub(super) fn of(issuer: Arc<dyn TokenIssuer>) -> Self {
        Self { issuer, verified: RwLock::default() }
    }

    pub(super) fn check<'a>(&'a self, token: &'a str) -> Option<TokenCheck<'a>> {
        self.issuer.check(token)
    }

    /// The holder of the token with this hash, if it was verified before.
    pub(super) fn holder(&self, hash: &[u8; 32], now_ms: i64) -> Option<Identity> {
        let verified = self.verified.read();
        let token = verified.get(hash).filter(|token| token.entry.is_valid(now_ms))?;
        Some(token.entry.identity.clone())
    }

    /// Remembers a verified token. Returns its holder; `None` if too many tokens are in use.
    pub(super) fn add(&self, hash: [u8; 32], token: IssuedToken) -> Option<Identity> {
        let IssuedToken { name, tenant, roles, expires_ms, key } = token;
        let (scope, expires_ms) = (AccessScope::default(), Some(expires_ms));
        let entry = TokenEntry::registered(RegisteredToken { name, hash, tenant, roles, scope, expires_ms });
        let mut verified = self.verified.write();
        // Another request may have been faster: its holders keep their signal.
        if let Some(known) = verified.get(&hash) {
            return Some(known.entry.identity.clone());
        }
        if verified.len() >= VERIFIED_MAX {
            let idle = verified.iter().find(|(_, token)| !token.entry.is_in_use()).map(|(hash, _)| *hash)?;
            verified.remove(&idle);
        }
        let identity = entry.identity.clone();
        verified.insert(hash, VerifiedToken { entry, key });
        Some(identity)
    }

    /// Forgets tokens that have expired or whose key the issuer has withdrawn; this ends the logins that use them.
    pub(super) fn end_expired(&self, now_ms: i64) {
        let is_good = |token: &VerifiedToken| token.entry.is_valid(now_ms) && self.issuer.has_key(&token.key);
        if self.verified.read().values().all(is_good) {
            return;
        }
        self.verified.write().retain(|_, token| is_good(token));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    struct OneKey(AtomicBool);

    impl TokenIssuer for OneKey {
        fn check<'a>(&'a self, _: &'a str) -> Option<TokenCheck<'a>> {
            None
        }

        fn has_key(&self, key: &[u8; 32]) -> bool {
            *key == [1; 32] && self.0.load(Ordering::Relaxed)
        }
    }

    fn token(expires_ms: i64) -> IssuedToken {
        let roles = vec![RoleName::Reader];
        IssuedToken { name: "n".to_owned(), tenant: None, roles, expires_ms, key: [1; 32] }
    }

    fn hash(number: usize) -> [u8; 32] {
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&number.to_le_bytes());
        hash
    }

    #[test]
    fn a_token_ends_with_its_time_or_with_the_issuers_key() {
        let issuer = Arc::new(OneKey(AtomicBool::new(true)));
        let tokens = IssuedTokens::of(issuer.clone());
        let ends = |number: usize, expires_ms| tokens.add(hash(number), token(expires_ms)).unwrap().revocation.unwrap();
        let (short, long) = (ends(1, 1_000), ends(2, 9_000));
        assert!(tokens.holder(&hash(1), 999).is_some() && tokens.holder(&hash(1), 1_000).is_none());
        tokens.end_expired(1_000);
        assert!(short.is_revoked() && !long.is_revoked());
        issuer.0.store(false, Ordering::Relaxed);
        tokens.end_expired(1_001);
        assert!(long.is_revoked() && tokens.holder(&hash(2), 1_001).is_none());
    }

    #[test]
    fn a_token_in_use_keeps_its_place_and_idle_ones_give_theirs_up() {
        let tokens = IssuedTokens::of(Arc::new(OneKey(AtomicBool::new(true))));
        let used = tokens.add(hash(0), token(9)).unwrap();
        assert!((1..VERIFIED_MAX + 100).all(|number| tokens.add(hash(number), token(9)).is_some()));
        assert_eq!(tokens.verified.read().len(), VERIFIED_MAX);
        assert!(tokens.holder(&hash(0), 0).is_some() && !used.revocation.unwrap().is_revoked());
        let tokens = IssuedTokens::of(Arc::new(OneKey(AtomicBool::new(true))));
        let used: Vec<_> = (0..VERIFIED_MAX).map(|number| tokens.add(hash(number), token(9)).unwrap()).collect();
        assert!(tokens.add(hash(VERIFIED_MAX), token(9)).is_none());
        drop(used);
        assert!(tokens.add(hash(VERIFIED_MAX), token(9)).is_some());
    }
}
