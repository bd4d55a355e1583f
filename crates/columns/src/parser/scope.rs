//! The names and aggregates that an expression may use, by clause.

use crate::{Expr, Field, Item};

/// The scope of an expression: its clause.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// The reason why aggregates are refused here, if they are.
    pub(super) no_aggregates: Option<&'static str>,
    /// Functions may look back at the earlier records of a key.
    pub(super) looks_back: bool,
    items: &'a [Item],
    keys: &'a [Expr],
}

impl<'a> Scope<'a> {
    /// The scope of an item in SELECT.
    pub const ITEM: Self = Self { no_aggregates: None, looks_back: false, items: &[], keys: &[] };
    /// The scope of the WHERE clause.
    pub const FILTER: Self = Self::without_aggregates("WHERE chooses records; conditions on aggregates are HAVING");
    /// The scope of a GROUP BY key.
    pub const KEY: Self = Self::without_aggregates("groups are made by values of records, not by aggregates");
    /// The scope of an expression over one record.
    pub const RECORD: Self = Self::without_aggregates("an expression here is of one record; an aggregate is of many");
    /// The scope of an expression over a record of a key, which may look back at the earlier ones.
    pub const KEYED_RECORD: Self = Self { looks_back: true, ..Self::RECORD };
    /// The scope within an aggregate call.
    pub const ARGUMENT: Self = Self::without_aggregates("an aggregate is of values of records, not of aggregates");

    const fn without_aggregates(why: &'static str) -> Self {
        Self { no_aggregates: Some(why), looks_back: false, items: &[], keys: &[] }
    }

    /// The scope of HAVING and ORDER BY, in a query with these items and groups.
    pub fn of_results(items: &'a [Item], keys: &'a [Expr]) -> Self {
        Self { no_aggregates: None, looks_back: false, items, keys }
    }

    /// The field itself, or the item with that alias. A GROUP BY field stands for itself, and queries without
    /// groups have no aliases here.
    pub(super) fn resolve(&self, field: Field) -> Expr {
        let is_key = || {
            let mut found = false;
            self.keys.iter().for_each(|key| key.each(&mut |part| found |= *part == Expr::Field(field.clone())));
            found
        };
        match field.bare_name().and_then(|name| by_alias(self.items, name)) {
            Some(value) if !self.keys.is_empty() && !is_key() => value.clone(),
            _ => Expr::Field(field),
        }
    }
}

/// The item with the alias `name`, if a clause consists of that name only.
pub fn named(items: &[Item], name: Option<&str>) -> Option<Expr> {
    by_alias(items, name?).cloned()
}

fn by_alias<'a>(items: &'a [Item], name: &str) -> Option<&'a Expr> {
    items.iter().find(|item| item.alias.as_deref() == Some(name)).map(|item| &item.value)
}
