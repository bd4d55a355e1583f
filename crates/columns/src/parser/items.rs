//! Lists of values that have names.

use std::collections::HashSet;

use super::expression::value;
use super::scope::Scope;
use super::within_items_max;
use crate::cursor::{Cursor, Refusal};
use crate::{Item, Limits};

/// A list of items whose names are different.
pub struct Items<'a> {
    limits: &'a Limits,
    /// What has been read.
    pub read: Vec<Item>,
    names: HashSet<String>,
}

impl<'a> Items<'a> {
    /// None yet.
    pub fn new(limits: &'a Limits) -> Self {
        Self { limits, read: Vec::new(), names: HashSet::new() }
    }

    /// Reads one more.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn read(&mut self, cursor: &mut Cursor<'_>, scope: Scope<'_>) -> Result<(), Refusal> {
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
        within_items_max(cursor, mark, self.read.len(), self.limits)
    }
}
