//! Expressions as text: what the parser reads back as the same tree.

use std::fmt;

use crate::expr::{Comparison, Expr, Literal};
use crate::field::Text;

/// How tightly an expression holds together; a part that holds less tightly than its place needs parentheses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strength {
    Or,
    And,
    Not,
    Test,
    Operand,
}

impl Expr {
    fn strength(&self) -> Strength {
        match self {
            Self::Or(_) => Strength::Or,
            Self::And(_) => Strength::And,
            Self::Not(_) => Strength::Not,
            Self::Compare { .. } | Self::In { .. } | Self::Rlike { .. } | Self::IsNull(_) => Strength::Test,
            Self::Coerce { value, .. } => value.strength(),
            Self::Literal(_) | Self::Field(_) | Self::Aggregate(_) => Strength::Operand,
        }
    }
}

/// An expression at a place that needs at least this strength.
struct At<'a>(&'a Expr, Strength);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.strength() < self.1 { write!(f, "({})", self.0) } else { write!(f, "{}", self.0) }
    }
}

fn joined(f: &mut fmt::Formatter<'_>, parts: &[Expr], word: &str, strength: Strength) -> fmt::Result {
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            f.write_str(word)?;
        }
        write!(f, "{}", At(part, strength))?;
    }
    Ok(())
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(literal) => write!(f, "{literal}"),
            Self::Field(field) => write!(f, "{field}"),
            Self::Coerce { value, .. } => write!(f, "{value}"),
            Self::Compare { comparison, left, right } => {
                write!(f, "{} {comparison} {}", At(left, Strength::Operand), At(right, Strength::Operand))
            }
            Self::In { value, list } => {
                write!(f, "{} IN (", At(value, Strength::Operand))?;
                joined(f, list, ", ", Strength::Operand)?;
                f.write_str(")")
            }
            Self::Rlike { value, pattern } => {
                write!(f, "{} RLIKE {}", At(value, Strength::Operand), Text(pattern.as_str()))
            }
            Self::IsNull(value) => write!(f, "{} IS NULL", At(value, Strength::Operand)),
            Self::Not(value) => write!(f, "NOT {}", At(value, Strength::Not)),
            Self::And(parts) => joined(f, parts, " AND ", Strength::Not),
            Self::Or(parts) => joined(f, parts, " OR ", Strength::And),
            Self::Aggregate(aggregate) => write!(f, "{aggregate}"),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Boolean(true) => f.write_str("TRUE"),
            Self::Boolean(false) => f.write_str("FALSE"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Double(value) => write!(f, "{value:?}"),
            Self::Text(value) => write!(f, "{}", Text(value)),
            Self::Now => f.write_str("NOW"),
        }
    }
}
