//! The bounds of an expression and of its evaluation.

/// The longest text of an expression, in bytes.
pub const EXPRESSION_MAX_BYTES: usize = 16 << 10;
/// The deepest nesting of brackets, braces and middle parts of conditionals. Operators and conditionals in a row do not
/// nest.
pub const NESTING_MAX: usize = 64;
/// The most steps of one [`Budget`](crate::Budget): a value, an operator, a call, and each element that a filter looks at is a
/// step.
pub const STEPS_MAX: usize = 100_000;
/// The most bytes that functions and operators of one [`Budget`](crate::Budget) read and make, 32 for each value. It bounds the
/// time and the memory. Each regular expression counts 16 KiB, or 256 KiB if its compiled form has more or there is none. Each byte
/// that one looks at counts 32 times, or 128 times if its compiled form has more than 16 KiB; after each match the next search
/// counts the whole rest of the text.
pub const WORK_MAX_BYTES: usize = 8 << 20;
/// The deepest nesting of arrays and objects in a value that an evaluation copies, compares or returns.
pub const VALUE_DEPTH_MAX: usize = 192;
