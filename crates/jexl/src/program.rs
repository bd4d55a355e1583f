//! The steps that an expression is parsed into.
//!
//! A program is flat: steps take their operands from a stack and leave their result there. So neither evaluating nor
//! dropping a long expression goes deep into the stack of the thread. Invariant: `end`, `otherwise` and `to` lie behind
//! their step.

use serde_json::Value;

use crate::function::Function;
use crate::operator::Operator;

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Literal(Value),
    /// A name of the caller's, by its number in [`Program::names`].
    Name(usize),
    /// A member of the element that the innermost filter looks at.
    Element(Box<str>),
    /// A member of the value on the stack, by its name.
    Member(Box<str>),
    /// A member of the lower value on the stack; the upper one says which.
    Index,
    /// Elements of the value on the stack for which the steps up to `end` give something true.
    Filter {
        end: usize,
    },
    /// Holds the place of a filter that has turned out to be an index.
    Nothing,
    Operation(Operator),
    /// `||`: leaves a true value and goes to `end`; drops any other.
    OrElse {
        end: usize,
    },
    /// `&&`: drops a true value; leaves any other and goes to `end`.
    AndThen {
        end: usize,
    },
    /// `?`: drops the value, and goes to `otherwise` unless it was true.
    Branch {
        otherwise: usize,
    },
    Jump {
        to: usize,
    },
    Array {
        length: usize,
    },
    Object {
        keys: Vec<Box<str>>,
    },
    Call(Call),
}

/// A call of a function: on the stack are its input and then its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The function; `None` if none has the name.
    pub(crate) function: Option<&'static Function>,
    pub(crate) arguments: usize,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Program {
    pub(crate) steps: Vec<Step>,
    /// The names that the expression reads, each once, in the order in which they appear.
    pub(crate) names: Vec<Box<str>>,
}
