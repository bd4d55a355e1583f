//! A value with the name under which a result has it.

use crate::{Expr, Field};

/// A selected value.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// Which.
    pub value: Expr,
    /// The name given by AS.
    pub alias: Option<String>,
}

impl Item {
    /// The name of the result row's member.
    pub fn name(&self) -> String {
        match (&self.alias, &self.value) {
            (Some(alias), _) => alias.clone(),
            (None, Expr::Field(field)) => field.default_name(),
            (None, value) => value.to_string(),
        }
    }

    /// The field, if it is one as it is.
    pub fn field(&self) -> Option<&Field> {
        match &self.value {
            Expr::Field(field) => Some(field),
            _ => None,
        }
    }
}
