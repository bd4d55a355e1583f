//! Property test: all indexes of a partition against a model that scans the entities.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use millstream_types::TenantId;
use proptest::prelude::*;

use crate::entities::state::{Entities, State};
use crate::index::{Built, IndexValue};
use crate::model::entity::{Attribute, Entity, Key, ListPosition};

#[derive(Debug, Clone)]
enum IndexStep {
    Put { id: u8, created_us: i64, modified_ms: i64, attributes: Vec<(u8, u8)> },
    Remove { id: u8 },
    Index { count: usize },
}

fn step() -> impl Strategy<Value = IndexStep> {
    let attributes = prop::collection::vec((0..4_u8, 0..6_u8), 0..4);
    prop_oneof![
        6 => (0..12_u8, 0..3_i64, 0..50_i64, attributes)
            .prop_map(|(id, created_us, modified_ms, attributes)| IndexStep::Put { id, created_us, modified_ms, attributes }),
        2 => (0..12_u8).prop_map(|id| IndexStep::Remove { id }),
        1 => (1..5_usize).prop_map(|count| IndexStep::Index { count }),
    ]
}

fn key(id: u8) -> Arc<Key> {
    let kind = ["A", "B"][usize::from(id % 2)];
    let path = ["/", "/p"][usize::from(id / 2 % 2)];
    Arc::new(Key { id: format!("e{}", id / 4).into(), kind: kind.into(), path: path.into() })
}

/// Attributes named "a", "geo", "dateExpires" and "x", with values of every kind.
fn attribute(name: u8, value: u8) -> Attribute {
    let (name, kind, value) = match name {
        0 => ("a", "Any", ["1", "\"x\"", "null", "true", "[1,2,1]", "{}"][usize::from(value)].to_owned()),
        1 => ("geo", "geo:point", format!("\"{value},{value}\"")),
        2 => ("dateExpires", "DateTime", format!("\"1970-01-01T00:00:0{value}.000Z\"")),
        _ => ("x", ["K", "L"][usize::from(value % 2)], value.to_string()),
    };
    Attribute::new(name.into(), kind.into(), value.into(), Default::default())
}

fn check(entities: &Entities, model: &BTreeMap<Key, Arc<Entity>>) {
    let all: BTreeSet<ListPosition> = model.values().map(|entity| entity.place()).collect();
    let places = |found: Vec<&ListPosition>| found.into_iter().cloned().collect::<BTreeSet<_>>();
    assert_eq!(places(entities.places().blocks().flatten().collect()), all);
    for name in ["a", "geo", "dateExpires", "x"] {
        let having = model.values().filter(|entity| entity.attribute(name).is_some()).map(|entity| entity.place());
        let found = entities.with_attribute(name).map(|places| places.blocks().flatten().collect()).unwrap_or_default();
        assert_eq!(places(found), having.collect(), "attribute {name}");
    }
    for path in ["/", "/p"] {
        let found = entities.paths().filter(|(known, _)| ***known == *path).flat_map(|(_, p)| p.blocks().flatten());
        let within = all.iter().filter(|place| *place.key.path == *path).cloned();
        assert_eq!(places(found.collect()), within.collect(), "path {path}");
    }
    for kind in ["A", "B"] {
        let mut shapes: BTreeMap<(Arc<str>, Arc<str>), usize> = BTreeMap::new();
        for entity in model.values().filter(|entity| *entity.key.kind == *kind) {
            for attribute in &entity.attributes {
                *shapes.entry((attribute.name.clone(), attribute.kind.clone())).or_default() += 1;
            }
        }
        let found = entities.of_kind(kind).map(|kind| kind.shapes.clone().into_iter().collect()).unwrap_or_default();
        assert_eq!(shapes, found, "shapes of {kind}");
    }
    for (from, to) in [(i64::MIN, i64::MAX), (10, 30)] {
        let within = model.values().filter(|entity| (from..=to).contains(&entity.modified_ms));
        let mut modified: Vec<_> = within.map(|entity| (entity.modified_ms, entity.place())).collect();
        modified.sort_unstable();
        let mut found: Vec<_> =
            entities.modified(from, to).map(|entity| (entity.modified_ms, entity.place())).collect();
        assert!(found.is_sorted_by_key(|(at_ms, _)| *at_ms));
        found.sort_unstable();
        assert_eq!(found, modified, "modified");
    }
    let expired = model.values().filter(|entity| entity.has_expired(3_000)).map(|entity| entity.place());
    assert_eq!(places(entities.expired(3_000).collect()), expired.collect(), "expired");
    let located = model.values().filter(|entity| entity.location().is_some()).map(|entity| entity.place());
    assert_eq!(places(entities.located().all().collect()), located.collect(), "located");
    if let Some(values) = entities.values("a") {
        let ones = model.values().filter(|entity| {
            entity.attribute("a").is_some_and(|attribute| matches!(&*attribute.value, "1" | "[1,2,1]"))
        });
        let one = IndexValue::Number(1.0);
        let found = values.between(&one, Bound::Included(&one)).collect();
        assert_eq!(places(found), ones.map(|entity| entity.place()).collect(), "a==1");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn all_indexes_agree_with_the_entities(steps in prop::collection::vec(step(), 1..60)) {
        let tenant = TenantId::default();
        let (mut state, mut model): (State, BTreeMap<Key, Arc<Entity>>) = (State::default(), BTreeMap::new());
        for step in steps {
            match step {
                IndexStep::Put { id, created_us, modified_ms, attributes } => {
                    let mut entity = Entity::new(key(id), created_us);
                    entity.modified_ms = modified_ms;
                    for (name, value) in attributes {
                        let attribute = attribute(name, value);
                        if entity.attribute(&attribute.name).is_none() {
                            entity.attributes.push(attribute);
                        }
                    }
                    let entity = Arc::new(entity);
                    state.put(&tenant, entity.clone());
                    model.insert((*entity.key).clone(), entity);
                }
                IndexStep::Remove { id } => {
                    state.remove(&tenant, &key(id));
                    model.remove(&*key(id));
                }
                IndexStep::Index { count } => {
                    let built = state.of(&tenant).map_or(Built::Whole, |entities| entities.next_built("a", count));
                    state.index(&tenant, &"a".into(), &built);
                }
            }
            match state.of(&tenant) {
                Some(entities) => check(entities, &model),
                None => prop_assert!(model.is_empty()),
            }
        }
    }
}
