//! The entities of one partition, with all their indexes.
//!
//! Always true: an entity is in `by_id`, `by_creation`, `by_kind`, `by_path`, `by_attribute`, `by_modification` and, as
//! far as they apply, in the others, or in none. An update touches only the indexes of the changed parts.
//!
//! Equal sets of positions share memory: if all entities of a type have the same attributes, the sets of the type and
//! of its attributes are one ([`Entities::change_listed`]).

use std::sync::Arc;

use geo::{BoundingRect, Rect};
use imbl::{HashMap, OrdMap, OrdSet};
use millstream_types::TenantId;

use crate::index::blocks::Blocks;
use crate::index::places::Places;
use crate::index::{Built, Cells, Ids, Values};
use crate::model::entity::{Attribute, DATE_EXPIRES, Entity, Key, ListPosition};
use crate::model::geometry;

#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// Behind a pointer: a copied map node stays small, however large the entities of one tenant are.
    tenants: HashMap<TenantId, Arc<Entities>>,
}

/// Sets that are compared to find one with equal content.
const COMPARED_MAX: usize = 64;

/// Pairs in one block of modification times. Each update copies one block: 4 KiB at most.
const MODIFIED_MAX: usize = 256;

pub(crate) type Times = OrdSet<(i64, Option<ListPosition>)>;

#[derive(Debug, Clone, Default)]
pub(crate) struct Entities {
    by_id: Ids,
    by_creation: Places,
    by_kind: HashMap<Arc<str>, OfKind>,
    by_path: HashMap<Arc<str>, Places>,
    by_attribute: HashMap<Arc<str>, Places>,
    /// Modification times with the hashes of ids. Entities with the same hash and time share a pair.
    by_modification: Blocks<(i64, u64), MODIFIED_MAX>,
    by_expiry: Times,
    by_location: Cells,
    /// Value indexes of attributes that have been queried.
    by_value: HashMap<Arc<str>, Values>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct OfKind {
    pub(crate) places: Places,
    /// Names and types of attributes, with the number of entities that have them.
    pub(crate) shapes: OrdMap<(Arc<str>, Arc<str>), usize>,
}

/// A set that lists an entity regardless of its attributes' values.
#[derive(Clone, Copy)]
enum Listed<'a> {
    All,
    Kind(&'a Arc<str>),
    Path(&'a Arc<str>),
    Attribute(&'a Arc<str>),
}

impl<'a> Listed<'a> {
    fn of(entity: &'a Entity) -> impl Iterator<Item = Self> {
        let own = [Self::All, Self::Kind(&entity.key.kind), Self::Path(&entity.key.path)];
        own.into_iter().chain(entity.attributes.iter().map(|attribute| Self::Attribute(&attribute.name)))
    }
}

impl State {
    pub(crate) fn of(&self, tenant: &TenantId) -> Option<&Entities> {
        self.tenants.get(tenant).map(|entities| &**entities)
    }

    pub(crate) fn tenants(&self) -> impl Iterator<Item = (&TenantId, &Entities)> {
        self.tenants.iter().map(|(tenant, entities)| (tenant, &**entities))
    }

    pub(crate) fn count(&self) -> usize {
        self.tenants.values().map(|entities| entities.by_creation.len()).sum()
    }

    /// Inserts or replaces an entity.
    pub(crate) fn put(&mut self, tenant: &TenantId, entity: Arc<Entity>) {
        self.of_mut(tenant).put(entity);
    }

    pub(crate) fn remove(&mut self, tenant: &TenantId, key: &Key) {
        if let Some(entities) = self.tenants.get_mut(tenant).map(Arc::make_mut) {
            entities.remove(key);
            if entities.by_creation.is_empty() {
                self.tenants.remove(tenant);
            }
        }
    }

    /// Indexes the values of an attribute as far as `built` says.
    pub(crate) fn index(&mut self, tenant: &TenantId, attribute: &Arc<str>, built: &Built) {
        self.of_mut(tenant).index(attribute, built);
    }

    fn of_mut(&mut self, tenant: &TenantId) -> &mut Entities {
        if !self.tenants.contains_key(tenant) {
            self.tenants.insert(tenant.clone(), Arc::default());
        }
        Arc::make_mut(self.tenants.get_mut(tenant).expect("it has just been made sure that it is there"))
    }
}

impl Entities {
    /// All entities with this id, of any type, in any service path.
    pub(crate) fn with_id<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Arc<Entity>> {
        self.by_id.with_id(id)
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Entity>> {
        self.by_id.hashed(self.by_id.hash(&key.id)).find(|entity| *entity.key == *key)
    }

    pub(crate) fn places(&self) -> &Places {
        &self.by_creation
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = (&Arc<str>, &OfKind)> {
        self.by_kind.iter()
    }

    pub(crate) fn of_kind(&self, kind: &str) -> Option<&OfKind> {
        self.by_kind.get(kind)
    }

    /// All service paths, with their positions by creation.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (&Arc<str>, &Places)> {
        self.by_path.iter()
    }

    /// Positions of the entities that have the attribute, by creation.
    pub(crate) fn with_attribute(&self, name: &str) -> Option<&Places> {
        self.by_attribute.get(name)
    }

    /// The value index of an attribute, if it is complete.
    pub(crate) fn values(&self, attribute: &str) -> Option<&Values> {
        self.by_value.get(attribute).filter(|values| values.built == Built::Whole)
    }

    /// The value indexes, complete or not.
    pub(crate) fn indexed(&self) -> impl Iterator<Item = (&Arc<str>, &Values)> {
        self.by_value.iter()
    }

    /// Entities modified between two times, both included, by time.
    pub(crate) fn modified(&self, from_ms: i64, to_ms: i64) -> impl Iterator<Item = &Arc<Entity>> {
        let times = self.by_modification.from(Some((from_ms, 0))).take_while(move |(at_ms, _)| *at_ms <= to_ms);
        times.flat_map(|(at_ms, hash)| self.by_id.hashed(*hash).filter(move |entity| entity.modified_ms == *at_ms))
    }

    pub(crate) fn located(&self) -> &Cells {
        &self.by_location
    }

    /// Positions of expired entities, the earliest expiry first.
    pub(crate) fn expired(&self, now_ms: i64) -> impl Iterator<Item = &ListPosition> {
        let due = self.by_expiry.iter().take_while(move |(at_ms, _)| *at_ms <= now_ms);
        due.filter_map(|(_, place)| place.as_ref())
    }

    /// The progress of the index of `attribute` after the next `count` entities.
    pub(crate) fn next_built(&self, attribute: &str, count: usize) -> Built {
        let built = self.by_value.get(attribute).map(|values| values.built.clone()).unwrap_or_default();
        let last = match &built {
            Built::Whole => return Built::Whole,
            Built::Not => None,
            Built::UpTo(place) => Some(place),
        };
        self.by_creation.after(last).nth(count).map_or(Built::Whole, |place| Built::UpTo(place.clone()))
    }

    fn put(&mut self, entity: Arc<Entity>) {
        let place = entity.place();
        match self.by_id.put(entity.clone()) {
            Some(before) if before.created_us == entity.created_us => self.update(&before, &entity, &place),
            before => {
                // Compaction may have removed the record of the deletion in between: remove the older version's
                // position here.
                if let Some(before) = before {
                    self.leave(&before);
                }
                self.enter(&entity, &place);
            }
        }
    }

    fn remove(&mut self, key: &Key) {
        let Some(entity) = self.get(key).cloned() else { return };
        self.by_id.remove(key);
        self.leave(&entity);
    }

    /// Adds the entity to all indexes.
    fn enter(&mut self, entity: &Entity, place: &ListPosition) {
        self.change_listed(entity, |places| places.insert(place.clone()));
        self.by_modification.insert((entity.modified_ms, self.by_id.hash(&entity.key.id)));
        entity.attributes.iter().for_each(|attribute| self.describe(&entity.key.kind, attribute, place));
        self.locate(None, entity_area(entity), place);
    }

    /// Applies `change` to all sets that list the entity. Shared sets are changed once and stay shared.
    fn change_listed(&mut self, entity: &Entity, change: impl Fn(&mut Places)) {
        let listed: Vec<Listed<'_>> = Listed::of(entity).collect();
        let sets: Vec<Places> = listed.iter().map(|of| self.set(*of).clone()).collect();
        let first_like = |set: &Places| sets.iter().take(COMPARED_MAX).position(|other| other.is_one_with(set));
        let firsts: Vec<usize> = sets.iter().enumerate().map(|(at, set)| first_like(set).unwrap_or(at)).collect();
        drop(sets);
        let (lead, follow): (Vec<usize>, Vec<usize>) = (0..listed.len()).partition(|at| firsts[*at] == *at);
        // A set with a single reference is changed in place.
        follow.iter().for_each(|at| *self.set(listed[*at]) = Places::default());
        lead.iter().for_each(|at| change(self.set(listed[*at])));
        for at in follow {
            *self.set(listed[at]) = self.set(listed[firsts[at]]).clone();
        }
    }

    fn set(&mut self, of: Listed<'_>) -> &mut Places {
        match of {
            Listed::All => &mut self.by_creation,
            Listed::Kind(kind) => &mut self.by_kind.entry(kind.clone()).or_default().places,
            Listed::Path(path) => self.by_path.entry(path.clone()).or_default(),
            Listed::Attribute(name) => self.by_attribute.entry(name.clone()).or_default(),
        }
    }

    /// Removes the entity from all indexes.
    fn leave(&mut self, entity: &Entity) {
        let place = entity.place();
        self.locate(entity_area(entity), None, &place);
        entity.attributes.iter().for_each(|attribute| self.forget(&entity.key.kind, attribute, &place));
        self.forget_modified(entity, self.by_id.hash(&entity.key.id));
        self.change_listed(entity, |places| places.remove(&place));
        remove_if_empty(&mut self.by_path, &entity.key.path);
        entity.attributes.iter().for_each(|attribute| remove_if_empty(&mut self.by_attribute, &attribute.name));
        if self.by_kind.get(&entity.key.kind).is_some_and(|kind| kind.places.is_empty()) {
            self.by_kind.remove(&entity.key.kind);
        }
    }

    /// Updates the indexes from one version to the next: only the differences.
    fn update(&mut self, before: &Entity, after: &Entity, place: &ListPosition) {
        if before.modified_ms != after.modified_ms {
            let hash = self.by_id.hash(&after.key.id);
            self.forget_modified(before, hash);
            self.by_modification.insert((after.modified_ms, hash));
        }
        let mut may_have_moved = false;
        for (at, attribute) in after.attributes.iter().enumerate() {
            let in_place = before.attributes.get(at).filter(|known| known.name == attribute.name);
            match in_place.or_else(|| before.attribute(&attribute.name)) {
                Some(known) if known.has_value_of(attribute) && known.has_metadata_of(attribute) => {}
                Some(known) => {
                    may_have_moved |= geometry::is_geo(&known.kind) || geometry::is_geo(&attribute.kind);
                    self.exchange(&after.key.kind, known, attribute, place);
                }
                None => {
                    may_have_moved |= geometry::is_geo(&attribute.kind);
                    self.gain(&after.key.kind, attribute, place);
                }
            }
        }
        for known in &before.attributes {
            if after.attribute(&known.name).is_none() {
                may_have_moved |= geometry::is_geo(&known.kind);
                self.lose(&after.key.kind, known, place);
            }
        }
        if may_have_moved {
            self.locate(entity_area(before), entity_area(after), place);
        }
    }

    /// Removes the modification time of a replaced version, unless a current entity shares its pair.
    fn forget_modified(&mut self, gone: &Entity, hash: u64) {
        if !self.by_id.hashed(hash).any(|entity| entity.modified_ms == gone.modified_ms) {
            self.by_modification.remove(&(gone.modified_ms, hash));
        }
    }

    fn gain(&mut self, kind: &Arc<str>, attribute: &Attribute, place: &ListPosition) {
        self.set(Listed::Attribute(&attribute.name)).insert(place.clone());
        self.describe(kind, attribute, place);
    }

    fn describe(&mut self, kind: &Arc<str>, attribute: &Attribute, place: &ListPosition) {
        self.shape(kind, attribute, 1);
        self.value(None, Some(attribute), place);
    }

    fn lose(&mut self, kind: &Arc<str>, attribute: &Attribute, place: &ListPosition) {
        self.set(Listed::Attribute(&attribute.name)).remove(place);
        remove_if_empty(&mut self.by_attribute, &attribute.name);
        self.forget(kind, attribute, place);
    }

    fn forget(&mut self, kind: &Arc<str>, attribute: &Attribute, place: &ListPosition) {
        self.shape(kind, attribute, -1);
        self.value(Some(attribute), None, place);
    }

    fn exchange(&mut self, kind: &Arc<str>, before: &Attribute, after: &Attribute, place: &ListPosition) {
        if before.kind != after.kind {
            self.shape(kind, before, -1);
            self.shape(kind, after, 1);
        }
        if !before.has_value_of(after) {
            self.value(Some(before), Some(after), place);
        }
    }

    fn shape(&mut self, kind: &Arc<str>, attribute: &Attribute, more: isize) {
        let Some(of_kind) = self.by_kind.get_mut(kind) else { return };
        let key = (attribute.name.clone(), attribute.kind.clone());
        let count = of_kind.shapes.get(&key).copied().unwrap_or(0).saturating_add_signed(more);
        if count == 0 {
            of_kind.shapes.remove(&key);
        } else {
            of_kind.shapes.insert(key, count);
        }
    }

    fn value(&mut self, before: Option<&Attribute>, after: Option<&Attribute>, place: &ListPosition) {
        let Some(attribute) = before.or(after) else { return };
        if *attribute.name == *DATE_EXPIRES {
            for (attribute, is_in) in [(before, false), (after, true)] {
                let Some(at_ms) = attribute.and_then(Attribute::as_date) else { continue };
                match is_in {
                    false => drop(self.by_expiry.remove(&(at_ms, Some(place.clone())))),
                    true => drop(self.by_expiry.insert((at_ms, Some(place.clone())))),
                }
            }
        }
        if self.by_value.is_empty() {
            return;
        }
        if let Some(values) = self.by_value.get_mut(&attribute.name)
            && values.built.has(place)
        {
            before.into_iter().for_each(|attribute| values.remove(attribute, place));
            after.into_iter().for_each(|attribute| values.insert(attribute, place));
        }
    }

    fn locate(&mut self, before: Option<Rect>, after: Option<Rect>, place: &ListPosition) {
        if before != after {
            before.into_iter().for_each(|area| self.by_location.remove(area, place.clone()));
            after.into_iter().for_each(|area| self.by_location.insert(area, place.clone()));
        }
    }

    fn index(&mut self, attribute: &Arc<str>, built: &Built) {
        let mut values = self.by_value.get(attribute).cloned().unwrap_or_default();
        let last = match &values.built {
            Built::Whole => return,
            Built::Not => None,
            Built::UpTo(place) => Some(place.clone()),
        };
        for place in self.by_creation.after(last.as_ref()).take_while(|place| built.has(place)) {
            if let Some(attribute) = self.get(&place.key).and_then(|entity| entity.attribute(attribute)) {
                values.insert(attribute, place);
            }
        }
        values.built = built.clone();
        self.by_value.insert(attribute.clone(), values);
    }
}

fn remove_if_empty(index: &mut HashMap<Arc<str>, Places>, key: &Arc<str>) {
    if index.get(key).is_some_and(Places::is_empty) {
        index.remove(key);
    }
}

fn entity_area(entity: &Entity) -> Option<Rect> {
    entity.location()?.bounding_rect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entity(id: &str, kind: &str, created_us: i64) -> Arc<Entity> {
        Arc::new(Entity::new(Key { id: id.into(), kind: kind.into(), path: "/".into() }.into(), created_us))
    }

    fn with(id: usize, kind: &str, names: &[&str]) -> Arc<Entity> {
        let key = Key { id: format!("{id:04}").as_str().into(), kind: kind.into(), path: "/".into() };
        let attribute = |name: &&str| Attribute::new((*name).into(), "T".into(), "1".into(), Default::default());
        let attributes = names.iter().map(attribute).collect();
        Arc::new(Entity { attributes, ..Entity::new(key.into(), id as i64 / 7) })
    }

    #[test]
    fn sets_that_hold_the_same_take_memory_once() {
        let tenant = TenantId::default();
        let mut state = State::default();
        for id in 0..2_000 {
            let (kind, names) = if id % 2 == 0 { ("Room", ["a", "b"]) } else { ("Car", ["b", "c"]) };
            state.put(&tenant, with(id, kind, &names));
            // A reader holds every hundredth version.
            let held = (id % 100 == 0).then(|| state.clone());
            state.remove(&tenant, &with(id / 12 * 4, "Room", &[]).key);
            drop(held);
        }
        let places = |state: &State, kind: &str, name: &str| {
            let entities = state.of(&tenant).unwrap();
            let sets = [&entities.of_kind(kind).unwrap().places, entities.with_attribute(name).unwrap()];
            (sets.map(Places::len), sets[0].is_one_with(sets[1]))
        };
        let ([rooms, _], [cars, _]) = (places(&state, "Room", "a").0, places(&state, "Car", "c").0);
        assert_eq!((rooms, cars), (833, 1_000));
        assert!(places(&state, "Room", "a").1 && places(&state, "Car", "c").1);
        let entities = state.of(&tenant).unwrap();
        assert!(entities.places().is_one_with(entities.with_attribute("b").unwrap()));
        assert!(entities.paths().all(|(_, places)| places.is_one_with(entities.places())));

        state.put(&tenant, with(1, "Car", &["a", "b", "c"]));
        assert_eq!(places(&state, "Room", "a"), ([833, 834], false), "what differs has parted");
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
        assert_eq!(state.of(&tenant).unwrap().with_id("a").count(), 2);

        state.put(&tenant, entity("a", "Room", 9));
        assert_eq!(order(&state), ["a/Car", "b/Room", "a/Room"], "created again after a removal that nobody saw");
        assert_eq!(state.of(&tenant).unwrap().of_kind("Room").unwrap().places.len(), 2);

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
