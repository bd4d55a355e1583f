//! Logins whose password has been checked, so that it is hashed once and not with every message.
//!
//! An entry is found by a fingerprint of the whole `Authorization` header: SHA-256 over a random key of this process
//! and the header. Whoever has an entry's fingerprint is logged in, so it must not be possible to make a second header
//! with the same one (SHA-256 has no known collision), and a list of fingerprints must not be worth guessing at (the key
//! is in no file). It costs less than a microsecond; a check of a password that is kept well costs some 20,000 times that.
//!
//! An entry names the version of the credentials it was checked against; whoever uses it compares that with the
//! registry, and where that has changed looks for the same hash. So nothing has to be removed when credentials change, a
//! change acts at once, and a secret that is added, or a date that is moved, makes nobody hash again.
//!
//! Bounded: each shard has two generations; when the younger is full it becomes the older, and the older one goes.
//! What was used meanwhile has moved to the younger, so what goes has not been used for long.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use foldhash::fast::RandomState;
use millstream_http::Identity;
use millstream_types::TenantId;
use parking_lot::RwLock;
use sha2::{Digest, Sha256};

use crate::registry::{AuthId, Credential, Version};

const SHARDS: usize = 16;

/// A login that was right.
pub(crate) struct Verified {
    pub(crate) tenant: TenantId,
    pub(crate) auth_id: AuthId,
    /// The version of the device's credentials that it was checked against.
    pub(crate) version: Version,
    /// The version with which these began.
    pub(crate) born: Version,
    pub(crate) credential: Arc<Credential>,
    /// Which of the credential's secrets matched.
    pub(crate) secret: usize,
    /// Who it is.
    pub(crate) identity: Identity,
    /// How far the registry's state reached when it was last seen to be as it was: nothing has changed until that moves.
    pub(crate) seen_at: AtomicU64,
}

/// Stands for one `Authorization` header.
pub(crate) type Fingerprint = [u8; 32];

/// All of them.
pub(crate) struct VerifiedLogins {
    key: [u8; 32],
    shards: Vec<RwLock<Shard>>,
    generation_max: usize,
}

/// Nobody who does not know the key chooses the fingerprints, so that a quick hash of them will do.
type Generation = HashMap<Fingerprint, Arc<Verified>, RandomState>;

#[derive(Default)]
struct Shard {
    young: Generation,
    old: Generation,
}

impl VerifiedLogins {
    pub(crate) fn new(max: usize) -> Self {
        let mut key = [0; 32];
        key[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        key[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        Self { key, shards, generation_max: (max / SHARDS / 2).max(1) }
    }

    pub(crate) fn fingerprint(&self, header: &[u8]) -> Fingerprint {
        let mut digest = Sha256::new();
        digest.update(self.key);
        digest.update(header);
        digest.finalize().into()
    }

    pub(crate) fn get(&self, fingerprint: &Fingerprint) -> Option<Arc<Verified>> {
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

    pub(crate) fn insert(&self, fingerprint: Fingerprint, verified: Arc<Verified>) {
        let mut shard = self.shard(&fingerprint).write();
        if shard.young.len() >= self.generation_max {
            shard.old = std::mem::take(&mut shard.young);
        }
        shard.old.remove(&fingerprint);
        shard.young.insert(fingerprint, verified);
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.read()).map(|shard| shard.young.len() + shard.old.len()).sum()
    }

    fn shard(&self, fingerprint: &Fingerprint) -> &RwLock<Shard> {
        &self.shards[usize::from(fingerprint[0]) % SHARDS]
    }
}
