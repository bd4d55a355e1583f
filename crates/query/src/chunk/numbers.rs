//! Comparisons of numbers, for all records of a chunk at once.
//!
//! Exactly what one record at a time gives (`millstream_columns`), wherever this gives anything: what it leaves out (integers
//! beyond 2^53 beside doubles, a division by zero, what is beyond 64 bits) is evaluated one record at a time.

use std::borrow::Cow;

use millstream_columns::{Comparison, Formula, Operand, Operator, Value};

use super::column::EXACT_MAX;
use super::selection::Selection;
use super::{Chunk, Truth};

/// What an operand is worth in the records of a chunk, as far as that is a number or surely NULL.
pub(super) struct Numbers<'n> {
    integers: Selection,
    integer: Lanes<'n, i64>,
    /// Where `double` has it, exactly; some may be integers, too.
    doubles: Selection,
    double: Lanes<'n, f64>,
    /// Where it is no number, and NULL for whoever needs one.
    others: Selection,
}

/// A number for each record, or one for all.
enum Lanes<'n, T: Copy> {
    Each(Cow<'n, [T]>),
    Same(T),
}

/// The fields that are read for the numbers of an operand; `None` if it is nothing that is computed here.
pub(super) fn fields_of(operand: &Operand) -> Option<Vec<usize>> {
    match operand {
        Operand::Field(field) => Some(vec![*field]),
        Operand::Constant(Value::Integer(_) | Value::Double(_)) | Operand::Now => Some(Vec::new()),
        Operand::Formula(formula) => match &**formula {
            Formula::Arithmetic(_, left, right) => Some([fields_of(left)?, fields_of(right)?].concat()),
            _ => None,
        },
        _ => None,
    }
}

impl<'n> Numbers<'n> {
    /// Of an operand whose fields have been looked at.
    pub(super) fn of(operand: &Operand, slots: &[u32], chunk: &'n Chunk<'_, '_>) -> Self {
        match operand {
            Operand::Field(field) => Self::of_field(slots[*field], chunk),
            Operand::Constant(value) => Self::of_constant(value),
            Operand::Now => Self::of_integer(chunk.now_ms()),
            Operand::Formula(formula) => match &**formula {
                Formula::Arithmetic(operator, left, right) => {
                    arithmetic(*operator, &Self::of(left, slots, chunk), &Self::of(right, slots, chunk))
                }
                _ => Self::nothing(),
            },
            Operand::Test(_) => Self::nothing(),
        }
    }

    /// Of a field that has been looked at.
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

    /// How both compare in `records`, and in which of these that has not been told.
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

/// Those of `records` in which both stand so.
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

impl<T: Copy> Lanes<'_, T> {
    fn of(&self, record: usize) -> T {
        match self {
            Self::Each(each) => each[record],
            Self::Same(same) => *same,
        }
    }
}

/// Of two integers an integer, of other numbers a double.
fn arithmetic(operator: Operator, left: &Numbers<'_>, right: &Numbers<'_>) -> Numbers<'static> {
    let mut result = Numbers::nothing();
    let others = |one: &Numbers<'_>, other: &Numbers<'_>| one.others & (other.others | other.numbers());
    result.others = others(left, right) | others(right, left);
    let integers = left.integers & right.integers;
    if !integers.is_empty() {
        let compute = |left: i64, right: i64| match operator {
            Operator::Add => left.checked_add(right),
            Operator::Subtract => left.checked_sub(right),
            Operator::Multiply => left.checked_mul(right),
            Operator::Divide => left.checked_div(right),
            Operator::Remainder => left.checked_rem(right),
        };
        (result.integers, result.integer) = computed(integers, &left.integer, &right.integer, compute);
    }
    let doubles = (left.doubles & right.doubles) - integers;
    if !doubles.is_empty() {
        let compute = |left: f64, right: f64| {
            let computed = match operator {
                Operator::Add => left + right,
                Operator::Subtract => left - right,
                Operator::Multiply => left * right,
                Operator::Divide => left / right,
                Operator::Remainder => left % right,
            };
            // Else it divides by zero, or is beyond the largest.
            computed.is_finite().then_some(computed)
        };
        (result.doubles, result.double) = computed(doubles, &left.double, &right.double, compute);
    }
    result
}

/// What is computed in each of `records`, and where that is anything.
fn computed<T: Copy + Default>(
    records: Selection,
    left: &Lanes<'_, T>,
    right: &Lanes<'_, T>,
    compute: impl Fn(T, T) -> Option<T>,
) -> (Selection, Lanes<'static, T>) {
    let count = match (left, right) {
        (Lanes::Same(left), Lanes::Same(right)) => {
            return match compute(*left, *right) {
                Some(same) => (records, Lanes::Same(same)),
                None => (Selection::NONE, Lanes::Same(T::default())),
            };
        }
        (Lanes::Each(each), _) | (_, Lanes::Each(each)) => each.len(),
    };
    let (mut values, mut there) = (vec![T::default(); count], Selection::NONE);
    for record in records.records() {
        if let Some(value) = compute(left.of(record), right.of(record)) {
            values[record] = value;
            there.insert(record);
        }
    }
    (there, Lanes::Each(values.into()))
}
