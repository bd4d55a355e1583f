//! The index of entities by id.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use crate::index::trie::{Keyed, Trie};
use crate::model::entity::{Entity, Key};

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
    /// The hash of an id. Other ids may share it.
    pub(crate) fn hash(&self, id: &str) -> u64 {
        self.hasher.hash_one(id)
    }

    pub(crate) fn hashed(&self, hash: u64) -> impl Iterator<Item = &Arc<Entity>> {
        self.entities.hashed(hash)
    }

    pub(crate) fn with_id<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Arc<Entity>> {
        self.hashed(self.hash(id)).filter(move |entity| *entity.key.id == *id)
    }

    /// Inserts or replaces an entity and returns the version before.
    pub(crate) fn put(&mut self, entity: Arc<Entity>) -> Option<Arc<Entity>> {
        self.entities.put(self.hash(&entity.key.id), entity)
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        self.entities.remove(self.hash(&key.id), key);
    }
}
