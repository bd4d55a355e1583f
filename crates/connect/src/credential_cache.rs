//! Caches logins whose password was checked, so that a password is hashed once and not for every message.
//!
//! The key of an entry is a fingerprint of all that the client has shown: SHA-256 over a random key of this process
//! and the `Authorization` header, the chain of certificates, or user name and password. A caller with a cached fingerprint is logged in. SHA-256 has no known collision, so nothing else
//! gets the same fingerprint, and the random key is in no file, so a leaked list of fingerprints cannot be guessed at.
//! A fingerprint costs less than a microsecond; checking a slow password hash costs about 20,000 times that.
//!
//! An entry holds the version of the credentials that it was checked against. The login compares that version with the
//! registry, and after a change it looks for the same hash. A change of credentials therefore acts at once without
//! removing entries, and a new secret or a moved date does not cause another hash.
//!
//! The cache is bounded: each shard has two generations. A full young generation replaces the old one. A hit moves its
//! entry to the young generation, so only entries without recent use are dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use foldhash::fast::RandomState;
use millstream_http::Identity;
use millstream_types::TenantId;
use parking_lot::RwLock;
use sha2::{Digest, Sha256};

use crate::registry::{Anchor, AuthId, Credential, Version};

const SHARDS: usize = 16;

/// A login whose password, certificate or token was right.
pub(crate) struct CachedLogin {
    pub(crate) tenant: TenantId,
    pub(crate) auth_id: AuthId,
    /// Version of the credentials at the check.
    pub(crate) version: Version,
    /// Version at which the device's credentials were created.
    pub(crate) born: Version,
    pub(crate) credential: Arc<Credential>,
    /// Index of the matching secret in the credential.
    pub(crate) secret: usize,
    /// The tenant's trust anchor that makes the shown certificate count.
    pub(crate) anchor: Option<Anchor>,
    /// The last moment of the shown certificate or token, in milliseconds since 1970.
    pub(crate) proof_ends_ms: i64,
    pub(crate) identity: Identity,
    /// Registry position at the last comparison; the entry is current while the registry stays there.
    pub(crate) seen_at: AtomicU64,
}

impl CachedLogin {
    /// True if the secret, and the certificate or token that was shown, count at this moment.
    pub(crate) fn is_valid_at(&self, now_ms: i64) -> bool {
        now_ms <= self.proof_ends_ms && self.credential.secrets[self.secret].is_valid_at(now_ms)
    }

    /// True if one of the anchors admits the shown certificate; also if none was shown.
    pub(crate) fn is_vouched_for(&self, anchors: &[Anchor]) -> bool {
        let is_it = |anchor: &Anchor| anchors.iter().any(|known| known.admits_like(anchor));
        self.anchor.as_ref().is_none_or(is_it)
    }

    /// The last moment at which the login counts; `None` if it has no end.
    pub(crate) fn ends_ms(&self) -> Option<i64> {
        let secret_ends_ms = self.credential.secrets[self.secret].not_after.map_or(i64::MAX, |end| end.0);
        Some(secret_ends_ms.min(self.proof_ends_ms)).filter(|end| *end != i64::MAX)
    }
}

/// Fingerprint of what a client has shown.
pub(crate) type Fingerprint = [u8; 32];

/// Bounded cache of checked logins.
pub(crate) struct CredentialCache {
    key: [u8; 32],
    shards: Vec<RwLock<CacheShard>>,
    generation_max: usize,
}

/// A fast hash is safe here, because a client without the key cannot choose fingerprints.
type Generation = HashMap<Fingerprint, Arc<CachedLogin>, RandomState>;

#[derive(Default)]
struct CacheShard {
    young: Generation,
    old: Generation,
}

impl CredentialCache {
    pub(crate) fn new(max: usize) -> Self {
        let mut key = [0; 32];
        key[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        key[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        Self { key, shards, generation_max: (max / SHARDS / 2).max(1) }
    }

    pub(crate) fn fingerprint(&self, shown: &[u8]) -> Fingerprint {
        self.fingerprint_of(std::iter::once(shown))
    }

    /// The fingerprint of several parts, each of which has a length of its own or a mark at its end.
    pub(crate) fn fingerprint_of<'a>(&self, parts: impl Iterator<Item = &'a [u8]>) -> Fingerprint {
        let mut digest = Sha256::new();
        digest.update(self.key);
        parts.for_each(|part| digest.update(part));
        digest.finalize().into()
    }

    pub(crate) fn get(&self, fingerprint: &Fingerprint) -> Option<Arc<CachedLogin>> {
        let shard = self.shard(fingerprint);
        let old = {
            let shard = shard.read();
            if let Some(found) = shard.young.get(fingerprint) {
                return Some(found.clone());
            }
            shard.old.get(fingerprint)?.clone()
        };
        self.insert(*fingerprint, old.clone());
        Some(old)
    }

    pub(crate) fn insert(&self, fingerprint: Fingerprint, login: Arc<CachedLogin>) {
        let mut shard = self.shard(&fingerprint).write();
        if shard.young.len() >= self.generation_max {
            shard.old = std::mem::take(&mut shard.young);
        }
        shard.old.remove(&fingerprint);
        shard.young.insert(fingerprint, login);
    }

    pub(crate) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.read()).map(|shard| shard.young.len() + shard.old.len()).sum()
    }

    fn shard(&self, fingerprint: &Fingerprint) -> &RwLock<CacheShard> {
        &self.shards[usize::from(fingerprint[0]) % SHARDS]
    }
}
