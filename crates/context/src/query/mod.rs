//! What reads and subscriptions ask of entities: which ids and types, `q` and `mq`, patterns.
//!
//! Everything here is parsed once, when it arrives, and answers `matches` without any further error.

mod criteria;
mod expression;
mod parse;
mod pattern;
mod scalar;
mod selector;
#[cfg(test)]
mod tests;

pub(crate) use criteria::Criteria;
pub(crate) use expression::Expression;
pub(crate) use pattern::Pattern;
pub(crate) use scalar::Scalar;
pub(crate) use selector::{Names, Selector};
