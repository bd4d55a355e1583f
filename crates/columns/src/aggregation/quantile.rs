//! The number at one rank within a group: exact for few numbers, then within a rank error that the meta states.

use datasketches::codec::{SketchBytes, SketchSlice};
use datasketches::common::SearchCriteria;
use datasketches::error::Error;
use datasketches::kll::{KllFloat, KllSketch};

use super::allocation::ALLOCATION_BYTES;
use super::key::{cut, damaged, read_bytes};
use super::number::Number;
use super::sketch::SketchMeta;
use crate::Value;

type Double = KllFloat<f64>;

/// Pieces of memory that a small sketch has.
const ALLOCATIONS: usize = 4;

#[derive(Debug, Clone)]
pub(crate) struct Quantile {
    rank: f64,
    values: KllSketch<Double>,
}

impl Quantile {
    /// Exact up to `k` values.
    pub(crate) fn new(rank: f64, k: u16) -> Self {
        Self { rank, values: KllSketch::new(k).expect("the size of a sketch is within its family's bounds") }
    }

    /// Adds a number; other values are skipped.
    pub(crate) fn add(&mut self, value: &Value<'_>) {
        let number = Number::of(value).and_then(|number| Double::new(number.as_f64()).ok());
        number.into_iter().for_each(|number| self.values.update(number));
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.values.merge(&other.values).expect("fewer than 2^64 values have been added");
    }

    /// The least number such that at least this share of all does not exceed it; NULL without numbers.
    pub(crate) fn value(&self) -> Value<'static> {
        let values = self.values.quantiles(&[self.rank], SearchCriteria::Inclusive).expect("the rank is from 0 to 1");
        values.as_ref().and_then(|values| values.first()).map_or(Value::Null, |value| Value::Double(**value))
    }

    /// The share of all values by which the rank may err, if it may.
    pub(crate) fn rank_error(&self) -> Option<f64> {
        self.values.is_estimation_mode().then(|| self.values.normalized_rank_error())
    }

    pub(crate) fn items_seen(&self) -> u64 {
        self.values.n()
    }

    pub(crate) fn meta(&self, of: &str) -> SketchMeta {
        SketchMeta {
            items_seen: Some(self.items_seen()),
            rank_error: Some(self.rank_error().unwrap_or(0.0)),
            ..SketchMeta::new(of, "KLL quantiles", self.size_bytes(), self.values.is_estimation_mode())
        }
    }

    pub(crate) fn size_bytes(&self) -> usize {
        size_of::<Self>() + ALLOCATIONS * ALLOCATION_BYTES + numbers_bytes(&self.values)
    }

    pub(crate) fn working_bytes(&self) -> usize {
        working_bytes(&self.values)
    }

    pub(crate) fn write(&self, out: &mut SketchBytes) {
        let bytes = self.values.serialize();
        out.write_f64_le(self.rank);
        out.write_u64_le(bytes.len() as u64);
        out.write(&bytes);
    }

    pub(crate) fn read(input: &mut SketchSlice<'_>) -> Result<Self, Error> {
        let rank = input.read_f64_le().map_err(cut)?;
        let length = input.read_u64_le().map_err(cut)?;
        let values = KllSketch::<Double>::deserialize(&read_bytes(input, length)?)?;
        if !(0.0..=1.0).contains(&rank) {
            return Err(damaged("a rank that is not from 0 to 1"));
        }
        if values.min_item().into_iter().chain(values.max_item()).any(|value| !value.is_finite()) {
            return Err(damaged("quantiles of numbers that are none"));
        }
        Ok(Self { rank, values })
    }
}

/// The bytes that results of a sketch, or a merge, take beside it.
pub(super) fn working_bytes(values: &KllSketch<Double>) -> usize {
    values.num_retained() * 5 * size_of::<f64>()
}

/// The bytes behind the numbers of a sketch. Its levels have room for about twice as many, and together for thrice `k`.
pub(super) fn numbers_bytes(values: &KllSketch<Double>) -> usize {
    (values.num_retained() * 18).min(usize::from(values.k()) * 25)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rank: f64, range: std::ops::Range<i64>) -> Quantile {
        let mut quantile = Quantile::new(rank, 400);
        range.for_each(|n| quantile.add(&Value::Integer(n)));
        quantile
    }

    #[test]
    fn a_small_quantile_is_exact_and_is_read_as_it_was_written() {
        assert_eq!(of(0.5, 0..0).value(), Value::Null);
        let mut median = of(0.5, 1..101);
        median.add(&Value::Text("none".into()));
        median.merge(&of(0.5, 101..201));
        assert_eq!((median.value(), median.rank_error()), (Value::Double(100.0), None));
        let mut bytes = SketchBytes::with_capacity(0);
        median.write(&mut bytes);
        let bytes = bytes.into_bytes();
        let read = Quantile::read(&mut SketchSlice::new(&bytes)).unwrap();
        assert_eq!((read.value(), read.items_seen()), (Value::Double(100.0), 200));
        for length in [0, 8, 16, bytes.len() - 1] {
            assert!(Quantile::read(&mut SketchSlice::new(&bytes[..length])).is_err(), "{length}");
        }
    }

    #[test]
    fn a_quantile_of_many_values_errs_by_no_more_than_it_reports() {
        let mut high = of(0.95, 0..50_000);
        high.merge(&of(0.95, 50_000..100_000));
        let Value::Double(value) = high.value() else { panic!("{high:?}") };
        let error = high.rank_error().unwrap();
        assert!(error < 0.01 && (value / 100_000.0 - 0.95).abs() <= error, "{value} {error}");
        assert!(high.size_bytes() < 32 << 10, "{}", high.size_bytes());
    }
}
