//! The typed expression: what a filter is, with every coercion written out.
//!
//! Types are those of JSON. What a field holds is known only when a record is there, so a field has type
//! [`Type::Any`]; wherever a rule needs more, a [`Expr::Coerce`] says so: the value if it has that type, else NULL.
//! Nothing is ever converted (a number is never compared as text).
//!
//! Invariant: `AND` and `OR` hold at least two parts, none of which is of their own kind.

use crate::Field;

/// The type of an expression, as far as it is known before a record is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// Always NULL.
    Null,
    /// TRUE or FALSE.
    Boolean,
    /// A 64-bit integer or a double; the two compare by their exact value.
    Number,
    /// Text; compares by code point.
    Text,
    /// Whatever the record holds.
    Any,
}

/// A value that stands in the query itself.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// NULL.
    Null,
    /// TRUE, FALSE.
    Boolean(bool),
    /// An integer of 64 bits.
    Integer(i64),
    /// Any other number.
    Double(f64),
    /// A text.
    Text(String),
    /// The time of evaluation, milliseconds since 1970-01-01T00:00:00Z.
    Now,
}

/// How two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
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
        /// The type that the rule around it needs.
        to: Type,
        /// What is looked at.
        value: Box<Expr>,
    },
    /// Both values compared; NULL if one of them is NULL or they differ in type.
    Compare {
        /// How.
        comparison: Comparison,
        /// The left value.
        left: Box<Expr>,
        /// The right value.
        right: Box<Expr>,
    },
    /// Equal to one of several: short for equalities joined by OR.
    In {
        /// The value looked for.
        value: Box<Expr>,
        /// Where it is looked for; not empty.
        list: Vec<Expr>,
    },
    /// The whole text matches a regular expression.
    Rlike {
        /// The text.
        value: Box<Expr>,
        /// The expression.
        pattern: crate::Pattern,
    },
    /// Whether a value is NULL: missing, JSON's null, or of no comparable kind where one was needed.
    IsNull(Box<Expr>),
    /// FALSE for TRUE, TRUE for FALSE, NULL for NULL.
    Not(Box<Expr>),
    /// FALSE if one part is; else NULL if one part is; else TRUE.
    And(Vec<Expr>),
    /// TRUE if one part is; else NULL if one part is; else FALSE.
    Or(Vec<Expr>),
}

impl Expr {
    /// The type, as far as it is known.
    pub fn kind(&self) -> Type {
        match self {
            Self::Literal(literal) => literal.kind(),
            Self::Field(field) => field.kind(),
            Self::Coerce { to, .. } => *to,
            _ => Type::Boolean,
        }
    }

    /// This expression where a value of type `to` is needed.
    pub(crate) fn coerced(self, to: Type) -> Self {
        if self.kind() == Type::Any && to != Type::Any && to != Type::Null {
            return Self::Coerce { to, value: Box::new(self) };
        }
        self
    }

    /// Both compared, each coerced to what the other is known to be.
    pub(crate) fn compare(self, comparison: Comparison, right: Self) -> Self {
        let (left_kind, right_kind) = (self.kind(), right.kind());
        Self::Compare {
            comparison,
            left: Box::new(self.coerced(right_kind)),
            right: Box::new(right.coerced(left_kind)),
        }
    }

    /// `low <= self <= high`.
    pub(crate) fn between(self, low: Self, high: Self) -> Self {
        let from = self.clone().compare(Comparison::GreaterOrEqual, low);
        from.and(self.compare(Comparison::LessOrEqual, high))
    }

    /// Equal to one of `list`.
    pub(crate) fn within(self, list: Vec<Self>) -> Self {
        Self::In { value: Box::new(self), list }
    }

    /// Whether the text as a whole matches.
    pub(crate) fn rlike(self, pattern: crate::Pattern) -> Self {
        Self::Rlike { value: Box::new(self.coerced(Type::Text)), pattern }
    }

    /// Whether it is NULL.
    pub(crate) fn null_test(self) -> Self {
        Self::IsNull(Box::new(self))
    }

    /// The opposite.
    pub(crate) fn negated(self) -> Self {
        Self::Not(Box::new(self.coerced(Type::Boolean)))
    }

    /// Both.
    pub(crate) fn and(self, right: Self) -> Self {
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

    /// At least one.
    pub(crate) fn or(self, right: Self) -> Self {
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

impl Type {
    /// As people call a value of it.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Boolean => "a condition",
            Self::Number => "a number",
            Self::Text => "a text",
            Self::Any => "a field",
        }
    }
}

impl Literal {
    /// The type.
    pub fn kind(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Boolean(_) => Type::Boolean,
            Self::Integer(_) | Self::Double(_) | Self::Now => Type::Number,
            Self::Text(_) => Type::Text,
        }
    }
}

impl Comparison {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    /// What holds for two values of one type where this does not.
    pub(crate) fn negated(self) -> Self {
        match self {
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::Less => Self::GreaterOrEqual,
            Self::LessOrEqual => Self::Greater,
            Self::Greater => Self::LessOrEqual,
            Self::GreaterOrEqual => Self::Less,
        }
    }

    /// The same with both sides exchanged.
    pub(crate) fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            same => same,
        }
    }

    /// Whether values that stand in this order pass.
    pub(crate) fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}
