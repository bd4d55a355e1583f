//! The fields that the queries of one stream read, numbered, and the order in which they are looked for.
//!
//! A field is *hot* if it must be known to decide which queries a record concerns, and *cold* if it is only read for
//! the few records that concern one. Hot fields are found in one pass over every payload; cold ones in a second pass
//! over those payloads only.

use std::collections::HashMap;

use crate::Field;
use crate::scan::PathTree;

/// How a query uses a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Hot,
    Cold,
}

/// The fields of all queries of a stream.
#[derive(Debug, Default)]
pub(crate) struct FieldTable {
    slots: Vec<Slot>,
    by_field: HashMap<Field, usize>,
    free: Vec<usize>,
    trees: Trees,
    outdated: bool,
}

#[derive(Debug)]
struct Slot {
    field: Field,
    hot_uses: usize,
    cold_uses: usize,
}

/// The paths to be found in a payload.
#[derive(Debug, Default)]
pub(crate) struct Trees {
    pub(crate) hot: PathTree,
    pub(crate) cold: PathTree,
}

impl FieldTable {
    /// The number of `field`, for one more use.
    pub(crate) fn acquire(&mut self, field: &Field, usage: Use) -> usize {
        let slot = match self.by_field.get(field) {
            Some(slot) => *slot,
            None => self.add(field),
        };
        self.change(slot, usage, |uses| uses + 1);
        slot
    }

    /// The number of `field`, if somebody uses it.
    pub(crate) fn slot(&self, field: &Field) -> Option<usize> {
        self.by_field.get(field).copied()
    }

    /// Ends one use.
    pub(crate) fn release(&mut self, slot: usize, usage: Use) {
        self.change(slot, usage, |uses| uses - 1);
        let Slot { field, hot_uses: 0, cold_uses: 0 } = &self.slots[slot] else {
            return;
        };
        self.by_field.remove(field);
        self.free.push(slot);
    }

    fn add(&mut self, field: &Field) -> usize {
        let fresh = Slot { field: field.clone(), hot_uses: 0, cold_uses: 0 };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot] = fresh;
                slot
            }
            None => {
                self.slots.push(fresh);
                self.slots.len() - 1
            }
        };
        self.by_field.insert(field.clone(), slot);
        slot
    }

    /// Changes a count; the trees are outdated if a path has moved.
    fn change(&mut self, slot: usize, usage: Use, change: impl FnOnce(usize) -> usize) {
        let slot = &mut self.slots[slot];
        let before = slot.place();
        let uses = match usage {
            Use::Hot => &mut slot.hot_uses,
            Use::Cold => &mut slot.cold_uses,
        };
        *uses = change(*uses);
        self.outdated |= before != slot.place();
    }

    /// Brings the trees up to date. Called before a batch, so that many changes cost one rebuild.
    pub(crate) fn refresh(&mut self) {
        if !std::mem::take(&mut self.outdated) {
            return;
        }
        self.trees = Trees::default();
        for (number, slot) in self.slots.iter().enumerate() {
            if let Field::Payload(steps) = &slot.field {
                match slot.place() {
                    Some(Use::Hot) => self.trees.hot.add(steps, number),
                    Some(Use::Cold) => self.trees.cold.add(steps, number),
                    None => {}
                }
            }
        }
    }

    pub(crate) fn trees(&self) -> &Trees {
        &self.trees
    }

    pub(crate) fn field(&self, slot: usize) -> &Field {
        &self.slots[slot].field
    }

    /// Whether the field is only looked for when it is asked for.
    pub(crate) fn is_cold(&self, slot: usize) -> bool {
        self.slots[slot].hot_uses == 0
    }

    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }
}

impl Slot {
    fn place(&self) -> Option<Use> {
        match (self.hot_uses, self.cold_uses) {
            (0, 0) => None,
            (0, _) => Some(Use::Cold),
            _ => Some(Use::Hot),
        }
    }
}
