//! The names of selected values.

use crate::expr::{Expr, Item};
use crate::field::Field;

impl Item {
    /// The member name in the result row.
    pub fn name(&self) -> String {
        match (&self.alias, &self.value) {
            (Some(alias), _) => alias.clone(),
            (None, Expr::Field(field)) => field.default_name(),
            (None, value) => value.to_string(),
        }
    }

    /// The field, if the item is a plain field.
    pub fn field(&self) -> Option<&Field> {
        match &self.value {
            Expr::Field(field) => Some(field),
            _ => None,
        }
    }
}
