use std::borrow::Cow;

use serde_json::{Map, Value};

/// The source of the names in an expression.
pub trait Names {
    /// Returns the value of a name; `None` if there is none. That is not null: an operation with a name without a value
    /// is null whatever the operation is.
    fn value(&self, name: &str) -> Option<Cow<'_, Value>>;
}

impl Names for Map<String, Value> {
    fn value(&self, name: &str) -> Option<Cow<'_, Value>> {
        self.get(name).map(Cow::Borrowed)
    }
}
