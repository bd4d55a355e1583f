//! Expressions of SQL over one record: how they are read, and what they are worth.
//!
//! [`parser`] makes an [`Expr`] of a text, or [`Diagnostic`]s that tell the place of what is wrong; a [`Compiler`] makes
//! it an [`Operand`] or a [`Test`] whose fields are numbers, and these have a [`Value`] for each [`Row`]. The fields of a
//! JSON payload are found by a [`PathTree`] in one pass over its bytes. [`Columns`] does all this for expressions that are
//! asked of the same records.
//!
//! Not here: whole queries and their results (`query`), and where records come from.

mod aggregate;
mod columns;
mod compiled;
mod cursor;
mod diagnostic;
mod display;
mod eval;
mod expr;
mod field;
mod formula;
mod function;
mod item;
mod keyword;
mod lexer;
mod limits;
mod nested;
pub mod parser;
mod pattern;
mod scan;
mod suggest;
mod timestamp;
mod value;

pub use aggregate::{Aggregate, Points, Statistic, Summary, listed};
pub use columns::{Columns, ColumnsOf};
pub use compiled::{Compiler, Operand, Test};
pub use cursor::{Cursor, Refusal};
pub use diagnostic::{Diagnostic, Place};
pub use eval::Row;
pub use expr::{Comparison, Expr, Literal, Operator, Type};
pub use field::{Field, Name, Step};
pub use formula::Formula;
pub use function::Function;
pub use item::Item;
pub use lexer::{Token, excerpt};
pub use limits::Limits;
pub use pattern::Pattern;
pub use scan::{Damaged, PathTree};
pub use suggest::nearest;
pub use value::{CanonicalNumber, Failure, Unreadable, Value, write_text};
