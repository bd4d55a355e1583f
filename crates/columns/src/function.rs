//! The functions of the language: their names, arguments and result types.

mod history;
mod table;

pub use history::HistoryFunction;
pub use table::{EXAMPLE_RECORD, FunctionGroup, FunctionRow, functions};

use crate::Type;

/// A function of values of one record. [`functions`] describes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Function {
    /// `SIZEOF(a)`
    SizeOf,
    /// `SIZEIS(a, n)`
    SizeIs,
    /// `CONTAINSKEY(a, 'k')`
    ContainsKey,
    /// `CONTAINSVALUE(a, v)`
    ContainsValue,
    /// `FILTER(list, booleans)`
    Filter,
    /// `IF(condition, a, b)`
    If,
    /// `CASE WHEN condition THEN value … ELSE value END`: conditions and values in turn, at last the value of ELSE.
    Case,
    /// `COALESCE(a, b, …)`
    Coalesce,
    /// `NULLIF(a, b)`
    NullIf,
    /// `ABS(n)`
    Abs,
    /// `ROUND(n[, digits])`
    Round,
    /// `FLOOR(n)`
    Floor,
    /// `CEIL(n)`
    Ceil,
    /// `TRIM(text)`
    Trim,
    /// `LOWER(text)`
    Lower,
    /// `UPPER(text)`
    Upper,
    /// `SUBSTRING(text, from[, length])`
    Substring,
    /// `CONCAT(a, b, …)`, `a || b`
    Concat,
    /// `SPLIT(text, separator)`
    Split,
    /// `REPLACE(text, from, to)`
    Replace,
    /// `UNIXTIMESTAMP([text or number[, pattern]])`
    UnixTimestamp,
    /// `EXTRACT(part FROM time)`: the name of the part in capitals, and the time.
    Extract,
    /// `DATE_TRUNC('part', time)`
    DateTrunc,
    /// `FORMAT_TIME(time[, pattern])`
    FormatTime,
    /// `PARSE_TIME(text[, pattern])`
    ParseTime,
    /// `TYPEOF(a)`
    TypeOf,
    /// `HASH(a)`
    Hash,
}

/// The arguments and the result of a function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signature {
    pub(crate) function: Function,
    /// The type of each argument.
    pub(crate) takes: &'static [Type],
    /// The number of required arguments.
    pub(crate) required: usize,
    /// True if the last argument may be repeated.
    pub(crate) repeats: bool,
    /// The result type, if it does not depend on the arguments.
    pub(crate) gives: Type,
}

impl Function {
    /// The function of that name, in capitals, if it is called like any other.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let row = functions().iter().find(|row| row.names.contains(&name))?;
        row.signature.map(|signature| signature.function).filter(|function| function.is_plain_call())
    }

    /// False for the functions that have a syntax of their own.
    fn is_plain_call(self) -> bool {
        !matches!(self, Self::Case | Self::Extract)
    }

    /// The names of all functions and aggregates.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        functions().iter().flat_map(|row| row.names.iter().copied())
    }

    fn row(self) -> &'static FunctionRow {
        let has = |row: &&FunctionRow| row.signature.is_some_and(|signature| signature.function == self);
        functions().iter().find(has).expect("the table has every variant; a test checks it")
    }

    pub(crate) fn signature(self) -> Signature {
        self.row().signature.expect("the row was found by its signature")
    }

    /// The function's name in a query.
    pub fn as_str(self) -> &'static str {
        self.row().names[0]
    }
}

/// The aggregate of that name, in capitals.
pub(crate) fn aggregate_named(name: &str) -> Option<&'static str> {
    use FunctionGroup::{Aggregates, JobAggregates, Windows};
    let is_of_many = |group| matches!(group, Aggregates | Windows | JobAggregates);
    let row = functions().iter().find(|row| is_of_many(row.group) && row.names.contains(&name))?;
    row.names.first().copied()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_function_is_in_the_table_once_with_names_of_its_own() {
        use Function::{
            Abs, Case, Ceil, Coalesce, Concat, ContainsKey, ContainsValue, DateTrunc, Extract, Filter, Floor,
            FormatTime, Hash, If, Lower, NullIf, ParseTime, Replace, Round, SizeIs, SizeOf, Split, Substring, Trim,
            TypeOf, UnixTimestamp, Upper,
        };
        let all = [
            SizeOf,
            SizeIs,
            ContainsKey,
            ContainsValue,
            Filter,
            If,
            Case,
            Coalesce,
            NullIf,
            Abs,
            Round,
            Floor,
            Ceil,
            Trim,
            Lower,
            Upper,
            Substring,
            Concat,
            Split,
            Replace,
            UnixTimestamp,
            Extract,
            DateTrunc,
            FormatTime,
            ParseTime,
            TypeOf,
            Hash,
        ];
        for function in all {
            let signature = function.signature();
            assert!(signature.required <= signature.takes.len() && function.as_str() != "", "{function:?}");
            assert_eq!(Function::named(function.as_str()), Some(function).filter(|function| function.is_plain_call()));
        }
        assert_eq!(functions().iter().filter(|row| row.signature.is_some()).count(), all.len());
        let mut names = HashSet::new();
        Function::names().for_each(|name| assert!(names.insert(name), "{name} stands twice"));
    }
}
