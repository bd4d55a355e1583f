//! What a query selects.

use millstream_columns::parser::{Items, Scope};
use millstream_columns::{Cursor, Limits, Refusal};

use super::Marks;
use crate::Select;

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
