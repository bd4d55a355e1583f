//! Aggregates the points of a series by period.

use std::collections::{BTreeMap, HashMap};

use crate::period::Periods;
use crate::point::DELETED;
use crate::query::AggregateMethod;

/// Approximate memory of a period without its distinct values.
const PERIOD_BYTES: usize = 128;
/// Approximate memory of a distinct value without its text.
const DISTINCT_BYTES: usize = 48;

/// The aggregated periods of one series.
#[derive(Debug)]
pub(crate) struct Aggregates {
    periods: Periods,
    counts_distinct: bool,
    counts: bool,
    sums: BTreeMap<i64, Sums>,
    /// The period of the last point, which is usually that of the next one too.
    current: Option<(i64, Sums)>,
    bytes: usize,
}

/// The running aggregate of a period.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sums {
    count: u64,
    numbers: u64,
    sum: f64,
    sum_of_squares: f64,
    /// Mean and sum of squared differences (Welford's algorithm), which stays exact for large, similar numbers.
    mean: f64,
    distances: f64,
    least: f64,
    greatest: f64,
    /// How often each value occurs.
    distinct: HashMap<Box<str>, u64>,
}

impl Aggregates {
    pub(crate) fn new(periods: Periods, methods: &[AggregateMethod]) -> Self {
        let counts_distinct = methods.contains(&AggregateMethod::DistinctCount);
        let counts = counts_distinct || methods.contains(&AggregateMethod::TotalCount);
        Self { periods, counts_distinct, counts, sums: BTreeMap::new(), current: None, bytes: 0 }
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.sums.len() + usize::from(self.current.is_some())
    }

    pub(crate) fn counts_distinct(&self) -> bool {
        self.counts_distinct
    }

    /// Tells if a method counts points without a number, so that their values are needed.
    pub(crate) fn counts(&self) -> bool {
        self.counts
    }

    /// Adds a point. `value` is its JSON text, which matters only if points are counted; deletions are not counted.
    pub(crate) fn add(&mut self, ms: i64, number: Option<f64>, value: &str) {
        if number.is_none() && value == DELETED {
            return;
        }
        let period = self.periods.number(ms);
        if self.current.as_ref().is_none_or(|(current, _)| *current != period) {
            self.sums.extend(self.current.take());
            let known = self.sums.remove(&period);
            self.bytes += if known.is_none() { PERIOD_BYTES } else { 0 };
            self.current = Some((period, known.unwrap_or_default()));
        }
        let Some((_, sums)) = &mut self.current else { return };
        sums.add(number);
        if self.counts_distinct {
            match sums.distinct.get_mut(value) {
                Some(count) => *count += 1,
                None => {
                    self.bytes += DISTINCT_BYTES + value.len();
                    sums.distinct.insert(value.into(), 1);
                }
            }
        }
    }

    /// Returns the periods in order, with their start and end.
    pub(crate) fn finish(mut self) -> Vec<(Option<(i64, i64)>, Sums)> {
        self.sums.extend(self.current.take());
        let periods = self.periods;
        let ends = |number| periods.start(number).zip(periods.start(number + 1));
        self.sums.into_iter().map(|(number, sums)| (ends(number), sums)).collect()
    }
}

impl Sums {
    fn add(&mut self, number: Option<f64>) {
        self.count += 1;
        let Some(number) = number else { return };
        self.numbers += 1;
        self.sum += number;
        self.sum_of_squares += number * number;
        let distance = number - self.mean;
        self.mean += distance / self.numbers as f64;
        self.distances += distance * (number - self.mean);
        if self.numbers == 1 {
            (self.least, self.greatest) = (number, number);
        } else {
            (self.least, self.greatest) = (self.least.min(number), self.greatest.max(number));
        }
    }

    /// Returns the number of values that are numbers.
    pub(crate) fn numbers(&self) -> u64 {
        self.numbers
    }

    /// Returns the values as JSON text, each with how often it occurs, in no order; none unless distinct values are counted.
    pub(crate) fn occurrences(&self) -> impl Iterator<Item = (&str, u64)> {
        self.distinct.iter().map(|(value, count)| (&**value, *count))
    }

    /// Returns the result of a method; `None` if it needs numbers and there are none.
    pub(crate) fn value(&self, method: AggregateMethod) -> Option<f64> {
        let of_numbers = |value: f64| (self.numbers > 0).then_some(value);
        match method {
            AggregateMethod::TotalCount => Some(self.count as f64),
            AggregateMethod::DistinctCount => Some(self.distinct.len() as f64),
            AggregateMethod::Sum => of_numbers(self.sum),
            AggregateMethod::Average => of_numbers(self.sum / self.numbers as f64),
            AggregateMethod::Least => of_numbers(self.least),
            AggregateMethod::Greatest => of_numbers(self.greatest),
            AggregateMethod::StandardDeviation => of_numbers((self.distances / self.numbers as f64).sqrt()),
            AggregateMethod::SumOfSquares => of_numbers(self.sum_of_squares),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn slow(points: &[(i64, String)], method: AggregateMethod) -> Option<f64> {
        let numbers: Vec<f64> = points.iter().filter_map(|(_, value)| crate::point::number(value)).collect();
        let n = numbers.len() as f64;
        let sum: f64 = numbers.iter().sum();
        let of_numbers = |value: f64| (!numbers.is_empty()).then_some(value);
        match method {
            AggregateMethod::TotalCount => Some(points.len() as f64),
            AggregateMethod::DistinctCount => Some(points.iter().map(|(_, v)| v).collect::<HashSet<_>>().len() as f64),
            AggregateMethod::Sum => of_numbers(sum),
            AggregateMethod::Average => of_numbers(sum / n),
            AggregateMethod::Least => of_numbers(numbers.iter().copied().fold(f64::INFINITY, f64::min)),
            AggregateMethod::Greatest => of_numbers(numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
            AggregateMethod::StandardDeviation => {
                of_numbers((numbers.iter().map(|x| (x - sum / n).powi(2)).sum::<f64>() / n).sqrt())
            }
            AggregateMethod::SumOfSquares => of_numbers(numbers.iter().map(|x| x * x).sum()),
        }
    }

    proptest! {
        #[test]
        fn periods_match_a_slow_evaluator(
            points in prop::collection::vec(
                // Times are often at the edges of hours.
                ((-50_i64..50, prop::sample::select(vec![0_i64, 1, 1_799_999, 3_599_999])),
                 prop_oneof![(-40_i64..40).prop_map(|n| format!("{}", n as f64 / 4.0)), Just("\"text\"".to_owned()), Just("null".to_owned())]),
                0..200,
            ),
            duration in prop::sample::select(vec!["PT1H", "P1D", "P1M", "P0D"]),
        ) {
            let points: Vec<(i64, String)> =
                points.into_iter().map(|((hour, ms), value)| (hour * 3_600_000 + ms, value)).collect();
            let periods = Periods::read(duration, None).unwrap();
            let methods = AggregateMethod::ALL.map(|(method, _)| method);
            let mut aggregates = Aggregates::new(periods, &methods);
            let mut expected: BTreeMap<i64, Vec<(i64, String)>> = BTreeMap::new();
            for (ms, value) in &points {
                aggregates.add(*ms, crate::point::number(value), value);
                expected.entry(periods.number(*ms)).or_default().push((*ms, value.clone()));
            }
            prop_assert_eq!(aggregates.len(), expected.len());
            let found = aggregates.finish();
            prop_assert_eq!(found.len(), expected.len());
            for ((ends, sums), (number, points)) in found.iter().zip(&expected) {
                prop_assert_eq!(*ends, periods.start(*number).zip(periods.start(*number + 1)));
                for method in methods {
                    match (sums.value(method), slow(points, method)) {
                        (Some(found), Some(expected)) => prop_assert!((found - expected).abs() < 1e-9, "{method:?}"),
                        (found, expected) => prop_assert_eq!(found, expected),
                    }
                }
            }
        }
    }
}
