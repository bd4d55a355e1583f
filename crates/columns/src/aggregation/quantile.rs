//! The number at one rank within a group: exact for few numbers, then within a rank error that the meta states.

use datasketches::codec::{SketchBytes, SketchSlice};
use datasketches::error::Error;

use super::allocation::ALLOCATION_BYTES;
use super::key::{cut, damaged, read_bytes};
use super::kll::KllSketch;
use super::number::Number;
use super::sketch::SketchMeta;
use crate::Value;

#[derive(Debug, Clone)]
pub(crate) struct Quantile {
    rank: f64,
    values: KllSketch,
}

impl Quantile {
    /// Exact up to `k` values.
    pub(crate) fn new(rank: f64, k: u16) -> Self {
        Self { rank, values: KllSketch::new(k) }
    }

    /// Adds a number; other values are skipped.
    pub(crate) fn add(&mut self, value: &Value<'_>) {
        Number::of(value).into_iter().for_each(|number| self.values.add(number.as_f64()));
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.values.merge(&other.values);
    }

    /// The least number such that at least this share of all does not exceed it; NULL without numbers.
    pub(crate) fn value(&self) -> Value<'static> {
        self.values.sorted().at_rank(self.rank).map_or(Value::Null, Value::Double)
    }

    /// The share of all values by which the rank may err, if it may.
    pub(crate) fn rank_error(&self) -> Option<f64> {
        self.values.is_estimated().then(|| self.values.rank_error())
    }

    pub(crate) fn items_seen(&self) -> u64 {
        self.values.count()
    }

    pub(crate) fn meta(&self, of: &str) -> SketchMeta {
        SketchMeta {
            items_seen: Some(self.items_seen()),
            rank_error: Some(self.rank_error().unwrap_or(0.0)),
            ..SketchMeta::new(of, "KLL quantiles", self.size_bytes(), self.values.is_estimated())
        }
    }

    pub(crate) fn size_bytes(&self) -> usize {
        size_of::<Self>() + ALLOCATION_BYTES + self.values.contents_bytes()
    }

    pub(crate) fn working_bytes(&self) -> usize {
        self.values.working_bytes()
    }

    pub(crate) fn write(&self, out: &mut SketchBytes) {
        let mut bytes = SketchBytes::with_capacity(0);
        self.values.write(&mut bytes);
        let bytes = bytes.into_bytes();
        out.write_f64_le(self.rank);
        out.write_u64_le(bytes.len() as u64);
        out.write(&bytes);
    }

    pub(crate) fn read(input: &mut SketchSlice<'_>) -> Result<Self, Error> {
        let rank = input.read_f64_le().map_err(cut)?;
        let length = input.read_u64_le().map_err(cut)?;
        let values = KllSketch::read(&read_bytes(input, length)?)?;
        if !(0.0..=1.0).contains(&rank) {
            return Err(damaged("a rank that is not from 0 to 1"));
        }
        Ok(Self { rank, values })
    }
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
