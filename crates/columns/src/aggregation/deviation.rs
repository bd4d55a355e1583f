//! The standard deviation of numbers, by Welford's method; parts merge by the formula of Chan, Golub and LeVeque (1979).

use datasketches::codec::{SketchBytes, SketchSlice};
use datasketches::error::Error;

use super::key::cut;
use super::number::Number;
use crate::Value;

/// The count, the mean and the sum of the squared distances from the mean.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Deviation {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Deviation {
    pub(crate) fn add(&mut self, number: Number) {
        let number = number.as_f64();
        self.count += 1;
        let distance = number - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (number - self.mean);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let (mine, others) = (self.count as f64, other.count as f64);
        let distance = other.mean - self.mean;
        self.count += other.count;
        let all = mine + others;
        self.mean += distance * (others / all);
        self.squares += other.squares + distance * distance * mine * (others / all);
    }

    /// The deviation of a sample; NULL of fewer than two numbers, and beyond all doubles.
    pub(crate) fn value(&self) -> Value<'static> {
        if self.count < 2 {
            return Value::Null;
        }
        let deviation = (self.squares / (self.count - 1) as f64).sqrt();
        if deviation.is_finite() { Value::Double(deviation) } else { Value::Null }
    }

    pub(crate) fn write(&self, out: &mut SketchBytes) {
        out.write_u64_le(self.count);
        out.write_f64_le(self.mean);
        out.write_f64_le(self.squares);
    }

    pub(crate) fn read(input: &mut SketchSlice<'_>) -> Result<Self, Error> {
        Ok(Self {
            count: input.read_u64_le().map_err(cut)?,
            mean: input.read_f64_le().map_err(cut)?,
            squares: input.read_f64_le().map_err(cut)?,
        })
    }
}
