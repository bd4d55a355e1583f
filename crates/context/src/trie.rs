//! A map whose versions share what is the same in them, made for single changes among very many items: entities by id,
//! subscriptions by id.
//!
//! A trie over hashes. A change copies the nodes on its way, because readers hold the version before it, and counts a
//! reference to each child of a copied node: these lie anywhere in memory, so that the count of siblings is what a change
//! costs among many items. Nodes are narrow for that.
//!
//! Always true: an item is in the leaf that its hash leads to; a branch has a child that is not empty.

use std::sync::Arc;

/// Bits of a hash that one branch looks at.
const BITS: u32 = 3;
const WIDTH: usize = 1 << BITS;
/// Items of a leaf, unless all have one hash.
const LEAF_MAX: usize = 8;

/// What a trie holds: cheap to clone, told apart from others that share its hash by its key.
pub(crate) trait Keyed: Clone {
    type Key: PartialEq + ?Sized;

    fn key(&self) -> &Self::Key;
}

/// See the module. Whoever uses it hashes, always in the same way.
#[derive(Debug, Clone)]
pub(crate) struct Trie<T>(Node<T>);

#[derive(Debug, Clone, Default)]
enum Node<T> {
    #[default]
    Empty,
    Leaf(Arc<[Slot<T>]>),
    Branch(Arc<[Node<T>; WIDTH]>),
}

#[derive(Debug, Clone)]
struct Slot<T> {
    hash: u64,
    item: T,
}

impl<T> Default for Trie<T> {
    fn default() -> Self {
        Self(Node::Empty)
    }
}

impl<T: Keyed> Trie<T> {
    /// All items of this hash.
    pub(crate) fn hashed(&self, hash: u64) -> impl Iterator<Item = &T> {
        self.0.leaf(hash).iter().filter(move |slot| slot.hash == hash).map(|slot| &slot.item)
    }

    /// Sets the one item of its key, whose hash is this; the one before.
    pub(crate) fn put(&mut self, hash: u64, item: T) -> Option<T> {
        self.0.put(0, Slot { hash, item })
    }

    /// Lets go of the item of this key, whose hash is this.
    pub(crate) fn remove(&mut self, hash: u64, key: &T::Key) {
        self.0.remove(0, hash, key);
    }
}

impl<T: Keyed> Node<T> {
    /// The leaf that a hash leads to.
    fn leaf(&self, hash: u64) -> &[Slot<T>] {
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

    fn put(&mut self, shift: u32, slot: Slot<T>) -> Option<T> {
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
                let others: Arc<[Slot<T>]> = others.map(|(_, slot)| slot.clone()).collect();
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

fn position<T: Keyed>(slots: &[Slot<T>], hash: u64, key: &T::Key) -> Option<usize> {
    slots.iter().position(|slot| slot.hash == hash && slot.item.key() == key)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A name and a version of it.
    type Named = ((u64, u8), usize);
    /// Versions by hash and kind.
    type Model = BTreeMap<(u64, u8), usize>;

    impl Keyed for Named {
        type Key = (u64, u8);

        fn key(&self) -> &(u64, u8) {
            &self.0
        }
    }

    fn shown(node: &Node<Named>, out: &mut Model) {
        match node {
            Node::Empty => {}
            Node::Leaf(slots) => out.extend(slots.iter().map(|slot| slot.item)),
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
