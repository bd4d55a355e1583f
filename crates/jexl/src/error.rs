use crate::limits::{EXPRESSION_MAX_BYTES, NESTING_MAX};

/// The reason why a text is no expression.
///
/// Places count characters from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SyntaxError {
    /// The text is longer than [`EXPRESSION_MAX_BYTES`].
    #[error("the expression has {bytes} bytes: at most {EXPRESSION_MAX_BYTES} are allowed; shorten it")]
    TooLong {
        /// The bytes of the text.
        bytes: usize,
    },
    /// Brackets, braces or the middle parts of conditionals are nested deeper than [`NESTING_MAX`].
    #[error("'{found}' at character {place} is nested more than {NESTING_MAX} deep; split the expression")]
    TooDeep {
        /// The place of the bracket or value that goes too deep.
        place: usize,
        /// The text there.
        found: String,
    },
    /// Something else was expected.
    #[error("'{found}' at character {place}: expected {expected}")]
    Unexpected {
        /// The place of what was found.
        place: usize,
        /// The text there, shortened; `end` behind the last character.
        found: String,
        /// The tokens that may stand there.
        expected: &'static str,
    },
    /// A text begins and does not end.
    #[error("the text that begins at character {place} does not end; close it with {quote}")]
    OpenText {
        /// The place of the opening quote.
        place: usize,
        /// The quote.
        quote: char,
    },
    /// An object names a key twice.
    #[error("the key '{key}' at character {place} was given before; name each key of an object once")]
    RepeatedKey {
        /// The place of the second key.
        place: usize,
        /// The key.
        key: String,
    },
}
