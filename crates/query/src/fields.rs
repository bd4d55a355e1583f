//! The fields that the queries of one stream read, numbered, and how they are found in a payload.

use std::collections::HashMap;

use millstream_columns::{Field, PathTree};

use crate::slab::Slab;

/// The fields of all queries of a stream.
#[derive(Debug, Default)]
pub(crate) struct FieldTable {
    slots: Slab<Slot>,
    by_field: HashMap<Field, u32>,
    /// One more than the highest number so far.
    end: usize,
    tree: PathTree,
    outdated: bool,
}

#[derive(Debug)]
struct Slot {
    field: Field,
    uses: usize,
}

impl FieldTable {
    /// The number of `field`, for one more use.
    pub(crate) fn acquire(&mut self, field: &Field) -> u32 {
        if let Some(number) = self.by_field.get(field)
            && let Some(slot) = self.slots.get_mut(*number)
        {
            slot.uses += 1;
            return *number;
        }
        let number = self.slots.insert(Slot { field: field.clone(), uses: 1 });
        self.by_field.insert(field.clone(), number);
        self.end = self.end.max(number as usize + 1);
        self.outdated = true;
        number
    }

    /// Ends one use.
    pub(crate) fn release(&mut self, number: u32) {
        let Some(slot) = self.slots.get_mut(number) else { return };
        slot.uses -= 1;
        if slot.uses == 0 {
            self.by_field.remove(&slot.field);
            self.slots.remove(number);
            self.outdated = true;
        }
    }

    /// Brings the tree up to date. Called before a batch, so that many changes cost one rebuild.
    pub(crate) fn refresh(&mut self) {
        if !std::mem::take(&mut self.outdated) {
            return;
        }
        self.tree = PathTree::default();
        for (field, number) in &self.by_field {
            if let Field::Payload(steps) = field {
                self.tree.add(steps, *number as usize);
            }
        }
    }

    /// The paths of all fields in the payload.
    pub(crate) fn tree(&self) -> &PathTree {
        &self.tree
    }

    pub(crate) fn field(&self, number: u32) -> Option<&Field> {
        self.slots.get(number).map(|slot| &slot.field)
    }

    /// One more than the highest number.
    pub(crate) fn end(&self) -> usize {
        self.end
    }
}
