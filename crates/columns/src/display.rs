//! Expressions as text. The parser reads the same tree back.

use std::fmt;

use crate::expr::{Expr, Literal};
use crate::field::Text;
use crate::function::Function;
use crate::operator::{Comparison, Operator};

/// The binding strength of an expression. A part that binds less tightly than its place requires gets parentheses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Precedence {
    Or,
    Xor,
    And,
    Not,
    Predicate,
    Sum,
    Product,
    Operand,
}

impl Expr {
    fn strength(&self) -> Precedence {
        match self {
            Self::Or(_) => Precedence::Or,
            Self::And(_) => Precedence::And,
            Self::Not(_) => Precedence::Not,
            Self::Xor(..) => Precedence::Xor,
            Self::Compare { .. } | Self::In { .. } | Self::Quantified { .. } | Self::Rlike { .. } | Self::IsNull(_) => {
                Precedence::Predicate
            }
            Self::Coerce { value, .. } => value.strength(),
            Self::Arithmetic { operator: Operator::Add | Operator::Subtract, .. } => Precedence::Sum,
            Self::Arithmetic { .. } => Precedence::Product,
            _ => Precedence::Operand,
        }
    }
}

/// An expression in a place that requires this strength.
struct Parenthesized<'a>(&'a Expr, Precedence);

impl fmt::Display for Parenthesized<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.strength() < self.1 { write!(f, "({})", self.0) } else { write!(f, "{}", self.0) }
    }
}

fn joined(f: &mut fmt::Formatter<'_>, parts: &[Expr], word: &str, strength: Precedence) -> fmt::Result {
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            f.write_str(word)?;
        }
        write!(f, "{}", Parenthesized(part, strength))?;
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
                write!(
                    f,
                    "{} {comparison} {}",
                    Parenthesized(left, Precedence::Sum),
                    Parenthesized(right, Precedence::Sum)
                )
            }
            Self::In { value, list } => {
                write!(f, "{} IN (", Parenthesized(value, Precedence::Sum))?;
                joined(f, list, ", ", Precedence::Sum)?;
                f.write_str(")")
            }
            Self::Quantified { comparison, every, value, list } => {
                let quantifier = if *every { "ALL" } else { "ANY" };
                write!(
                    f,
                    "{} {comparison} {quantifier} {}",
                    Parenthesized(value, Precedence::Sum),
                    Parenthesized(list, Precedence::Operand)
                )
            }
            Self::Rlike { value, pattern } => write!(f, "{} {pattern}", Parenthesized(value, Precedence::Sum)),
            Self::IsNull(value) => write!(f, "{} IS NULL", Parenthesized(value, Precedence::Sum)),
            Self::Xor(left, right) => {
                write!(f, "{} XOR {}", Parenthesized(left, Precedence::Xor), Parenthesized(right, Precedence::And))
            }
            Self::Hint { to, value } => write!(f, "{value}:{}", to.as_str()),
            Self::Cast { to, value } => write!(f, "CAST({value} AS {})", to.as_str()),
            Self::Arithmetic { operator, left, right } => {
                let own = self.strength();
                let tighter = if own == Precedence::Sum { Precedence::Product } else { Precedence::Operand };
                write!(f, "{} {} {}", Parenthesized(left, own), operator.as_str(), Parenthesized(right, tighter))
            }
            Self::List(parts) => {
                f.write_str("[")?;
                joined(f, parts, ", ", Precedence::Or)?;
                f.write_str("]")
            }
            Self::Element { of, key } => write!(f, "{}[{key}]", Parenthesized(of, Precedence::Operand)),
            Self::Call { function: Function::Case, arguments } => {
                f.write_str("CASE")?;
                let (arms, otherwise) = arguments.as_chunks::<2>();
                arms.iter().try_for_each(|[condition, then]| write!(f, " WHEN {condition} THEN {then}"))?;
                otherwise.iter().try_for_each(|otherwise| write!(f, " ELSE {otherwise}"))?;
                f.write_str(" END")
            }
            Self::Call { function: Function::Extract, arguments } => match arguments.as_slice() {
                [Self::Literal(Literal::Text(part)), time] => write!(f, "EXTRACT({part} FROM {time})"),
                _ => Err(fmt::Error),
            },
            Self::Call { function, arguments } => {
                write!(f, "{}(", function.as_str())?;
                joined(f, arguments, ", ", Precedence::Or)?;
                f.write_str(")")
            }
            Self::Not(value) => write!(f, "NOT {}", Parenthesized(value, Precedence::Not)),
            Self::And(parts) => joined(f, parts, " AND ", Precedence::Not),
            Self::Or(parts) => joined(f, parts, " OR ", Precedence::Xor),
            Self::Aggregate(aggregate) => write!(f, "{aggregate}"),
            Self::History(call) => write!(f, "{call}"),
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
