//! The fields that the queries of one stream read, numbered, and how they are found in a payload.

use std::collections::HashMap;
use std::sync::Arc;

use crate::slab::Slab;
use crate::{Field, PathTree};

/// The fields of all queries of a stream.
#[derive(Debug, Default)]
pub struct FieldTable {
    slots: Slab<FieldSlot>,
    by_field: HashMap<Field, u32>,
    /// The field numbers of each query; most queries share a list.
    lists: Slab<List>,
    by_numbers: HashMap<Arc<[u32]>, u32>,
    /// One more than the highest number so far.
    end: usize,
    tree: PathTree,
    outdated: bool,
}

#[derive(Debug)]
struct FieldSlot {
    field: Field,
    uses: usize,
}

#[derive(Debug)]
struct List {
    numbers: Arc<[u32]>,
    uses: usize,
}

impl FieldTable {
    /// The list of the numbers of `fields`, for one more use.
    pub fn acquire_all(&mut self, fields: &[Field]) -> u32 {
        let numbers: Box<[u32]> = fields.iter().map(|field| self.acquire(field)).collect();
        if let Some(known) = self.by_numbers.get(&*numbers)
            && let Some(list) = self.lists.get_mut(*known)
        {
            list.uses += 1;
            return *known;
        }
        let numbers: Arc<[u32]> = numbers.into();
        let list = self.lists.insert(List { numbers: numbers.clone(), uses: 1 });
        self.by_numbers.insert(numbers, list);
        list
    }

    /// The numbers of the fields of a list.
    #[inline]
    pub fn list(&self, list: u32) -> &[u32] {
        self.lists.get(list).map_or(&[], |list| &list.numbers)
    }

    /// Ends one use of a list.
    pub fn release_all(&mut self, number: u32) {
        let Some(list) = self.lists.get_mut(number) else { return };
        list.uses -= 1;
        let (is_last, numbers) = (list.uses == 0, list.numbers.clone());
        if is_last {
            self.by_numbers.remove(&numbers);
            self.lists.remove(number);
        }
        numbers.iter().for_each(|field| self.release(*field));
    }

    /// The number of `field`, for one more use.
    fn acquire(&mut self, field: &Field) -> u32 {
        if let Some(number) = self.by_field.get(field)
            && let Some(slot) = self.slots.get_mut(*number)
        {
            slot.uses += 1;
            return *number;
        }
        let number = self.slots.insert(FieldSlot { field: field.clone(), uses: 1 });
        self.by_field.insert(field.clone(), number);
        self.end = self.end.max(number as usize + 1);
        self.outdated = true;
        number
    }

    /// Releases one use of a list.
    fn release(&mut self, number: u32) {
        let Some(slot) = self.slots.get_mut(number) else { return };
        slot.uses -= 1;
        if slot.uses == 0 {
            self.by_field.remove(&slot.field);
            self.slots.remove(number);
            self.outdated = true;
        }
    }

    /// True if the path tree is up to date.
    pub fn is_fresh(&self) -> bool {
        !self.outdated
    }

    /// Brings the tree up to date.
    pub fn refresh(&mut self) {
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
    #[inline]
    pub fn tree(&self) -> &PathTree {
        &self.tree
    }

    /// The field with this number.
    #[inline]
    pub fn field(&self, number: u32) -> Option<&Field> {
        self.slots.get(number).map(|slot| &slot.field)
    }

    /// True if no field is in use.
    pub fn is_empty(&self) -> bool {
        self.slots.len() == 0 && self.lists.len() == 0 && self.by_field.is_empty() && self.by_numbers.is_empty()
    }

    /// One more than the highest number.
    #[inline]
    pub fn end(&self) -> usize {
        self.end
    }
}
