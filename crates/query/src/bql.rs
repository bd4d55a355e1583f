//! The parser of statements in BQL.

mod check;
mod marks;
mod select;
mod source;
mod statement;
mod windowing;

pub(crate) use statement::{check_length, parse_statement};
pub(crate) use windowing::last;
