//! Filters of reads and subscriptions: ids and types, `q` and `mq`, patterns, order.
//!
//! A filter is parsed once, when it arrives; matching has no errors.

mod criteria;
mod expression;
pub(crate) mod filter;
mod georel;
mod order;
mod parse;
mod pattern;
mod rules;
mod selector;
#[cfg(test)]
mod tests;

pub(crate) use criteria::{CRITERIA, Criteria};
pub(crate) use expression::{Choice, Expression, Statement, Test};
pub(crate) use georel::GeoQuery;
pub(crate) use order::{Order, Standing};
pub(crate) use pattern::Pattern;
pub(crate) use rules::Rules;
pub(crate) use selector::{NameFilter, Selector};
