//! What an expression may speak of, by where it stands.

use crate::{Expr, Field, Item};

/// Where an expression stands.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// Why an aggregate is refused, if it is.
    pub(super) no_aggregates: Option<&'static str>,
    items: &'a [Item],
    keys: &'a [Expr],
}

impl<'a> Scope<'a> {
    /// After SELECT.
    pub const ITEM: Self = Self { no_aggregates: None, items: &[], keys: &[] };
    /// After WHERE.
    pub const FILTER: Self = Self::without_aggregates("WHERE chooses records; conditions on aggregates are HAVING");
    /// After GROUP BY.
    pub const KEY: Self = Self::without_aggregates("groups are made by values of records, not by aggregates");
    /// By itself, of one record.
    pub const RECORD: Self = Self::without_aggregates("an expression here is of one record; an aggregate is of many");
    /// Within an aggregate.
    pub const ARGUMENT: Self = Self::without_aggregates("an aggregate is of values of records, not of aggregates");

    const fn without_aggregates(why: &'static str) -> Self {
        Self { no_aggregates: Some(why), items: &[], keys: &[] }
    }

    /// After HAVING and ORDER BY of a query with these items and groups.
    pub fn of_results(items: &'a [Item], keys: &'a [Expr]) -> Self {
        Self { no_aggregates: None, items, keys }
    }

    /// `field`, or what a name given by AS stands for. A field by which groups are made means itself, and queries
    /// without groups know no names here.
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

/// What a clause means that is nothing but the `name` of one of `items`.
pub fn named(items: &[Item], name: Option<&str>) -> Option<Expr> {
    by_alias(items, name?).cloned()
}

fn by_alias<'a>(items: &'a [Item], name: &str) -> Option<&'a Expr> {
    items.iter().find(|item| item.alias.as_deref() == Some(name)).map(|item| &item.value)
}
