//! The functions of the language: their names, what they take, what they give.

use crate::Type;

/// A function of values of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Function {
    /// `SIZEOF(a)`: how many elements, members or characters.
    SizeOf,
    /// `SIZEIS(a, n)`: whether SIZEOF is n.
    SizeIs,
    /// `CONTAINSKEY(a, 'k')`: whether a map, or one in a list of maps, has the member.
    ContainsKey,
    /// `CONTAINSVALUE(a, v)`: whether an element of a list, or a member of a map or of one in a list, equals v.
    ContainsValue,
    /// `FILTER(list, booleans)`: the elements at whose places TRUE stands.
    Filter,
    /// `IF(condition, a, b)`: a if it is TRUE, else b.
    If,
    /// `ABS(n)`.
    Abs,
    /// `ROUND(n[, digits])`: the nearest number with so many digits after the point, none if left out; a half goes away
    /// from zero.
    Round,
    /// `TRIM(text)`: without space at both ends.
    Trim,
    /// `LOWER(text)`.
    Lower,
    /// `UPPER(text)`.
    Upper,
    /// `SUBSTRING(text, from[, length])`: from 1; from a negative place counted from the end.
    Substring,
    /// `UNIXTIMESTAMP([text or number[, pattern]])`: seconds since 1970-01-01T00:00:00Z; without arguments those of now.
    UnixTimestamp,
    /// `TYPEOF(a)`: LONG, DOUBLE, STRING, BOOLEAN, LIST or MAP.
    TypeOf,
    /// `HASH(a)`: a number of 32 bits made of the value.
    Hash,
}

/// What a function takes and gives.
struct Signature {
    function: Function,
    name: &'static str,
    /// The type of each argument.
    takes: &'static [Type],
    /// How many of these must be there.
    required: usize,
    gives: Type,
}

const fn signature(
    function: Function,
    name: &'static str,
    takes: &'static [Type],
    required: usize,
    gives: Type,
) -> Signature {
    Signature { function, name, takes, required, gives }
}

/// All functions. Of names for one function the first is its own.
const SIGNATURES: [Signature; 16] = [
    signature(Function::SizeOf, "SIZEOF", &[Type::Any], 1, Type::Integer),
    signature(Function::SizeIs, "SIZEIS", &[Type::Any, Type::Number], 2, Type::Boolean),
    signature(Function::ContainsKey, "CONTAINSKEY", &[Type::Any, Type::Text], 2, Type::Boolean),
    signature(Function::ContainsValue, "CONTAINSVALUE", &[Type::Any, Type::Any], 2, Type::Boolean),
    signature(Function::Filter, "FILTER", &[Type::List, Type::List], 2, Type::List),
    signature(Function::If, "IF", &[Type::Boolean, Type::Any, Type::Any], 3, Type::Any),
    signature(Function::Abs, "ABS", &[Type::Number], 1, Type::Number),
    signature(Function::Round, "ROUND", &[Type::Number, Type::Number], 1, Type::Number),
    signature(Function::Trim, "TRIM", &[Type::Text], 1, Type::Text),
    signature(Function::Lower, "LOWER", &[Type::Text], 1, Type::Text),
    signature(Function::Upper, "UPPER", &[Type::Text], 1, Type::Text),
    signature(Function::Substring, "SUBSTRING", &[Type::Text, Type::Number, Type::Number], 2, Type::Text),
    signature(Function::Substring, "SUBSTR", &[Type::Text, Type::Number, Type::Number], 2, Type::Text),
    signature(Function::UnixTimestamp, "UNIXTIMESTAMP", &[Type::Any, Type::Text], 0, Type::Integer),
    signature(Function::TypeOf, "TYPEOF", &[Type::Any], 1, Type::Text),
    signature(Function::Hash, "HASH", &[Type::Any], 1, Type::Integer),
];

impl Function {
    /// The function of that name, in capitals.
    pub(crate) fn named(name: &str) -> Option<Self> {
        SIGNATURES.iter().find(|signature| signature.name == name).map(|signature| signature.function)
    }

    /// All names.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        SIGNATURES.iter().map(|signature| signature.name)
    }

    fn signature(self) -> &'static Signature {
        // Every variant stands in the table; a test goes through them.
        SIGNATURES.iter().find(|signature| signature.function == self).unwrap_or(&SIGNATURES[0])
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        self.signature().name
    }

    /// The types of its arguments, of which [`Self::required`] must be there.
    pub(crate) fn takes(self) -> &'static [Type] {
        self.signature().takes
    }

    /// How many arguments there must be.
    pub(crate) fn required(self) -> usize {
        self.signature().required
    }

    /// The type of its value where that does not depend on its arguments.
    pub(crate) fn gives(self) -> Type {
        self.signature().gives
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_a_name_of_its_own() {
        for signature in &SIGNATURES {
            let function = signature.function;
            assert_eq!(Function::named(function.as_str()), Some(function));
            assert_eq!(Function::named(signature.name), Some(function));
            assert!(function.required() <= function.takes().len());
        }
    }
}
