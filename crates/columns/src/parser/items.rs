//! Lists of named values.

use std::collections::HashSet;

use super::expression::value;
use super::scope::Scope;
use super::within_items_max;
use crate::cursor::{Cursor, ParseError};
use crate::{Item, ParserLimits};

/// A list of items with different names.
pub struct Items<'a> {
    limits: &'a ParserLimits,
    /// The items that were read.
    pub read: Vec<Item>,
    names: HashSet<String>,
}

impl<'a> Items<'a> {
    /// An empty list of items.
    pub fn new(limits: &'a ParserLimits) -> Self {
        Self { limits, read: Vec::new(), names: HashSet::new() }
    }

    /// Parses one item and adds it.
    ///
    /// # Errors
    /// A diagnostic with the position of the error.
    pub fn read(&mut self, cursor: &mut Cursor<'_>, scope: Scope<'_>) -> Result<(), ParseError> {
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
