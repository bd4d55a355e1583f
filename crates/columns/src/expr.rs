//! The typed expression tree, with every coercion written out.
//!
//! Types are those of JSON. The type of a field is known only when a record is there, so a field has type [`Type::Any`]. If
//! a rule needs another type, an [`Expr::Coerce`] stands around the field: it gives the value if it has that type, else
//! NULL. Values are never converted (a number is never compared as text).
//!
//! Invariant: `AND` and `OR` have at least two parts, none of which is of their own kind.

use crate::field::Field;
use crate::function::{Function, HistoryFunction};
use crate::operator::{Comparison, Operator};
use crate::statistic::{Points, Statistic};
use crate::value_type::Type;

/// A literal value in the query.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// The literal NULL, of any type.
    Null,
    /// The literal TRUE or FALSE, in any case.
    Boolean(bool),
    /// An integer of 64 bits.
    Integer(i64),
    /// Any other number, as a double.
    Double(f64),
    /// A text in single quotes.
    Text(String),
    /// The time of evaluation, milliseconds since 1970-01-01T00:00:00Z.
    Now,
}

/// An expression over the fields of one record.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// A value of the query.
    Literal(Literal),
    /// A value of the record.
    Field(Field),
    /// The value if it is of type `to`, else NULL.
    Coerce {
        /// The type that the surrounding rule needs.
        to: Type,
        /// The expression to be coerced to it.
        value: Box<Expr>,
    },
    /// Both values compared; NULL if one of them is NULL or they differ in type.
    Compare {
        /// The comparison operator between both.
        comparison: Comparison,
        /// The left side of the comparison.
        left: Box<Expr>,
        /// The right side of the comparison.
        right: Box<Expr>,
    },
    /// True if the value equals one of the list: short for equalities joined by OR.
    In {
        /// The value that is searched for.
        value: Box<Expr>,
        /// The values of the list; not empty.
        list: Vec<Expr>,
    },
    /// `value comparison ANY list`, or ALL; NULL without a list.
    Quantified {
        /// The comparison operator for each element.
        comparison: Comparison,
        /// True for ALL, which must hold for every element; false for ANY.
        every: bool,
        /// The value that each element is compared with.
        value: Box<Expr>,
        /// An expression that yields the list.
        list: Box<Expr>,
    },
    /// The whole text matches a regular expression.
    Rlike {
        /// The text that has to match.
        value: Box<Expr>,
        /// The compiled pattern of the regular expression.
        pattern: crate::Pattern,
    },
    /// TRUE if the value is NULL: missing, JSON's null, or not comparable where a comparable value is needed.
    IsNull(Box<Expr>),
    /// FALSE for TRUE, TRUE for FALSE, NULL for NULL.
    Not(Box<Expr>),
    /// FALSE if one part is; else NULL if one part is; else TRUE.
    And(Vec<Expr>),
    /// TRUE if one part is; else NULL if one part is; else FALSE.
    Or(Vec<Expr>),
    /// TRUE if the two differ; NULL if one is NULL.
    Xor(Box<Expr>, Box<Expr>),
    /// `value:TYPE`: the value if it already has that type, else NULL. A whole number is both an integer and a double.
    Hint {
        /// The type that the value must have.
        to: Type,
        /// The value that is checked.
        value: Box<Expr>,
    },
    /// `CAST(value AS TYPE)`: the value converted to that type. A record whose value cannot be converted is no match.
    Cast {
        /// Boolean, integer, double or text.
        to: Type,
        /// The value that is converted.
        value: Box<Expr>,
    },
    /// An arithmetic operation: of two integers an integer, else a double. A record with a division by zero or
    /// an overflow is no match.
    Arithmetic {
        /// The arithmetic operator between both.
        operator: Operator,
        /// The left side of the operation.
        left: Box<Expr>,
        /// The right side of the operation.
        right: Box<Expr>,
    },
    /// `[a, b]`; not empty.
    List(Vec<Expr>),
    /// `of[key]` with a computed key: the member with that name or the element with that index, from 0.
    Element {
        /// An expression that yields a map or list.
        of: Box<Expr>,
        /// A name or a number.
        key: Box<Expr>,
    },
    /// A call of a function.
    Call {
        /// The function that is called.
        function: Function,
        /// The arguments, as many as the function takes.
        arguments: Vec<Expr>,
    },
    /// A value that depends on the earlier records of a key. It appears in select lists of jobs only.
    History(Box<HistoryCall>),
    /// A value over many records. It appears in items, HAVING and ORDER BY only, and has no value for one record.
    Aggregate(Aggregate),
}

/// A selected value and its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The expression that is selected.
    pub value: Expr,
    /// The name given by AS.
    pub alias: Option<String>,
}

/// The select list of a job: the object that a record becomes.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectList {
    /// The members of the payload, if the list begins with `*`.
    pub all: Option<AllMembers>,
    /// The named values, with different names; each replaces a member of the payload with its name.
    pub items: Vec<Item>,
}

impl SelectList {
    /// The different calls that look back at earlier records, in their order.
    pub fn history_calls(&self) -> Vec<&HistoryCall> {
        let mut calls = Vec::new();
        for item in &self.items {
            item.value.each(&mut |part| match part {
                Expr::History(call) if !calls.contains(&&**call) => calls.push(&**call),
                _ => {}
            });
        }
        calls
    }
}

/// `*`, or `* EXCEPT (a, b)`: the members of the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllMembers {
    /// The names of the members that are left out.
    pub except: Vec<String>,
}

/// A call of a function that looks back.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryCall {
    /// The function that is called.
    pub function: HistoryFunction,
    /// The expression over each record; it does not look back itself.
    pub value: Expr,
    /// The number of records that LAG goes back; 1 for other functions.
    pub back: u8,
}

/// An aggregate over the records of a group.
#[derive(Debug, Clone, PartialEq)]
pub enum Aggregate {
    /// `COUNT(*)`: the number of records.
    Count,
    /// A statistic of one value of each record.
    Of {
        /// The statistic that is computed.
        statistic: Statistic,
        /// The expression over which it is computed.
        value: Box<Expr>,
    },
    /// `QUANTILE(a, rank)`: the smallest number such that at least this share of the numbers does not exceed it, as
    /// a double; NULL without numbers.
    Quantile {
        /// The expression over which it is computed.
        value: Box<Expr>,
        /// A rank from 0 to 1: 0.5 is the median.
        rank: f64,
    },
    /// `COUNT(DISTINCT a, …)`: the number of different combinations of values; not empty. Combinations that contain a NULL
    /// count; a single NULL does not.
    CountDistinct(Vec<Expr>),
    /// `ARRAY_AGG(…)`: a list of values; in jobs only.
    List(Box<AggregateList>),
    /// `WINDOW_START()` or `WINDOW_END()`: a bound of the window that the result is of, in queries only.
    WindowBound(WindowBound),
    /// An aggregate that yields rows instead of a value. It must be the only item.
    Summary(Box<Summary>),
}

/// A bound of a window, in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowBound {
    /// The beginning; of a session its first record.
    Start,
    /// The end, which is no part of it; of a session its last record, which is.
    End,
}

/// `ARRAY_AGG([DISTINCT] value [ORDER BY key [DESC], …] [LIMIT n])`: the values of the records as a list.
#[derive(Debug, Clone, PartialEq)]
pub struct AggregateList {
    /// Each different value once.
    pub distinct: bool,
    /// The expression over each record; [`Field::Record`] for `*`.
    pub value: Expr,
    /// The order; without keys that in which records come.
    pub order: Vec<ListOrder>,
    /// The number of values, from 1; `None` for all.
    pub values_max: Option<u32>,
}

/// A sort key of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListOrder {
    /// The expression over each record.
    pub value: Expr,
    /// The greatest value comes first.
    pub descending: bool,
}

/// An aggregate that yields rows.
#[derive(Debug, Clone, PartialEq)]
pub enum Summary {
    /// `QUANTILE(a, points)`: the values at these ranks (0 to 1). Rows `{Quantile, Value}`.
    Quantile {
        /// The expression over which it is computed.
        value: Expr,
        /// The ranks at which it is evaluated.
        points: Points,
    },
    /// `FREQ(a, points)`: the number of values between the points. Rows `{Range, Count, Probability}`, one more than there
    /// are points: ranges are half open, the first has no start and the last no end.
    Frequency {
        /// The expression over which it is computed.
        value: Expr,
        /// The points between the ranges.
        points: Points,
    },
    /// `CUMFREQ(a, points)`: as FREQ, but no range has a start.
    CumulativeFrequency {
        /// The expression over which it is computed.
        value: Expr,
        /// The points at which the ranges end.
        points: Points,
    },
    /// `TOP(k, threshold, a, …)`: the most frequent combinations of values. A row has a member for each value, named like a
    /// selected field, and the count under the item's alias or `Count`.
    Top {
        /// The number of combinations; at least 1.
        k: u64,
        /// The smallest count that is reported.
        threshold: Option<u64>,
        /// The values and their names; not empty, with different names.
        values: Vec<Item>,
    },
}

impl Expr {
    /// The type, as far as it is known.
    pub fn kind(&self) -> Type {
        match self {
            Self::Literal(literal) => literal.kind(),
            Self::Field(field) => field.kind(),
            Self::Coerce { to, .. } | Self::Hint { to, .. } | Self::Cast { to, .. } => *to,
            Self::Aggregate(aggregate) => aggregate.kind(),
            Self::History(call) => call.kind(),
            Self::Arithmetic { left, right, .. } => match (left.kind(), right.kind()) {
                (Type::Integer, Type::Integer) => Type::Integer,
                (Type::Double, _) | (_, Type::Double) => Type::Double,
                _ => Type::Number,
            },
            Self::List(_) => Type::List,
            Self::Element { .. } => Type::Any,
            // Each part is evaluated once: twice would double the work at every level.
            Self::Call { function: Function::If, arguments } => match arguments.as_slice() {
                [_, then, otherwise] => match (then.kind(), otherwise.kind()) {
                    (then, otherwise) if then == otherwise => then,
                    (then, otherwise) if then.is_number() && otherwise.is_number() => Type::Number,
                    _ => Type::Any,
                },
                _ => Type::Any,
            },
            Self::Call { function: Function::Case, arguments } => common(
                arguments
                    .iter()
                    .enumerate()
                    .filter(|(place, _)| place % 2 == 1 || place + 1 == arguments.len())
                    .map(|(_, part)| part),
            ),
            Self::Call { function: Function::Coalesce, arguments } => common(arguments),
            Self::Call { function: Function::NullIf, arguments } => arguments.first().map_or(Type::Any, Self::kind),
            Self::Call { function: Function::Abs | Function::Round | Function::Floor | Function::Ceil, arguments } => {
                arguments.first().map(Self::kind).filter(|kind| kind.is_number()).unwrap_or(Type::Number)
            }
            Self::Call { function, .. } => function.signature().gives,
            _ => Type::Boolean,
        }
    }

    /// The direct parts of the expression. Parts within an aggregate belong to the aggregate.
    pub fn parts(&self) -> Vec<&Self> {
        match self {
            Self::Literal(_) | Self::Field(_) | Self::Aggregate(_) => Vec::new(),
            Self::Coerce { value, .. }
            | Self::Hint { value, .. }
            | Self::Cast { value, .. }
            | Self::Rlike { value, .. }
            | Self::IsNull(value)
            | Self::Not(value) => vec![value],
            Self::History(call) => vec![&call.value],
            Self::Compare { left, right, .. }
            | Self::Arithmetic { left, right, .. }
            | Self::Xor(left, right)
            | Self::Quantified { value: left, list: right, .. }
            | Self::Element { of: left, key: right } => vec![left, right],
            Self::In { value, list } => std::iter::once(&**value).chain(list).collect(),
            Self::And(parts) | Self::Or(parts) | Self::List(parts) | Self::Call { arguments: parts, .. } => {
                parts.iter().collect()
            }
        }
    }

    /// Calls `look` with the expression and all its parts.
    pub fn each<'a>(&'a self, look: &mut impl FnMut(&'a Self)) {
        look(self);
        self.parts().into_iter().for_each(|part| part.each(look));
    }

    /// True if an aggregate is part of the expression.
    pub fn holds_aggregate(&self) -> bool {
        let mut found = false;
        self.each(&mut |part| found |= matches!(part, Self::Aggregate(_)));
        found
    }

    /// The expression, coerced if a value of type `to` is needed.
    pub fn coerced(self, to: Type) -> Self {
        if self.kind() == Type::Any && to != Type::Any && to != Type::Null {
            return Self::Coerce { to, value: Box::new(self) };
        }
        self
    }

    /// A comparison of both, each coerced to the known type of the other.
    pub fn compare(self, comparison: Comparison, right: Self) -> Self {
        let (left_kind, right_kind) = (self.kind().widest(), right.kind().widest());
        Self::Compare {
            comparison,
            left: Box::new(self.coerced(right_kind)),
            right: Box::new(right.coerced(left_kind)),
        }
    }

    /// `low <= self <= high`.
    pub fn between(self, low: Self, high: Self) -> Self {
        let from = self.clone().compare(Comparison::GreaterOrEqual, low);
        from.and(self.compare(Comparison::LessOrEqual, high))
    }

    /// Tests equality with one of `list`.
    pub fn within(self, list: Vec<Self>) -> Self {
        Self::In { value: Box::new(self), list }
    }

    /// TRUE if exactly one of both is.
    pub fn xor(self, right: Self) -> Self {
        Self::Xor(Box::new(self.coerced(Type::Boolean)), Box::new(right.coerced(Type::Boolean)))
    }

    /// An arithmetic operation on both numbers.
    pub fn arithmetic(self, operator: Operator, right: Self) -> Self {
        let (left, right) = (Box::new(self.coerced(Type::Number)), Box::new(right.coerced(Type::Number)));
        Self::Arithmetic { operator, left, right }
    }

    /// TRUE if the whole text matches the pattern.
    pub fn rlike(self, pattern: crate::Pattern) -> Self {
        Self::Rlike { value: Box::new(self.coerced(Type::Text)), pattern }
    }

    /// TRUE if the expression is NULL.
    pub fn null_test(self) -> Self {
        Self::IsNull(Box::new(self))
    }

    /// The negation of the condition, NULL for NULL.
    pub fn negated(self) -> Self {
        Self::Not(Box::new(self.coerced(Type::Boolean)))
    }

    /// The conjunction of both, as one flat list.
    pub fn and(self, right: Self) -> Self {
        let mut parts = match self.coerced(Type::Boolean) {
            Self::And(parts) => parts,
            other => vec![other],
        };
        match right.coerced(Type::Boolean) {
            Self::And(more) => parts.extend(more),
            other => parts.push(other),
        }
        Self::And(parts)
    }

    /// The disjunction of both, as one flat list.
    pub fn or(self, right: Self) -> Self {
        let mut parts = match self.coerced(Type::Boolean) {
            Self::Or(parts) => parts,
            other => vec![other],
        };
        match right.coerced(Type::Boolean) {
            Self::Or(more) => parts.extend(more),
            other => parts.push(other),
        }
        Self::Or(parts)
    }
}

/// The type of all values, where NULL literals do not count.
fn common<'e>(values: impl IntoIterator<Item = &'e Expr>) -> Type {
    let known = values.into_iter().map(Expr::kind).filter(|kind| *kind != Type::Null);
    let join = |one: Type, other: Type| match (one, other) {
        (one, other) if one == other => one,
        (one, other) if one.is_number() && other.is_number() => Type::Number,
        _ => Type::Any,
    };
    known.reduce(join).unwrap_or(Type::Null)
}

impl Literal {
    /// The type of the literal value.
    pub fn kind(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Boolean(_) => Type::Boolean,
            Self::Integer(_) | Self::Now => Type::Integer,
            Self::Double(_) => Type::Double,
            Self::Text(_) => Type::Text,
        }
    }
}
