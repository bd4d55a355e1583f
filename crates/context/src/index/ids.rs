//! Entities by id: a trie over the hashes of ids that shares its structure with earlier versions of itself.
//!
//! A change copies the nodes on its way, because readers hold the version before it, and counts a reference to each child
//! of a copied node: these lie anywhere in memory, so that the count of siblings is what a change costs among many entities.
//! Nodes are narrow for that.
//!
//! Always true: an entity is in the leaf that its id's hash leads to; a branch has a child that is not empty.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use crate::entity::{Entity, Key};

/// Bits of a hash that one branch looks at.
const BITS: u32 = 3;
const WIDTH: usize = 1 << BITS;
/// Entities of a leaf, unless all have one hash.
const LEAF_MAX: usize = 8;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ids {
    root: Node,
    hasher: RandomState,
}

#[derive(Debug, Clone, Default)]
enum Node {
    #[default]
    Empty,
    Leaf(Arc<[Slot]>),
    Branch(Arc<[Node; WIDTH]>),
}

#[derive(Debug, Clone)]
struct Slot {
    /// Of the entity's id.
    hash: u64,
    entity: Arc<Entity>,
}

impl Ids {
    /// The number under which all entities with this id are found. Others may share it.
    pub(crate) fn hash(&self, id: &str) -> u64 {
        self.hasher.hash_one(id)
    }

    /// All entities whose ids have this hash.
    pub(crate) fn hashed(&self, hash: u64) -> impl Iterator<Item = &Arc<Entity>> {
        self.root.leaf(hash).iter().filter(move |slot| slot.hash == hash).map(|slot| &slot.entity)
    }

    /// All entities with this id.
    pub(crate) fn with_id<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Arc<Entity>> {
        self.hashed(self.hash(id)).filter(move |entity| *entity.key.id == *id)
    }

    /// Sets the one version of an entity; the one before.
    pub(crate) fn put(&mut self, entity: Arc<Entity>) -> Option<Arc<Entity>> {
        let hash = self.hash(&entity.key.id);
        self.root.put(0, Slot { hash, entity })
    }

    /// Lets go of an entity.
    pub(crate) fn remove(&mut self, key: &Key) {
        let hash = self.hash(&key.id);
        self.root.remove(0, hash, key);
    }
}

impl Node {
    /// The leaf that a hash leads to.
    fn leaf(&self, hash: u64) -> &[Slot] {
        let (mut node, mut shift) = (self, 0);
        while let Self::Branch(children) = node {
            node = &children[child(hash, shift)];
            shift += BITS;
        }
        match node {
            Self::Leaf(slots) => slots,
            Self::Empty | Self::Branch(_) => &[],
        }
    }

    fn put(&mut self, shift: u32, slot: Slot) -> Option<Arc<Entity>> {
        let slots = match self {
            Self::Branch(children) => {
                return Arc::make_mut(children)[child(slot.hash, shift)].put(shift + BITS, slot);
            }
            Self::Leaf(slots) => slots,
            Self::Empty => {
                *self = Self::Leaf(Arc::new([slot]));
                return None;
            }
        };
        if let Some(at) = position(slots, slot.hash, &slot.entity.key) {
            let before = slots[at].entity.clone();
            match Arc::get_mut(slots) {
                Some(own) => own[at] = slot,
                None => {
                    let known = slots.iter().enumerate();
                    *slots = known.map(|(i, known)| if i == at { slot.clone() } else { known.clone() }).collect();
                }
            }
            return Some(before);
        }
        let more = slots.iter().cloned().chain([slot]);
        if slots.len() < LEAF_MAX || shift >= u64::BITS {
            *slots = more.collect();
        } else {
            let mut children: [Self; WIDTH] = Default::default();
            for slot in more {
                children[child(slot.hash, shift)].put(shift + BITS, slot);
            }
            *self = Self::Branch(Arc::new(children));
        }
        None
    }

    fn remove(&mut self, shift: u32, hash: u64, key: &Key) {
        match self {
            Self::Empty => {}
            Self::Leaf(slots) => {
                let Some(gone) = position(slots, hash, key) else { return };
                let others = slots.iter().enumerate().filter(|(at, _)| *at != gone);
                let others: Arc<[Slot]> = others.map(|(_, slot)| slot.clone()).collect();
                *self = if others.is_empty() { Self::Empty } else { Self::Leaf(others) };
            }
            Self::Branch(children) => {
                let children = Arc::make_mut(children);
                children[child(hash, shift)].remove(shift + BITS, hash, key);
                if children.iter().all(|child| matches!(child, Self::Empty)) {
                    *self = Self::Empty;
                }
            }
        }
    }
}

/// Which child of a branch that has passed `shift` bits a hash leads to.
fn child(hash: u64, shift: u32) -> usize {
    (hash >> shift) as usize % WIDTH
}

fn position(slots: &[Slot], hash: u64, key: &Key) -> Option<usize> {
    slots.iter().position(|slot| slot.hash == hash && *slot.entity.key == *key)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Versions by hash and type.
    type Model = BTreeMap<(u64, String), i64>;

    fn slot(hash: u64, kind: u8, version: i64) -> Slot {
        let key = Key { id: hash.to_string().into(), kind: kind.to_string().into(), path: "/".into() };
        Slot { hash, entity: Arc::new(Entity::new(key.into(), version)) }
    }

    fn shown(node: &Node, out: &mut Model) {
        match node {
            Node::Empty => {}
            Node::Leaf(slots) => out.extend(
                slots.iter().map(|slot| ((slot.hash, slot.entity.key.kind.to_string()), slot.entity.created_ms)),
            ),
            Node::Branch(children) => {
                assert!(children.iter().any(|child| !matches!(child, Node::Empty)));
                children.iter().for_each(|child| shown(child, out));
            }
        }
    }

    proptest! {
        /// Hashes that differ in their first bits, in their last, or not at all.
        #[test]
        fn it_holds_what_was_put_and_a_version_never_changes(
            steps in prop::collection::vec((any::<bool>(), 0..40_u64, any::<bool>(), 0..12_u8), 0..400),
        ) {
            let (mut root, mut model) = (Node::default(), Model::new());
            let mut held: Vec<(Node, Model)> = Vec::new();
            for (version, (is_put, number, is_high, kind)) in steps.into_iter().enumerate() {
                let hash = if is_high { number << 58 } else { number };
                let slot = slot(hash, kind, version as i64);
                let name = (hash, kind.to_string());
                if is_put {
                    let before = root.put(0, slot).map(|entity| entity.created_ms);
                    prop_assert_eq!(before, model.insert(name, version as i64));
                } else {
                    root.remove(0, hash, &slot.entity.key);
                    model.remove(&name);
                }
                let of_hash = root.leaf(hash).iter().filter(|slot| slot.hash == hash).count();
                prop_assert_eq!(of_hash, model.keys().filter(|(known, _)| *known == hash).count());
                if version % 16 == 0 {
                    held.push((root.clone(), model.clone()));
                }
            }
            held.push((root, model));
            for (node, model) in held {
                let mut found = Model::new();
                shown(&node, &mut found);
                prop_assert_eq!(found, model);
            }
        }
    }
}
