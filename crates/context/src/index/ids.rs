//! Entities by id.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use crate::entity::{Entity, Key};
use crate::trie::{Keyed, Trie};

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ids {
    entities: Trie<Arc<Entity>>,
    hasher: RandomState,
}

impl Keyed for Arc<Entity> {
    type Key = Key;

    fn key(&self) -> &Key {
        &self.key
    }
}

impl Ids {
    /// The number under which all entities with this id are found. Others may share it.
    pub(crate) fn hash(&self, id: &str) -> u64 {
        self.hasher.hash_one(id)
    }

    /// All entities whose ids have this hash.
    pub(crate) fn hashed(&self, hash: u64) -> impl Iterator<Item = &Arc<Entity>> {
        self.entities.hashed(hash)
    }

    /// All entities with this id.
    pub(crate) fn with_id<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Arc<Entity>> {
        self.hashed(self.hash(id)).filter(move |entity| *entity.key.id == *id)
    }

    /// Sets the one version of an entity; the one before.
    pub(crate) fn put(&mut self, entity: Arc<Entity>) -> Option<Arc<Entity>> {
        self.entities.put(self.hash(&entity.key.id), entity)
    }

    /// Lets go of an entity.
    pub(crate) fn remove(&mut self, key: &Key) {
        self.entities.remove(self.hash(&key.id), key);
    }
}
