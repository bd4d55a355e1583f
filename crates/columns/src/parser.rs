//! The language of expressions.

mod aggregate;
mod expression;
mod items;
mod operand;
mod path;
mod scope;

pub use expression::{condition, value};
pub use items::Items;
pub use scope::{Scope, named};

use crate::Limits;
use crate::cursor::{Cursor, Refusal};

/// Refuses a list of `count` values that is longer than [`Limits::items_max`].
///
/// # Errors
/// It is.
pub fn within_items_max(cursor: &Cursor<'_>, mark: usize, count: usize, limits: &Limits) -> Result<(), Refusal> {
    if count <= limits.items_max {
        return Ok(());
    }
    let message = format!("more than query.limits.items_max = {} values stand here; name fewer", limits.items_max);
    Err(cursor.refuse_at(mark, message))
}
