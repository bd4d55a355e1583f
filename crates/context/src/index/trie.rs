//! A persistent map for single changes among very many items: entities by id, subscriptions by id.
//!
//! A trie over hashes. A change copies the nodes on its path, because readers hold the version before, and increments
//! the reference count of each child of a copied node. These children are scattered in memory, so their number
//! dominates the cost of a change: nodes are narrow.
//!
//! Always true: an item is in the leaf of its hash; a branch has a child that is not empty.

use std::sync::Arc;

/// Bits of a hash that one branch consumes.
const BITS: u32 = 3;
const WIDTH: usize = 1 << BITS;
/// Items of a leaf, unless all have the same hash.
const LEAF_MAX: usize = 8;

/// An item of a trie: cheap to clone, with a key that tells items with equal hashes apart.
pub(crate) trait Keyed: Clone {
    type Key: PartialEq + ?Sized;

    fn key(&self) -> &Self::Key;
}

/// The caller computes the hashes, always in the same way.
#[derive(Debug, Clone)]
pub(crate) struct Trie<T>(TrieNode<T>);

#[derive(Debug, Clone, Default)]
enum TrieNode<T> {
    #[default]
    Empty,
    Leaf(Arc<[TrieSlot<T>]>),
    Branch(Arc<[TrieNode<T>; WIDTH]>),
}

#[derive(Debug, Clone)]
struct TrieSlot<T> {
    hash: u64,
    item: T,
}

impl<T> Default for Trie<T> {
    fn default() -> Self {
        Self(TrieNode::Empty)
    }
}

impl<T: Keyed> Trie<T> {
    pub(crate) fn hashed(&self, hash: u64) -> impl Iterator<Item = &T> {
        self.0.leaf(hash).iter().filter(move |slot| slot.hash == hash).map(|slot| &slot.item)
    }

    /// Inserts or replaces the item with this hash and returns the item before.
    pub(crate) fn put(&mut self, hash: u64, item: T) -> Option<T> {
        self.0.put(0, TrieSlot { hash, item })
    }

    /// Removes the item with this key and hash.
    pub(crate) fn remove(&mut self, hash: u64, key: &T::Key) {
        self.0.remove(0, hash, key);
    }
}

impl<T: Keyed> TrieNode<T> {
    fn leaf(&self, hash: u64) -> &[TrieSlot<T>] {
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

    fn put(&mut self, shift: u32, slot: TrieSlot<T>) -> Option<T> {
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
        if let Some(at) = position(slots, slot.hash, slot.item.key()) {
            let before = slots[at].item.clone();
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
            let mut children: [Self; WIDTH] = std::array::from_fn(|_| Self::Empty);
            for slot in more {
                children[child(slot.hash, shift)].put(shift + BITS, slot);
            }
            *self = Self::Branch(Arc::new(children));
        }
        None
    }

    fn remove(&mut self, shift: u32, hash: u64, key: &T::Key) {
        match self {
            Self::Empty => {}
            Self::Leaf(slots) => {
                let Some(gone) = position(slots, hash, key) else { return };
                let others = slots.iter().enumerate().filter(|(at, _)| *at != gone);
                let others: Arc<[TrieSlot<T>]> = others.map(|(_, slot)| slot.clone()).collect();
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

/// The child of a branch at depth `shift` for a hash.
fn child(hash: u64, shift: u32) -> usize {
    (hash >> shift) as usize % WIDTH
}

fn position<T: Keyed>(slots: &[TrieSlot<T>], hash: u64, key: &T::Key) -> Option<usize> {
    slots.iter().position(|slot| slot.hash == hash && slot.item.key() == key)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Named = ((u64, u8), usize);
    type Model = BTreeMap<(u64, u8), usize>;

    impl Keyed for Named {
        type Key = (u64, u8);

        fn key(&self) -> &(u64, u8) {
            &self.0
        }
    }

    fn shown(node: &TrieNode<Named>, out: &mut Model) {
        match node {
            TrieNode::Empty => {}
            TrieNode::Leaf(slots) => out.extend(slots.iter().map(|slot| slot.item)),
            TrieNode::Branch(children) => {
                assert!(children.iter().any(|child| !matches!(child, TrieNode::Empty)));
                children.iter().for_each(|child| shown(child, out));
            }
        }
    }

    proptest! {
        /// Hashes differ in their first bits, in their last bits, or not at all.
        #[test]
        fn a_trie_holds_its_entries_and_a_version_never_changes(
            steps in prop::collection::vec((any::<bool>(), 0..40_u64, any::<bool>(), 0..12_u8), 0..400),
        ) {
            let (mut trie, mut model) = (Trie::default(), Model::new());
            let mut held: Vec<(Trie<Named>, Model)> = Vec::new();
            for (version, (is_put, number, is_high, kind)) in steps.into_iter().enumerate() {
                let hash = if is_high { number << 58 } else { number };
                let name = (hash, kind);
                if is_put {
                    let before = trie.put(hash, (name, version)).map(|(_, version)| version);
                    prop_assert_eq!(before, model.insert(name, version));
                } else {
                    trie.remove(hash, &name);
                    model.remove(&name);
                }
                let of_hash = trie.hashed(hash).count();
                prop_assert_eq!(of_hash, model.keys().filter(|(known, _)| *known == hash).count());
                if version % 16 == 0 {
                    held.push((trie.clone(), model.clone()));
                }
            }
            held.push((trie, model));
            for (trie, model) in held {
                let mut found = Model::new();
                shown(&trie.0, &mut found);
                prop_assert_eq!(found, model);
            }
        }
    }
}
