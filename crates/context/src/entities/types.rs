//! The types of entities with their counts and attributes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millstream_types::ServicePaths as Paths;

use crate::entities::state::Entities;
use crate::model::entity::DATE_EXPIRES;
use crate::model::json::push_string;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TypeInfo {
    pub(crate) count: usize,
    /// The types of each attribute.
    attributes: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    Whole,
    /// With empty lists of attribute types.
    NoAttributeTypes,
}

/// The types of all entities in these paths, alphabetically.
pub(crate) fn types(partitions: &[&Entities], paths: &Paths, now_ms: i64) -> BTreeMap<Arc<str>, TypeInfo> {
    let mut types: BTreeMap<Arc<str>, TypeInfo> = BTreeMap::new();
    let is_indexed = |entities: &Entities| paths.are_all() && entities.expired(now_ms).next().is_none();
    for entities in partitions {
        if is_indexed(entities) {
            for (kind, of_kind) in entities.kinds() {
                let info = types.entry(kind.clone()).or_default();
                info.count += of_kind.places.len();
                of_kind.shapes.keys().for_each(|(name, kind)| info.add(name, kind));
            }
            continue;
        }
        let here = entities.paths().filter(|(path, _)| paths.have(path));
        for place in here.flat_map(|(_, places)| places.blocks().flatten()) {
            let Some(entity) = entities.get(&place.key).filter(|entity| !entity.has_expired(now_ms)) else { continue };
            let info = types.entry(entity.key.kind.clone()).or_default();
            info.count += 1;
            entity.attributes.iter().for_each(|attribute| info.add(&attribute.name, &attribute.kind));
        }
    }
    types
}

impl TypeInfo {
    fn add(&mut self, name: &Arc<str>, kind: &Arc<str>) {
        if **name != *DATE_EXPIRES {
            self.attributes.entry(name.clone()).or_default().insert(kind.clone());
        }
    }

    /// Appends the type as a JSON object, with its name in a list.
    pub(crate) fn push(&self, name: Option<&str>, detail: Detail, out: &mut String) {
        out.push('{');
        if let Some(name) = name {
            out.push_str("\"type\":");
            push_string(name, out);
            out.push(',');
        }
        out.push_str("\"attrs\":{");
        for (name, kinds) in &self.attributes {
            if !out.ends_with('{') {
                out.push(',');
            }
            push_string(name, out);
            out.push_str(":{\"types\":[");
            for kind in kinds.iter().filter(|_| detail == Detail::Whole) {
                if !out.ends_with('[') {
                    out.push(',');
                }
                push_string(kind, out);
            }
            out.push_str("]}");
        }
        out.push_str("},\"count\":");
        out.push_str(&self.count.to_string());
        out.push('}');
    }
}
