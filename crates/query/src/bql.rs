//! The parser of statements in BQL.

mod check;
mod marks;
mod select;
mod source;
mod statement;

pub(crate) use statement::{check_length, parse_statement};
