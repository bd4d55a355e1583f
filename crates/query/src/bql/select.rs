//! The SELECT clause of a query.

use millstream_columns::parser::{Items, Scope};
use millstream_columns::{Cursor, ParseError, ParserLimits};

use super::marks::Marks;
use crate::Select;

/// Parses the list after SELECT: `*`, items, or items and `*` in any order.
pub(super) fn select(cursor: &mut Cursor<'_>, limits: &ParserLimits, marks: &mut Marks) -> Result<Select, ParseError> {
    let (mut items, mut holds_all) = (Items::new(limits), false);
    loop {
        let mark = cursor.mark();
        if cursor.take_symbol("*") {
            if std::mem::replace(&mut holds_all, true) {
                return Err(cursor.refuse_at(mark, "* is all members already; leave the second one out".to_owned()));
            }
        } else {
            marks.items.push(mark);
            items.read(cursor, Scope::ITEM)?;
        }
        if !cursor.take_symbol(",") {
            return Ok(match (holds_all, items.read) {
                (true, items) if items.is_empty() => Select::All,
                (true, items) => Select::WithAll(items),
                (false, items) => Select::Items(items),
            });
        }
    }
}
