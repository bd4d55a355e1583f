//! What reads and subscriptions ask of entities: which ids and types, `q` and `mq`, patterns.
//!
//! Everything here is parsed once, when it arrives, and answers `matches` without any further error.

mod criteria;
mod expression;
mod georel;
mod order;
mod parse;
mod pattern;
mod scalar;
mod selector;
#[cfg(test)]
mod tests;

pub(crate) use criteria::Criteria;
pub(crate) use expression::{Choice, Expression, Statement, Test};
pub(crate) use georel::GeoQuery;
pub(crate) use order::{Order, Standing};
pub(crate) use pattern::Pattern;
pub(crate) use scalar::{Found, Scalar, is_date};
pub(crate) use selector::{Names, Selector};
