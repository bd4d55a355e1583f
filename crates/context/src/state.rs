//! The entities of one partition, found by id and listed by creation.
//!
//! Always true: an entity is in `by_id`, in `by_creation` and in `by_kind` of its type, or in none of them. An update
//! touches `by_id` only: places do not change while an entity lives.

use std::sync::Arc;

use imbl::HashMap;
use millstream_types::TenantId;

use crate::entity::{Entity, Key, Place};
use crate::places::Places;

/// The entities of all tenants in one partition.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    tenants: HashMap<TenantId, Entities>,
}

/// The entities of one tenant in one partition.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entities {
    /// All entities that share an id; seldom more than one.
    by_id: HashMap<Arc<str>, Arc<[Arc<Entity>]>>,
    by_creation: Places,
    by_kind: HashMap<Arc<str>, Places>,
}

impl State {
    /// What `tenant` has here, if anything.
    pub(crate) fn of(&self, tenant: &TenantId) -> Option<&Entities> {
        self.tenants.get(tenant)
    }

    /// All entities of all tenants.
    pub(crate) fn count(&self) -> usize {
        self.tenants.values().map(|entities| entities.by_creation.len()).sum()
    }

    /// Sets the one version of an entity.
    pub(crate) fn put(&mut self, tenant: &TenantId, entity: Arc<Entity>) {
        self.tenants.entry(tenant.clone()).or_default().put(entity);
    }

    /// Lets go of an entity.
    pub(crate) fn remove(&mut self, tenant: &TenantId, key: &Key) {
        if let Some(entities) = self.tenants.get_mut(tenant) {
            entities.remove(key);
            if entities.by_creation.is_empty() {
                self.tenants.remove(tenant);
            }
        }
    }
}

impl Entities {
    /// All entities with this id, of any type, in any service path.
    pub(crate) fn with_id(&self, id: &str) -> &[Arc<Entity>] {
        self.by_id.get(id).map_or(&[], |same| same)
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Entity>> {
        self.with_id(&key.id).iter().find(|entity| *entity.key == *key)
    }

    /// Places of all entities, by creation.
    pub(crate) fn places(&self) -> &Places {
        &self.by_creation
    }

    /// Places of the entities of one type, by creation.
    pub(crate) fn places_of(&self, kind: &str) -> Option<&Places> {
        self.by_kind.get(kind)
    }

    fn put(&mut self, entity: Arc<Entity>) {
        let place = entity.place();
        match self.get(&entity.key).map(|before| before.place()) {
            Some(before) if before == place => {}
            before => {
                // Compaction may have taken the removal in between: the older version's place goes here.
                if let Some(before) = before {
                    self.remove_place(&before);
                }
                self.by_kind.entry(place.key.kind.clone()).or_default().insert(place.clone());
                self.by_creation.insert(place);
            }
        }
        let others = self.with_id(&entity.key.id).iter().filter(|other| other.key != entity.key).cloned();
        let id = entity.key.id.clone();
        let same: Arc<[Arc<Entity>]> = others.chain([entity.clone()]).collect();
        self.by_id.insert(id, same);
    }

    fn remove(&mut self, key: &Key) {
        let Some(place) = self.get(key).map(|entity| entity.place()) else { return };
        self.remove_place(&place);
        let others: Arc<[Arc<Entity>]> =
            self.with_id(&key.id).iter().filter(|other| *other.key != *key).cloned().collect();
        if others.is_empty() {
            self.by_id.remove(&key.id);
        } else {
            self.by_id.insert(key.id.clone(), others);
        }
    }

    fn remove_place(&mut self, place: &Place) {
        self.by_creation.remove(place);
        if let Some(places) = self.by_kind.get_mut(&place.key.kind) {
            places.remove(place);
            if places.is_empty() {
                self.by_kind.remove(&place.key.kind);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entity(id: &str, kind: &str, created_ms: i64) -> Arc<Entity> {
        Arc::new(Entity::new(Key { id: id.into(), kind: kind.into(), path: "/".into() }.into(), created_ms))
    }

    #[test]
    fn an_entity_is_in_every_index_or_in_none() {
        let tenant = TenantId::default();
        let mut state = State::default();
        state.put(&tenant, entity("a", "Room", 2));
        state.put(&tenant, entity("a", "Car", 1));
        state.put(&tenant, entity("b", "Room", 3));
        let order = |state: &State| -> Vec<String> {
            let entities = state.of(&tenant).unwrap();
            entities.places().blocks().flatten().map(|place| format!("{}/{}", place.key.id, place.key.kind)).collect()
        };
        assert_eq!(order(&state), ["a/Car", "a/Room", "b/Room"]);
        assert_eq!(state.of(&tenant).unwrap().with_id("a").len(), 2);

        state.put(&tenant, entity("a", "Room", 9));
        assert_eq!(order(&state), ["a/Car", "b/Room", "a/Room"], "created again after a removal that nobody saw");
        assert_eq!(state.of(&tenant).unwrap().places_of("Room").unwrap().len(), 2);

        let before = state.clone();
        state.remove(&tenant, &entity("a", "Room", 0).key);
        state.remove(&tenant, &entity("nobody", "Room", 0).key);
        assert_eq!(order(&state), ["a/Car", "b/Room"]);
        assert_eq!(before.count(), 3, "a snapshot does not change");
        for key in [&entity("a", "Car", 0).key, &entity("b", "Room", 0).key] {
            state.remove(&tenant, key);
        }
        assert!(state.of(&tenant).is_none());
    }
}
