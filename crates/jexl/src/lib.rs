//! JEXL, the language of expressions in NGSI-v2 notifications, as Orion 4 understands it.
//!
//! An [`Expression`] is parsed once and evaluated many times. The result is JSON, and evaluation never fails: anything
//! wrong, such as a text where a number belongs, or an unknown function, is null. Expressions and values may come from
//! strangers, so both are bounded: [`EXPRESSION_MAX_BYTES`], [`NESTING_MAX`], [`STEPS_MAX`], [`WORK_MAX_BYTES`],
//! [`VALUE_DEPTH_MAX`].
//!
//! ```
//! use millstream_jexl::Expression;
//! use serde_json::{Map, json};
//!
//! let expression = Expression::parse("(temperature > 30 ? 'hot' : 'fine') + ', ' + (unit || 'C')")?;
//! let names = Map::from_iter([("temperature".to_owned(), json!(31.5))]);
//! assert_eq!(expression.evaluate(&names, 0), json!("hot, C"));
//! assert_eq!(expression.names().collect::<Vec<_>>(), ["temperature", "unit"]);
//! # Ok::<(), millstream_jexl::SyntaxError>(())
//! ```
//!
//! Not here: the macros around expressions, of which [`closing_brace`] finds the end, the attributes behind the names, and
//! the order in which the expressions of a notification are evaluated (`context`).

mod budget;
mod choice_functions;
mod closing_brace;
mod error;
mod evaluation;
mod expression;
mod function;
mod input;
mod kind_functions;
mod limits;
mod list_functions;
mod names;
mod number;
mod number_functions;
mod operator;
mod parser;
mod pattern;
mod pattern_cache;
mod program;
mod text_functions;
mod time_functions;
mod token;

pub use budget::Budget;
pub use closing_brace::closing_brace;
pub use error::SyntaxError;
pub use expression::Expression;
pub use limits::{EXPRESSION_MAX_BYTES, NESTING_MAX, STEPS_MAX, VALUE_DEPTH_MAX, WORK_MAX_BYTES};
pub use names::Names;
