//! The types of expressions and values.

/// The type of an expression, as far as it is known without a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// The type of the literal NULL.
    Null,
    /// The values TRUE and FALSE.
    Boolean,
    /// An integer of 64 bits, signed.
    Integer,
    /// A double-precision floating point number.
    Double,
    /// An integer or a double; they compare by their exact value.
    Number,
    /// A text; texts compare by code point.
    Text,
    /// An array of JSON values.
    List,
    /// An object of JSON values.
    Map,
    /// Any type, known with the record only.
    Any,
}

impl Type {
    /// True if a value of this type can also be one of `other`. All types of numbers overlap.
    pub fn may_be(self, other: Self) -> bool {
        let any = |kind| matches!(kind, Self::Any | Self::Null);
        self == other || any(self) || any(other) || self.is_number() && other.is_number()
    }

    /// The type of all values comparable with this type; [`Type::Number`] for numbers.
    pub(crate) fn widest(self) -> Self {
        if self.is_number() { Self::Number } else { self }
    }

    /// True for arrays and objects, which hold other values.
    pub fn is_nested(self) -> bool {
        matches!(self, Self::List | Self::Map)
    }

    /// The type's name in a query.
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

    /// True for the three types of numbers.
    pub fn is_number(self) -> bool {
        matches!(self, Self::Integer | Self::Double | Self::Number)
    }

    /// The word for a value of this type in messages.
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
