//! Comparisons of numbers, for all records of a chunk at once.
//!
//! Each result is exactly that of the row evaluator for a single record. Cases that are left out here (integers beyond
//! 2^53 beside doubles, a division by zero, an overflow of 64 bits) are evaluated one record at a time.

use std::borrow::Cow;

use super::Chunk;
use super::column::EXACT_MAX;
use super::selection::Selection;
use super::truth::Truth;
use crate::{Comparison, Formula, Function, Operand, Operator, Value};

/// The values of an operand in the records of a chunk, where they are numbers or certainly NULL.
pub(super) struct Numbers<'n> {
    integers: Selection,
    integer: Lanes<'n, i64>,
    /// The records with an exact value in `double`; some may be integers, too.
    doubles: Selection,
    double: Lanes<'n, f64>,
    /// The records without a number: NULL for operators that need one.
    others: Selection,
}

/// A number for each record, or one for all.
enum Lanes<'n, T: Copy> {
    Each(Cow<'n, [T]>),
    Same(T),
}

/// True if the operand is computed in columns.
pub(super) fn is_number(operand: &Operand) -> bool {
    match operand {
        Operand::Field(_) | Operand::Constant(Value::Integer(_) | Value::Double(_)) | Operand::Now => true,
        Operand::Formula(formula) => match &**formula {
            Formula::Arithmetic(_, left, right) => is_number(left) && is_number(right),
            Formula::Call(Function::Abs, of) => of.iter().all(is_number),
            _ => false,
        },
        _ => false,
    }
}

impl Chunk<'_, '_> {
    /// Looks at all fields that are read for the numbers of an operand.
    pub(super) fn look_at_numbers(&mut self, operand: &Operand, slots: &[u32], records: Selection) {
        match operand {
            Operand::Field(field) => self.look_at(slots[*field], records),
            Operand::Formula(formula) => match &**formula {
                Formula::Arithmetic(_, left, right) => {
                    self.look_at_numbers(left, slots, records);
                    self.look_at_numbers(right, slots, records);
                }
                Formula::Call(_, of) => of.iter().for_each(|of| self.look_at_numbers(of, slots, records)),
                _ => {}
            },
            _ => {}
        }
    }
}

impl<'n> Numbers<'n> {
    /// The values of an operand whose fields were read.
    pub(super) fn of(operand: &Operand, slots: &[u32], chunk: &'n Chunk<'_, '_>) -> Self {
        match operand {
            Operand::Field(field) => Self::of_field(slots[*field], chunk),
            Operand::Constant(value) => Self::of_constant(value),
            Operand::Now => Self::of_integer(chunk.now_ms()),
            Operand::Formula(formula) => match &**formula {
                Formula::Arithmetic(operator, left, right) => {
                    arithmetic(*operator, &Self::of(left, slots, chunk), &Self::of(right, slots, chunk))
                }
                Formula::Call(Function::Abs, of) => {
                    of.first().map_or(Self::nothing(), |of| absolute(Self::of(of, slots, chunk)))
                }
                _ => Self::nothing(),
            },
            Operand::Predicate(_) => Self::nothing(),
        }
    }

    /// The numbers of a field that has been looked at.
    pub(super) fn of_field(slot: u32, chunk: &'n Chunk<'_, '_>) -> Self {
        chunk.column(slot).map_or(Self::nothing(), |column| Self {
            integers: column.integers,
            integer: Lanes::Each(Cow::Borrowed(&column.integer)),
            doubles: column.doubles,
            double: Lanes::Each(Cow::Borrowed(&column.double)),
            others: column.known - column.integers - column.doubles - column.failed,
        })
    }

    pub(super) fn of_constant(value: &Value<'_>) -> Self {
        match value {
            Value::Integer(integer) => Self::of_integer(*integer),
            Value::Double(double) => Self { doubles: Selection::ALL, double: Lanes::Same(*double), ..Self::nothing() },
            _ => Self::nothing(),
        }
    }

    fn nothing() -> Self {
        let none = Selection::NONE;
        Self { integers: none, integer: Lanes::Same(0), doubles: none, double: Lanes::Same(0.0), others: none }
    }

    fn of_integer(integer: i64) -> Self {
        let is_exact = integer.unsigned_abs() <= EXACT_MAX;
        Self {
            integers: Selection::ALL,
            integer: Lanes::Same(integer),
            doubles: if is_exact { Selection::ALL } else { Selection::NONE },
            double: Lanes::Same(integer as f64),
            others: Selection::NONE,
        }
    }

    fn numbers(&self) -> Selection {
        self.integers | self.doubles
    }

    /// Compares both in `records`. Also returns the records without a result.
    pub(super) fn compare(&self, comparison: Comparison, right: &Self, records: Selection) -> (Truth, Selection) {
        let integers = records & self.integers & right.integers;
        let doubles = (records & self.doubles & right.doubles) - integers;
        let nulls = records & (self.others & right.numbers() | right.others & self.numbers());
        let mut yes = Selection::NONE;
        if !integers.is_empty() {
            yes |= hold(comparison, integers, &self.integer, &right.integer);
        }
        if !doubles.is_empty() {
            yes |= hold(comparison, doubles, &self.double, &right.double);
        }
        let truth = Truth { yes, no: (integers | doubles) - yes, failed: Selection::NONE };
        (truth, records - integers - doubles - nulls)
    }
}

/// The records of `records` for which the comparison holds.
fn hold<T: Copy + PartialOrd>(
    comparison: Comparison,
    records: Selection,
    left: &Lanes<'_, T>,
    right: &Lanes<'_, T>,
) -> Selection {
    match comparison {
        Comparison::Equal => pairs(records, left, right, |a, b| a == b),
        Comparison::NotEqual => pairs(records, left, right, |a, b| a != b),
        Comparison::Less => pairs(records, left, right, |a, b| a < b),
        Comparison::LessOrEqual => pairs(records, left, right, |a, b| a <= b),
        Comparison::Greater => pairs(records, left, right, |a, b| a > b),
        Comparison::GreaterOrEqual => pairs(records, left, right, |a, b| a >= b),
    }
}

fn pairs<T: Copy>(
    records: Selection,
    left: &Lanes<'_, T>,
    right: &Lanes<'_, T>,
    holds: impl Fn(T, T) -> bool,
) -> Selection {
    match (left, right) {
        (Lanes::Each(left), Lanes::Each(right)) => records.filter_lanes(|record| holds(left[record], right[record])),
        (Lanes::Each(left), Lanes::Same(right)) => records.filter_lanes(|record| holds(left[record], *right)),
        (Lanes::Same(left), Lanes::Each(right)) => records.filter_lanes(|record| holds(*left, right[record])),
        (Lanes::Same(left), Lanes::Same(right)) if holds(*left, *right) => records,
        _ => Selection::NONE,
    }
}

/// The result of an operator: an integer for two integers, else a double.
fn arithmetic(operator: Operator, left: &Numbers<'_>, right: &Numbers<'_>) -> Numbers<'static> {
    let mut result = Numbers::nothing();
    let others = |one: &Numbers<'_>, other: &Numbers<'_>| one.others & (other.others | other.numbers());
    result.others = others(left, right) | others(right, left);
    let integers = left.integers & right.integers;
    if !integers.is_empty() {
        let (left, right) = (&left.integer, &right.integer);
        let checked = |value: Option<i64>| (value.unwrap_or(0), value.is_some());
        let unless = |(value, overflows): (i64, bool)| (value, !overflows);
        (result.integers, result.integer) = match operator {
            Operator::Add => computed(integers, left, right, |a, b| unless(a.overflowing_add(b))),
            Operator::Subtract => computed(integers, left, right, |a, b| unless(a.overflowing_sub(b))),
            Operator::Multiply => computed(integers, left, right, |a, b| unless(a.overflowing_mul(b))),
            Operator::Divide => computed(integers, left, right, |a, b| checked(a.checked_div(b))),
            Operator::Remainder => computed(integers, left, right, |a, b| checked(a.checked_rem(b))),
        };
    }
    let doubles = (left.doubles & right.doubles) - integers;
    if !doubles.is_empty() {
        let (left, right) = (&left.double, &right.double);
        // Else it divides by zero, or is beyond the largest.
        let finite = |value: f64| (value, value.is_finite());
        (result.doubles, result.double) = match operator {
            Operator::Add => computed(doubles, left, right, |a, b| finite(a + b)),
            Operator::Subtract => computed(doubles, left, right, |a, b| finite(a - b)),
            Operator::Multiply => computed(doubles, left, right, |a, b| finite(a * b)),
            Operator::Divide => computed(doubles, left, right, |a, b| finite(a / b)),
            Operator::Remainder => computed(doubles, left, right, |a, b| finite(a % b)),
        };
    }
    result
}

/// The numbers without their signs.
fn absolute(of: Numbers<'_>) -> Numbers<'static> {
    let checked = |value: i64| (value.unsigned_abs() as i64, value != i64::MIN);
    let (integers, integer) = computed(of.integers, &of.integer, &Lanes::Same(0), |value, _| checked(value));
    let (doubles, double) = computed(of.doubles, &of.double, &Lanes::Same(0.0), |value, _| (value.abs(), true));
    Numbers { integers, integer, doubles, double, others: of.others }
}

/// An operation on two numbers in each of `records`, and the records with a result.
fn computed<T: Copy + Default>(
    records: Selection,
    left: &Lanes<'_, T>,
    right: &Lanes<'_, T>,
    compute: impl Fn(T, T) -> (T, bool),
) -> (Selection, Lanes<'static, T>) {
    match (left, right) {
        (Lanes::Same(left), Lanes::Same(right)) => {
            let (same, is_there) = compute(*left, *right);
            (if is_there { records } else { Selection::NONE }, Lanes::Same(same))
        }
        (Lanes::Each(left), Lanes::Same(right)) => each(records, left.iter().map(|left| compute(*left, *right))),
        (Lanes::Same(left), Lanes::Each(right)) => each(records, right.iter().map(|right| compute(*left, *right))),
        (Lanes::Each(left), Lanes::Each(right)) => {
            each(records, left.iter().zip(&right[..]).map(|(left, right)| compute(*left, *right)))
        }
    }
}

#[inline(always)]
fn each<T: Copy + Default>(
    records: Selection,
    mut computed: impl ExactSizeIterator<Item = (T, bool)>,
) -> (Selection, Lanes<'static, T>) {
    let (mut values, mut there) = (vec![T::default(); computed.len()], Selection::NONE);
    for (values, there) in values.chunks_mut(u64::BITS as usize).zip(there.words_mut()) {
        // The values come first, so that none is taken beyond them.
        for (bit, (value, (computed, is_there))) in values.iter_mut().zip(computed.by_ref()).enumerate() {
            *value = computed;
            *there |= u64::from(is_there) << bit;
        }
    }
    (there & records, Lanes::Each(values.into()))
}
