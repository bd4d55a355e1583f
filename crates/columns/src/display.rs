//! Expressions as text: what the parser reads back as the same tree.

use std::fmt;

use crate::expr::{Comparison, Expr, Literal, Operator};
use crate::field::Text;

/// How tightly an expression holds together; a part that holds less tightly than its place needs parentheses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strength {
    Or,
    Xor,
    And,
    Not,
    Test,
    Sum,
    Product,
    Operand,
}

impl Expr {
    fn strength(&self) -> Strength {
        match self {
            Self::Or(_) => Strength::Or,
            Self::And(_) => Strength::And,
            Self::Not(_) => Strength::Not,
            Self::Xor(..) => Strength::Xor,
            Self::Compare { .. } | Self::In { .. } | Self::Quantified { .. } | Self::Rlike { .. } | Self::IsNull(_) => {
                Strength::Test
            }
            Self::Coerce { value, .. } => value.strength(),
            Self::Arithmetic { operator: Operator::Add | Operator::Subtract, .. } => Strength::Sum,
            Self::Arithmetic { .. } => Strength::Product,
            _ => Strength::Operand,
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
                write!(f, "{} {comparison} {}", At(left, Strength::Sum), At(right, Strength::Sum))
            }
            Self::In { value, list } => {
                write!(f, "{} IN (", At(value, Strength::Sum))?;
                joined(f, list, ", ", Strength::Sum)?;
                f.write_str(")")
            }
            Self::Quantified { comparison, every, value, list } => {
                let quantifier = if *every { "ALL" } else { "ANY" };
                write!(f, "{} {comparison} {quantifier} {}", At(value, Strength::Sum), At(list, Strength::Operand))
            }
            Self::Rlike { value, pattern } => {
                write!(f, "{} RLIKE {}", At(value, Strength::Sum), Text(pattern.as_str()))
            }
            Self::IsNull(value) => write!(f, "{} IS NULL", At(value, Strength::Sum)),
            Self::Xor(left, right) => write!(f, "{} XOR {}", At(left, Strength::Xor), At(right, Strength::And)),
            Self::Hint { to, value } => write!(f, "{value}:{}", to.as_str()),
            Self::Cast { to, value } => write!(f, "CAST({value} AS {})", to.as_str()),
            Self::Arithmetic { operator, left, right } => {
                let own = self.strength();
                let tighter = if own == Strength::Sum { Strength::Product } else { Strength::Operand };
                write!(f, "{} {} {}", At(left, own), operator.as_str(), At(right, tighter))
            }
            Self::List(parts) => {
                f.write_str("[")?;
                joined(f, parts, ", ", Strength::Or)?;
                f.write_str("]")
            }
            Self::Element { of, key } => write!(f, "{}[{key}]", At(of, Strength::Operand)),
            Self::Call { function, arguments } => {
                write!(f, "{}(", function.as_str())?;
                joined(f, arguments, ", ", Strength::Or)?;
                f.write_str(")")
            }
            Self::Not(value) => write!(f, "NOT {}", At(value, Strength::Not)),
            Self::And(parts) => joined(f, parts, " AND ", Strength::Not),
            Self::Or(parts) => joined(f, parts, " OR ", Strength::Xor),
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
