//! The distribution of numbers: quantiles, and counts between points.

use datasketches::codec::SketchBytes;
use datasketches::error::Error;

use super::kll::KllSketch;
use super::number::Number;
use super::sketch::SketchMeta;
use crate::{Points, Value};

/// The kind of a distribution's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DistributionKind {
    /// The values at given ranks, from 0 to 1.
    Quantile,
    /// The counts of values between neighbouring points.
    Frequency,
    /// The counts of values up to each point.
    CumulativeFrequency,
}

#[derive(Debug)]
pub(crate) struct Distribution {
    kind: DistributionKind,
    points: Points,
    values: KllSketch,
}

impl Distribution {
    /// Exact up to `k` values.
    pub(crate) fn new(kind: DistributionKind, points: Points, k: u16) -> Self {
        Self { kind, points, values: KllSketch::new(k) }
    }

    /// Adds a number; other values are skipped.
    pub(crate) fn add(&mut self, value: &Value<'_>) {
        Number::of(value).into_iter().for_each(|number| self.values.add(number.as_f64()));
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.values.merge(&other.values);
    }

    /// Quantile and value, or range, count and probability.
    pub(crate) fn rows(&self) -> Vec<Vec<Value<'static>>> {
        match self.kind {
            DistributionKind::Quantile => self.quantiles(),
            DistributionKind::Frequency | DistributionKind::CumulativeFrequency => self.ranges(),
        }
    }

    /// For each rank, the least value such that at least this share of all values does not exceed it.
    fn quantiles(&self) -> Vec<Vec<Value<'static>>> {
        let ranks: Vec<f64> = self.points(0.0, 1.0).into_iter().filter(|rank| (0.0..=1.0).contains(rank)).collect();
        let sorted = self.values.sorted();
        let value = |rank: f64| sorted.at_rank(rank).map_or(Value::Null, Value::Double);
        ranks.iter().map(|rank| vec![Value::Double(*rank), value(*rank)]).collect()
    }

    fn ranges(&self) -> Vec<Vec<Value<'static>>> {
        let points = match (&self.points, self.values.range()) {
            (Points::Linear(_), None) => Vec::new(),
            (_, range) => {
                let (start, end) = range.map_or((0.0, 0.0), |range| (range.min, range.max));
                self.points(start, end)
            }
        };
        let (sorted, total) = (self.values.sorted(), self.values.count());
        // The number of smaller values; all for the last range.
        let below = |point: Option<&f64>| point.map_or(total, |point| sorted.count_below(*point));
        let is_cumulative = self.kind == DistributionKind::CumulativeFrequency;
        let (mut start, mut reached) = (None, 0);
        let mut rows = Vec::with_capacity(points.len() + 1);
        for end in points.iter().map(Some).chain([None]) {
            let up_to = below(end);
            let (from, count) = if is_cumulative { (None, up_to) } else { (start, up_to.saturating_sub(reached)) };
            let share = if total == 0 { 0.0 } else { count as f64 / total as f64 };
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            rows.push(vec![Value::Text(range(from, end).into()), Value::Integer(count), Value::Double(share)]);
            (start, reached) = (end, up_to);
        }
        rows
    }

    /// The points in ascending order, without duplicates; computed points are rounded to six decimals.
    fn points(&self, start: f64, end: f64) -> Vec<f64> {
        let mut points = match &self.points {
            Points::Linear(1) => vec![rounded(start)],
            Points::Linear(count) => {
                let step = (end - start) / (*count - 1) as f64;
                (0..*count).map(|i| rounded(start + step * i as f64)).collect()
            }
            Points::Region { start, step, .. } => {
                (0..self.points.count()).map(|i| rounded(start + step * i as f64)).collect()
            }
            Points::Manual(points) => points.clone(),
        };
        points.sort_by(f64::total_cmp);
        points.dedup();
        points
    }

    pub(crate) fn meta(&self) -> SketchMeta {
        let error = match self.kind {
            DistributionKind::Frequency => self.values.range_error(),
            DistributionKind::Quantile | DistributionKind::CumulativeFrequency => self.values.rank_error(),
        };
        let estimated = self.values.is_estimated();
        SketchMeta {
            min: self.values.range().map(|range| range.min),
            max: self.values.range().map(|range| range.max),
            items_seen: Some(self.values.count()),
            active_items: Some(self.values.retained() as u64),
            rank_error: Some(if estimated { error } else { 0.0 }),
            ..SketchMeta::new("distribution", "KLL quantiles", self.size_bytes(), estimated)
        }
    }

    pub(crate) fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.values.contents_bytes()
    }

    pub(crate) fn working_bytes(&self) -> usize {
        self.values.working_bytes()
    }

    pub(crate) fn write(&self, out: &mut SketchBytes) {
        self.values.write(out);
    }

    pub(crate) fn resume(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.values = KllSketch::read(bytes)?;
        Ok(())
    }
}

/// `[a to b)`, or without a bound on one side.
fn range(start: Option<&f64>, end: Option<&f64>) -> String {
    let start = start.map_or("(-∞".to_owned(), |start| format!("[{start:?}"));
    let end = end.map_or("+∞".to_owned(), |end| format!("{end:?}"));
    format!("{start} to {end})")
}

/// The point rounded to six decimals, unless that overflows.
fn rounded(point: f64) -> f64 {
    let rounded = (point * 1e6).round() / 1e6;
    if rounded.is_finite() { rounded } else { point }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: DistributionKind, points: Points, values: impl IntoIterator<Item = f64>) -> Distribution {
        let mut distribution = Distribution::new(kind, points, 1600);
        values.into_iter().for_each(|value| distribution.add(&Value::Double(value)));
        distribution
    }

    fn ranges(distribution: &Distribution) -> Vec<(String, i64, f64)> {
        let row = |row: Vec<Value<'static>>| match row.as_slice() {
            [Value::Text(range), Value::Integer(count), Value::Double(share)] => (range.to_string(), *count, *share),
            other => panic!("{other:?}"),
        };
        distribution.rows().into_iter().map(row).collect()
    }

    fn quantiles(distribution: &Distribution) -> Vec<(f64, Option<f64>)> {
        let row = |row: Vec<Value<'static>>| match row.as_slice() {
            [Value::Double(rank), Value::Double(value)] => (*rank, Some(*value)),
            [Value::Double(rank), Value::Null] => (*rank, None),
            other => panic!("{other:?}"),
        };
        distribution.rows().into_iter().map(row).collect()
    }

    #[test]
    fn counts_between_points_are_of_half_open_ranges() {
        let manual = Points::Manual(vec![1.0, 2.0, 3.0]);
        let pmf = of(DistributionKind::Frequency, manual.clone(), [0.0, 1.0, 1.5, 2.0, 7.0]);
        let rows = ranges(&pmf);
        assert_eq!(rows.iter().map(|row| row.1).collect::<Vec<_>>(), [1, 2, 1, 1]);
        for (row, share) in rows.iter().zip([0.2, 0.4, 0.2, 0.2]) {
            assert!((row.2 - share).abs() < 1e-12, "{row:?}");
        }
        let names: Vec<&str> = rows.iter().map(|row| row.0.as_str()).collect();
        assert_eq!(names, ["(-∞ to 1.0)", "[1.0 to 2.0)", "[2.0 to 3.0)", "[3.0 to +∞)"]);
        let rows = ranges(&of(DistributionKind::CumulativeFrequency, manual.clone(), [0.0, 1.0, 1.5, 2.0, 7.0]));
        assert_eq!(rows.iter().map(|row| row.1).collect::<Vec<_>>(), [1, 3, 4, 5]);
        assert_eq!(rows[3].0, "(-∞ to +∞)");
        let nothing = ranges(&of(DistributionKind::Frequency, manual, []));
        assert!(nothing.iter().all(|row| (row.1, row.2) == (0, 0.0)) && nothing.len() == 4);
        assert_eq!(ranges(&of(DistributionKind::Frequency, Points::Linear(3), [])).len(), 1);
        let linear = ranges(&of(DistributionKind::Frequency, Points::Linear(3), [0.0, 1.0, 2.0]));
        assert_eq!(linear.iter().map(|row| row.1).collect::<Vec<_>>(), [0, 1, 1, 1]);
        assert_eq!(ranges(&of(DistributionKind::Frequency, Points::Linear(3), [4.0, 4.0])).len(), 2);
    }

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let hundred = || (1..=100).map(f64::from);
        let manual = Points::Manual(vec![0.95, 0.0, 0.5, 1.0]);
        let expected = [(0.0, Some(1.0)), (0.5, Some(50.0)), (0.95, Some(95.0)), (1.0, Some(100.0))];
        assert_eq!(quantiles(&of(DistributionKind::Quantile, manual.clone(), hundred())), expected);
        let linear = of(DistributionKind::Quantile, Points::Linear(4), hundred());
        assert_eq!(quantiles(&linear).iter().map(|row| row.0).collect::<Vec<_>>(), [0.0, 0.333_333, 0.666_667, 1.0]);
        let region = Points::Region { start: 0.1, end: 0.3, step: 0.1 };
        let ranks: Vec<f64> =
            quantiles(&of(DistributionKind::Quantile, region, hundred())).iter().map(|row| row.0).collect();
        assert_eq!(ranks, [0.1, 0.2, 0.3]);
        assert!(quantiles(&of(DistributionKind::Quantile, manual, [])).iter().all(|row| row.1.is_none()));
    }

    #[test]
    fn ranks_of_many_values_err_by_no_more_than_reported() {
        let points = Points::Manual(vec![0.01, 0.25, 0.5, 0.95, 0.999]);
        let values = |part: u32| (0..100_000_u32).filter(move |n| n % 2 == part).map(|n| f64::from(n * 7919 % 100_000));
        let mut parts = of(DistributionKind::Quantile, points.clone(), values(0));
        parts.merge(&of(DistributionKind::Quantile, points, values(1)));
        let meta = parts.meta();
        assert_eq!((meta.min, meta.max, meta.items_seen), (Some(0.0), Some(99_999.0), Some(100_000)));
        assert!(meta.was_estimated && meta.rank_error.unwrap() < 0.00239, "{meta:?}");
        // One rank of a hundred may err by more.
        for (rank, value) in quantiles(&parts) {
            let error = (value.unwrap() / 100_000.0 - rank).abs();
            assert!(error <= 2.0 * meta.rank_error.unwrap(), "{rank}: {value:?}");
        }
        assert!(parts.size_bytes() < 128 << 10);
    }

    #[test]
    fn a_written_distribution_is_read_back_and_goes_on() {
        let points = Points::Manual(vec![0.5]);
        let whole = of(DistributionKind::Quantile, points.clone(), (1..=9).map(f64::from));
        let mut bytes = SketchBytes::with_capacity(0);
        whole.write(&mut bytes);
        let bytes = bytes.into_bytes();
        let mut read = of(DistributionKind::Quantile, points.clone(), []);
        read.resume(&bytes).unwrap();
        (10..=99).for_each(|n| read.add(&Value::Integer(n)));
        read.add(&Value::Text("none".into()));
        assert_eq!(quantiles(&read), [(0.5, Some(50.0))]);
        assert!(of(DistributionKind::Quantile, points, []).resume(&bytes[..bytes.len() - 1]).is_err());
    }
}
