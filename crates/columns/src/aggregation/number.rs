//! Numbers as aggregates take them, and sums that lose nothing.

use datasketches::codec::{SketchBytes, SketchSlice};
use datasketches::error::Error;

use super::key::{cut, damaged};
use crate::Value;

/// A number as an integer or a double.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Integer(i64),
    /// A double that is finite.
    Double(f64),
}

impl Number {
    /// The number that a value is, or that a text spells; others have none.
    pub(crate) fn of(value: &Value<'_>) -> Option<Self> {
        match value {
            Value::Integer(value) => Some(Self::Integer(*value)),
            Value::Double(value) => Some(Self::Double(*value)),
            Value::Text(text) => {
                let text = text.trim();
                let integer = text.parse().ok().map(Self::Integer);
                integer.or_else(|| text.parse().ok().filter(|double: &f64| double.is_finite()).map(Self::Double))
            }
            Value::Null | Value::Boolean(_) | Value::Nested(_) | Value::List(_) => None,
        }
    }

    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Double(value) => value,
        }
    }

    pub(crate) fn value(self) -> Value<'static> {
        match self {
            Self::Integer(value) => Value::Integer(value),
            Self::Double(value) => Value::Double(value),
        }
    }

    pub(crate) fn write(self, out: &mut SketchBytes) {
        match self {
            Self::Integer(value) => {
                out.write_u8(0);
                out.write_i64_le(value);
            }
            Self::Double(value) => {
                out.write_u8(1);
                out.write_f64_le(value);
            }
        }
    }

    pub(crate) fn read(input: &mut SketchSlice<'_>) -> Result<Self, Error> {
        match input.read_u8().map_err(cut)? {
            0 => input.read_i64_le().map(Self::Integer).map_err(cut),
            1 => input.read_f64_le().map(Self::Double).map_err(cut),
            _ => Err(damaged("an unknown kind of number")),
        }
    }
}

/// The count and the sum of numbers. Integers are exact; doubles carry the rounding error along (Neumaier's variant of
/// Kahan's summation, 1974), so that their order hardly matters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Total {
    count: u64,
    integers: i128,
    has_doubles: bool,
    doubles: f64,
    lost: f64,
}

impl Total {
    pub(crate) fn add(&mut self, number: Number) {
        self.count += 1;
        match number {
            // 2^64 additions of 2^63 fit.
            Number::Integer(value) => self.integers += i128::from(value),
            Number::Double(value) => {
                self.has_doubles = true;
                self.add_double(value);
            }
        }
    }

    fn add_double(&mut self, value: f64) {
        let sum = self.doubles + value;
        self.lost +=
            if self.doubles.abs() >= value.abs() { (self.doubles - sum) + value } else { (value - sum) + self.doubles };
        self.doubles = sum;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.integers = self.integers.saturating_add(other.integers);
        self.has_doubles |= other.has_doubles;
        self.add_double(other.doubles);
        self.lost += other.lost;
    }

    fn as_f64(&self) -> f64 {
        self.integers as f64 + (self.doubles + self.lost)
    }

    /// The sum; NULL without numbers, and for a sum beyond all doubles.
    pub(crate) fn sum(&self) -> Value<'static> {
        if self.count == 0 {
            return Value::Null;
        }
        match i64::try_from(self.integers) {
            Ok(sum) if !self.has_doubles => Value::Integer(sum),
            _ => double(self.as_f64()),
        }
    }

    /// The average; NULL of nothing.
    pub(crate) fn average(&self) -> Value<'static> {
        if self.count == 0 { Value::Null } else { double(self.as_f64() / self.count as f64) }
    }

    pub(crate) fn write(&self, out: &mut SketchBytes) {
        out.write_u64_le(self.count);
        out.write(&self.integers.to_le_bytes());
        out.write_u8(u8::from(self.has_doubles));
        out.write_f64_le(self.doubles);
        out.write_f64_le(self.lost);
    }

    pub(crate) fn read(input: &mut SketchSlice<'_>) -> Result<Self, Error> {
        let count = input.read_u64_le().map_err(cut)?;
        let mut integers = [0; 16];
        input.read_exact(&mut integers).map_err(cut)?;
        Ok(Self {
            count,
            integers: i128::from_le_bytes(integers),
            has_doubles: input.read_u8().map_err(cut)? != 0,
            doubles: input.read_f64_le().map_err(cut)?,
            lost: input.read_f64_le().map_err(cut)?,
        })
    }
}

fn double(value: f64) -> Value<'static> {
    if value.is_finite() { Value::Double(value) } else { Value::Null }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_spell_numbers_are_cast_and_others_skipped() {
        for (value, number) in [
            (Value::Text(" 12 ".into()), Some(Number::Integer(12))),
            (Value::Text("-1.5e1".into()), Some(Number::Double(-15.0))),
            (Value::Text("inf".into()), None),
            (Value::Text("NaN".into()), None),
            (Value::Text("twelve".into()), None),
            (Value::Boolean(true), None),
            (Value::Null, None),
            (Value::Nested(b"{}".into()), None),
        ] {
            assert_eq!(Number::of(&value), number, "{value:?}");
        }
    }

    #[test]
    fn integers_sum_exactly_and_doubles_in_any_order() {
        let mut total = Total::default();
        assert_eq!((total.sum(), total.average()), (Value::Null, Value::Null));
        for value in [i64::MAX, i64::MAX, i64::MIN, i64::MIN, 5] {
            total.add(Number::Integer(value));
        }
        assert_eq!((total.sum(), total.average()), (Value::Integer(3), Value::Double(0.6)));
        let mut parts = [Total::default(), Total::default()];
        for (i, value) in [1e100, 1.0, -1e100, 0.1, 0.2].into_iter().enumerate() {
            parts[i % 2].add(Number::Double(value));
        }
        let [mut a, b] = parts;
        a.merge(&b);
        assert_eq!(a.sum(), Value::Double(1.3));
        a.add(Number::Double(f64::MAX));
        a.add(Number::Double(f64::MAX));
        assert_eq!(a.sum(), Value::Null);
    }
}
