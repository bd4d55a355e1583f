//! What a query selects.

use std::collections::HashSet;

use super::Marks;
use super::expression::value;
use super::scope::Scope;
use crate::cursor::{Cursor, Refusal};
use crate::{Item, Limits, Select};

/// What follows SELECT.
pub(super) fn select(cursor: &mut Cursor<'_>, limits: &Limits, marks: &mut Marks) -> Result<Select, Refusal> {
    if cursor.take_symbol("*") {
        return Ok(Select::All);
    }
    let mut items = Items::new(limits);
    loop {
        marks.items.push(cursor.mark());
        items.read(cursor, Scope::ITEM)?;
        if !cursor.take_symbol(",") {
            return Ok(Select::Items(items.read));
        }
    }
}

/// A list of items whose names are different.
pub(super) struct Items<'a> {
    limits: &'a Limits,
    pub(super) read: Vec<Item>,
    names: HashSet<String>,
}

impl<'a> Items<'a> {
    pub(super) fn new(limits: &'a Limits) -> Self {
        Self { limits, read: Vec::new(), names: HashSet::new() }
    }

    /// Reads one more.
    pub(super) fn read(&mut self, cursor: &mut Cursor<'_>, scope: Scope<'_>) -> Result<(), Refusal> {
        let mark = cursor.mark();
        let value = value(cursor, self.limits, scope)?;
        let alias = if cursor.take_word("AS") { Some(cursor.need_name("a name")?) } else { None };
        let item = Item { value, alias };
        let name = item.name();
        if self.names.contains(&name) {
            let message = format!("two selected fields are called '{name}'; rename one with AS");
            return Err(cursor.refuse_at(mark, message));
        }
        self.names.insert(name);
        self.read.push(item);
        super::within_items_max(cursor, mark, self.read.len(), self.limits)
    }
}
