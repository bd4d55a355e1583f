//! The typed expression: what a filter is, with every coercion written out.
//!
//! Types are those of JSON. What a field holds is known only when a record is there, so a field has type
//! [`Type::Any`]; wherever a rule needs more, a [`Expr::Coerce`] says so: the value if it has that type, else NULL.
//! Nothing is ever converted (a number is never compared as text).
//!
//! Invariant: `AND` and `OR` hold at least two parts, none of which is of their own kind.

use crate::{Aggregate, Field, Function};

/// The type of an expression, as far as it is known before a record is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// Always NULL.
    Null,
    /// TRUE or FALSE.
    Boolean,
    /// A 64-bit integer.
    Integer,
    /// A double.
    Double,
    /// One of these two; they compare by their exact value.
    Number,
    /// Text; compares by code point.
    Text,
    /// An array.
    List,
    /// An object.
    Map,
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
    /// `value comparison ANY list`, or ALL; NULL without a list.
    Quantified {
        /// How.
        comparison: Comparison,
        /// Whether it must hold for every element (ALL), or for one (ANY).
        every: bool,
        /// What is compared.
        value: Box<Expr>,
        /// With whose elements.
        list: Box<Expr>,
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
    /// TRUE if the two differ; NULL if one is NULL.
    Xor(Box<Expr>, Box<Expr>),
    /// `value:TYPE`: the value as one of that type, which it must be already; else NULL. A whole number is an integer and a
    /// double.
    Hint {
        /// The type.
        to: Type,
        /// What is looked at.
        value: Box<Expr>,
    },
    /// `CAST(value AS TYPE)`: the value made one of that type; a record where that cannot be is no match.
    Cast {
        /// Boolean, integer, double or text.
        to: Type,
        /// What is converted.
        value: Box<Expr>,
    },
    /// A number of two numbers: of integers an integer, else a double. A record where it divides by zero or is beyond all
    /// numbers of its type is no match.
    Arithmetic {
        /// How.
        operator: Operator,
        /// The left number.
        left: Box<Expr>,
        /// The right number.
        right: Box<Expr>,
    },
    /// `[a, b]`; not empty.
    List(Vec<Expr>),
    /// `of[key]` with a key that is computed: the member or element, from 0.
    Element {
        /// A map or list.
        of: Box<Expr>,
        /// A name or a number.
        key: Box<Expr>,
    },
    /// A function of values.
    Call {
        /// Which.
        function: Function,
        /// As many as it takes.
        arguments: Vec<Expr>,
    },
    /// A value of many records. It has none in one record: it stands in items, HAVING and ORDER BY only.
    Aggregate(Aggregate),
}

impl Expr {
    /// The type, as far as it is known.
    pub fn kind(&self) -> Type {
        match self {
            Self::Literal(literal) => literal.kind(),
            Self::Field(field) => field.kind(),
            Self::Coerce { to, .. } | Self::Hint { to, .. } | Self::Cast { to, .. } => *to,
            Self::Aggregate(aggregate) => aggregate.kind(),
            Self::Arithmetic { left, right, .. } => match (left.kind(), right.kind()) {
                (Type::Integer, Type::Integer) => Type::Integer,
                (Type::Double, _) | (_, Type::Double) => Type::Double,
                _ => Type::Number,
            },
            Self::List(_) => Type::List,
            Self::Element { .. } => Type::Any,
            // Each part is asked once: twice would be twice at every level.
            Self::Call { function: Function::If, arguments } => match arguments.as_slice() {
                [_, then, otherwise] => match (then.kind(), otherwise.kind()) {
                    (then, otherwise) if then == otherwise => then,
                    (then, otherwise) if then.is_number() && otherwise.is_number() => Type::Number,
                    _ => Type::Any,
                },
                _ => Type::Any,
            },
            Self::Call { function: Function::Abs | Function::Round, arguments } => {
                arguments.first().map(Self::kind).filter(|kind| kind.is_number()).unwrap_or(Type::Number)
            }
            Self::Call { function, .. } => function.gives(),
            _ => Type::Boolean,
        }
    }

    /// The expressions that it is made of directly. Those within an aggregate are the aggregate's.
    pub fn parts(&self) -> Vec<&Self> {
        match self {
            Self::Literal(_) | Self::Field(_) | Self::Aggregate(_) => Vec::new(),
            Self::Coerce { value, .. }
            | Self::Hint { value, .. }
            | Self::Cast { value, .. }
            | Self::Rlike { value, .. }
            | Self::IsNull(value)
            | Self::Not(value) => vec![value],
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

    /// Shows it and all expressions that it is made of to `look`.
    pub fn each<'a>(&'a self, look: &mut impl FnMut(&'a Self)) {
        look(self);
        self.parts().into_iter().for_each(|part| part.each(look));
    }

    /// Whether an aggregate is part of it.
    pub fn holds_aggregate(&self) -> bool {
        let mut found = false;
        self.each(&mut |part| found |= matches!(part, Self::Aggregate(_)));
        found
    }

    /// This expression where a value of type `to` is needed.
    pub fn coerced(self, to: Type) -> Self {
        if self.kind() == Type::Any && to != Type::Any && to != Type::Null {
            return Self::Coerce { to, value: Box::new(self) };
        }
        self
    }

    /// Both compared, each coerced to what the other is known to be.
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

    /// Equal to one of `list`.
    pub fn within(self, list: Vec<Self>) -> Self {
        Self::In { value: Box::new(self), list }
    }

    /// Exactly one of both.
    pub fn xor(self, right: Self) -> Self {
        Self::Xor(Box::new(self.coerced(Type::Boolean)), Box::new(right.coerced(Type::Boolean)))
    }

    /// A number of both.
    pub fn arithmetic(self, operator: Operator, right: Self) -> Self {
        let (left, right) = (Box::new(self.coerced(Type::Number)), Box::new(right.coerced(Type::Number)));
        Self::Arithmetic { operator, left, right }
    }

    /// Whether the text as a whole matches.
    pub fn rlike(self, pattern: crate::Pattern) -> Self {
        Self::Rlike { value: Box::new(self.coerced(Type::Text)), pattern }
    }

    /// Whether it is NULL.
    pub fn null_test(self) -> Self {
        Self::IsNull(Box::new(self))
    }

    /// The opposite.
    pub fn negated(self) -> Self {
        Self::Not(Box::new(self.coerced(Type::Boolean)))
    }

    /// Both.
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

    /// At least one.
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

/// How two numbers make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`; of integers without the fraction.
    Divide,
    /// `%`, with the sign of the left number.
    Remainder,
}

impl Operator {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        }
    }
}

impl Type {
    /// Whether a value of it can also be one of `other`. Numbers of all types can be each other.
    pub fn may_be(self, other: Self) -> bool {
        let any = |kind| matches!(kind, Self::Any | Self::Null);
        self == other || any(self) || any(other) || self.is_number() && other.is_number()
    }

    /// The type whose values are comparable with its own: of all numbers one.
    fn widest(self) -> Self {
        if self.is_number() { Self::Number } else { self }
    }

    /// Whether it holds other values.
    pub fn is_nested(self) -> bool {
        matches!(self, Self::List | Self::Map)
    }

    /// As a query writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Boolean => "BOOLEAN",
            Self::Integer => "LONG",
            Self::Double => "DOUBLE",
            Self::Number => "NUMBER",
            Self::Text => "STRING",
            Self::List => "LIST",
            Self::Map => "MAP",
            Self::Any => "ANY",
        }
    }

    /// Whether it is a type of numbers.
    pub fn is_number(self) -> bool {
        matches!(self, Self::Integer | Self::Double | Self::Number)
    }

    /// As people call a value of it.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Boolean => "a condition",
            Self::Integer | Self::Double | Self::Number => "a number",
            Self::Text => "a text",
            Self::List => "a list",
            Self::Map => "a map",
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
            Self::Integer(_) | Self::Now => Type::Integer,
            Self::Double(_) => Type::Double,
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
    pub fn negated(self) -> Self {
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
    pub fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            same => same,
        }
    }

    /// Whether values that stand in this order pass.
    pub fn holds(self, order: std::cmp::Ordering) -> bool {
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
