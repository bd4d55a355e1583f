//! Tell me now, and whenever it changes: questions about records that have not arrived yet.

mod compiled;
mod condition;
mod cursor;
mod diagnostic;
mod display;
mod eval;
mod expr;
mod field;
mod fields;
mod index;
mod keyword;
mod lexer;
mod limits;
mod matcher;
mod parser;
mod pattern;
mod plan;
mod record;
mod rows;
mod scan;
mod suggest;
mod value;

pub use compiled::Compiled;
pub use diagnostic::{Diagnostic, Place};
pub use expr::{Comparison, Expr, Literal, Type};
pub use field::{Field, Step};
pub use index::EntryId;
pub use limits::Limits;
pub use matcher::{Matcher, Tally, Yield};
pub use parser::parse;
pub use pattern::Pattern;
pub use plan::{Item, Plan, Select, Source, StreamDuration};
pub use rows::RowBatch;
