//! Compiled expressions: fields are numbers, constants are computed.

use crate::function::Function;
use crate::operator::{Comparison, Operator};
use crate::pattern::Pattern;
use crate::value::Value;
use crate::value_type::Type;

/// A value that is read or computed for each record.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// The field with this number.
    Field(usize),
    /// A value that is the same for every record.
    Constant(Value<'static>),
    /// The time of evaluation, NOW.
    Now,
    /// The truth of a condition.
    Predicate(Box<Predicate>),
    /// A value that is computed.
    Formula(Box<Formula>),
}

/// A condition on one record.
#[derive(Debug, Clone, PartialEq)]
pub enum Predicate {
    /// The value itself, if it is TRUE or FALSE.
    Truth(Operand),
    /// The comparison of both values.
    Compare(Comparison, Operand, Operand),
    /// The value equals one of these.
    In(Operand, Vec<Operand>),
    /// The comparison holds for one element of the list, or for all.
    Quantified {
        /// The comparison with each element.
        comparison: Comparison,
        /// True if it must hold for every element.
        every: bool,
        /// The value on the left side.
        value: Operand,
        /// The list on the right side.
        list: Operand,
    },
    /// The text as a whole matches.
    Rlike(Operand, Pattern),
    /// TRUE if the value is NULL.
    IsNull(Operand),
    /// The negation of the condition.
    Not(Box<Predicate>),
    /// TRUE if all conditions are.
    And(Vec<Predicate>),
    /// TRUE if one condition is.
    Or(Vec<Predicate>),
    /// TRUE if exactly one condition is.
    Xor(Box<Predicate>, Box<Predicate>),
}

/// An operation on other operands.
#[derive(Debug, Clone, PartialEq)]
pub enum Formula {
    /// The value if it has that type, else NULL.
    Hint(Type, Operand),
    /// The value converted to that type.
    Cast(Type, Operand),
    /// The arithmetic operation on two numbers.
    Arithmetic(Operator, Operand, Operand),
    /// A list of the operands.
    List(Vec<Operand>),
    /// The member or element at the key in the second operand.
    Element(Operand, Operand),
    /// The function applied to the operands.
    Call(Function, Vec<Operand>),
}

impl Predicate {
    /// One more than the highest field number in the condition.
    pub fn fields_end(&self) -> usize {
        let of = Operand::fields_end;
        match self {
            Self::Truth(operand) | Self::IsNull(operand) | Self::Rlike(operand, _) => of(operand),
            Self::Compare(_, left, right) => of(left).max(of(right)),
            Self::Quantified { value, list, .. } => of(value).max(of(list)),
            Self::In(value, list) => list.iter().map(of).max().unwrap_or(0).max(of(value)),
            Self::Not(part) => part.fields_end(),
            Self::And(parts) | Self::Or(parts) => parts.iter().map(Self::fields_end).max().unwrap_or(0),
            Self::Xor(left, right) => left.fields_end().max(right.fields_end()),
        }
    }

    /// Calls `change` with each field number, once for each occurrence.
    pub fn each_field(&mut self, change: &mut impl FnMut(&mut usize)) {
        match self {
            Self::Truth(operand) | Self::IsNull(operand) | Self::Rlike(operand, _) => operand.each_field(change),
            Self::Compare(_, left, right) | Self::Quantified { value: left, list: right, .. } => {
                left.each_field(change);
                right.each_field(change);
            }
            Self::In(value, list) => {
                value.each_field(change);
                list.iter_mut().for_each(|item| item.each_field(change));
            }
            Self::Not(part) => part.each_field(change),
            Self::And(parts) | Self::Or(parts) => parts.iter_mut().for_each(|part| part.each_field(change)),
            Self::Xor(left, right) => {
                left.each_field(change);
                right.each_field(change);
            }
        }
    }
}

impl Operand {
    /// The value, if it is the same for every record.
    pub fn constant(&self) -> Option<&Value<'static>> {
        match self {
            Self::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// As [`Predicate::each_field`], for a value.
    fn each_field(&mut self, change: &mut impl FnMut(&mut usize)) {
        match self {
            Self::Field(field) => change(field),
            Self::Predicate(test) => test.each_field(change),
            Self::Formula(formula) => {
                formula.operands_mut().into_iter().for_each(|operand| operand.each_field(change));
            }
            Self::Constant(_) | Self::Now => {}
        }
    }

    fn fields_end(&self) -> usize {
        match self {
            Self::Field(field) => field + 1,
            Self::Predicate(test) => test.fields_end(),
            Self::Formula(formula) => formula.operands().into_iter().map(Self::fields_end).max().unwrap_or(0),
            Self::Constant(_) | Self::Now => 0,
        }
    }
}

impl Formula {
    /// The operands of the formula.
    pub fn operands(&self) -> Vec<&Operand> {
        match self {
            Self::Hint(_, value) | Self::Cast(_, value) => vec![value],
            Self::Arithmetic(_, left, right) | Self::Element(left, right) => vec![left, right],
            Self::List(parts) | Self::Call(_, parts) => parts.iter().collect(),
        }
    }

    pub(crate) fn operands_mut(&mut self) -> Vec<&mut Operand> {
        match self {
            Self::Hint(_, value) | Self::Cast(_, value) => vec![value],
            Self::Arithmetic(_, left, right) | Self::Element(left, right) => vec![left, right],
            Self::List(parts) | Self::Call(_, parts) => parts.iter_mut().collect(),
        }
    }
}
