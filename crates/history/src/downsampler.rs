//! Reduces sorted rows to one row per period.
//!
//! Invariants
//! - The last value of each series and period stays, at its own time; the same holds for each range between deletions.
//! - Deletion points stay.
//! - Only one row is buffered: the next row tells if it is the last of its period.

use std::collections::BTreeMap;

use parquet::data_type::ByteArray;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::columns::PointRow;
use crate::config::Sample;
use crate::point::DELETED;
use crate::sampling_plan::SamplingPlan;

/// Metadata of a mean: the number of points behind it.
const AVERAGED_FROM: &str = "averagedFrom";

/// Samples rows according to a plan.
#[derive(Debug)]
pub(crate) struct Downsampler {
    plan: SamplingPlan,
    /// Cache of the plan entry for the current attribute.
    known: Option<(ByteArray, Option<(Sample, i64)>)>,
    waiting: Option<PendingRow>,
}

/// The last row seen of the current period.
#[derive(Debug)]
struct PendingRow {
    row: PointRow,
    sample: Sample,
    period: i64,
    mean: Mean,
}

impl Downsampler {
    pub(crate) fn new(plan: SamplingPlan) -> Self {
        Self { plan, known: None, waiting: None }
    }

    /// Takes a row and appends finished rows to `out`.
    pub(crate) fn push(&mut self, row: PointRow, out: &mut Vec<PointRow>) {
        let Some((sample, period_ms)) =
            self.sampling_of(&row.attribute).filter(|_| row.value.data() != DELETED.as_bytes())
        else {
            out.extend(self.finish());
            out.push(row);
            return;
        };
        let period = row.observed.div_euclid(period_ms);
        if let Some(waiting) = self.waiting.as_mut().filter(|waiting| waiting.is_of(&row, period)) {
            waiting.mean.add(&row);
            waiting.row = row;
            return;
        }
        out.extend(self.finish());
        let mut mean = Mean::default();
        mean.add(&row);
        self.waiting = Some(PendingRow { row, sample, period, mean });
    }

    pub(crate) fn finish(&mut self) -> Option<PointRow> {
        self.waiting.take().map(|PendingRow { row, sample, mean, .. }| match sample {
            Sample::Average => mean.applied_to(row),
            Sample::Last | Sample::All => row,
        })
    }

    /// Returns the sampling of the attribute; `None` if all of its points stay.
    fn sampling_of(&mut self, attribute: &ByteArray) -> Option<(Sample, i64)> {
        if let Some((_, said)) = self.known.as_ref().filter(|(known, _)| known.data() == attribute.data()) {
            return *said;
        }
        let name = attribute.as_utf8().unwrap_or_default();
        let first = self.plan.iter().find(|sampling_plan| sampling_plan.fits(name));
        let said =
            first.and_then(|sampling_plan| sampling_plan.period_ms.map(|period_ms| (sampling_plan.sample, period_ms)));
        self.known = Some((attribute.clone(), said));
        said
    }
}

impl PendingRow {
    fn is_of(&self, row: &PointRow, period: i64) -> bool {
        let (id, path, attribute, ..) = row.order();
        let (waiting_id, waiting_path, waiting_attribute, ..) = self.row.order();
        self.period == period && (id, path, attribute) == (waiting_id, waiting_path, waiting_attribute)
    }
}

#[derive(Debug, Default)]
struct Mean {
    sum: f64,
    /// Number of points in the mean.
    samples: u64,
    rows: u64,
}

impl Mean {
    fn add(&mut self, row: &PointRow) {
        let Some(number) = row.number else { return };
        let weight = weight(row);
        self.rows += 1;
        self.samples = self.samples.saturating_add(weight);
        self.sum += number * weight as f64;
    }

    /// Replaces the row's value with the mean. The row stays unchanged if it has no number, if it is the only one,
    /// or if the sum overflows.
    fn applied_to(&self, row: PointRow) -> PointRow {
        let mean = self.sum / self.samples as f64;
        let is_one_of_several = row.number.is_some() && self.rows > 1;
        let Some(text) = serde_json::Number::from_f64(mean).filter(|_| is_one_of_several) else { return row };
        let metadata = with_samples(row.metadata.as_ref(), self.samples);
        PointRow { value: text.to_string().as_str().into(), number: Some(mean), metadata: Some(metadata), ..row }
    }
}

/// Returns the number of points that a row stands for.
fn weight(row: &PointRow) -> u64 {
    #[derive(Deserialize)]
    struct AverageMetadata {
        #[serde(rename = "averagedFrom")]
        samples: Samples,
    }
    #[derive(Deserialize)]
    struct Samples {
        value: u64,
    }
    let text = row.metadata.as_ref().and_then(|metadata| metadata.as_utf8().ok());
    let said = text
        .filter(|text| text.contains(AVERAGED_FROM))
        .and_then(|text| serde_json::from_str::<AverageMetadata>(text).ok());
    said.map_or(1, |metadata| metadata.samples.value.max(1))
}

fn with_samples(metadata: Option<&ByteArray>, samples: u64) -> ByteArray {
    let text = metadata.and_then(|metadata| metadata.as_utf8().ok()).unwrap_or("{}");
    let mut items: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).unwrap_or_default();
    let item = RawValue::from_string(format!(r#"{{"type":"Number","value":{samples}}}"#));
    items.extend(item.map(|item| (AVERAGED_FROM.to_owned(), item)));
    serde_json::to_string(&items).expect("its keys are text").as_str().into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::point::number;
    use crate::sampling_plan::AttributeSampling;

    const ENTITIES: u8 = 3;

    /// Entity, attribute, observation time and value of a row.
    type Given = (u8, u8, i64, String);

    fn row(entity: u8, attribute: u8, observed: i64, value: &str, offset: usize) -> PointRow {
        PointRow {
            id: format!("e{entity}").as_str().into(),
            path: "/".into(),
            attribute: format!("a{attribute}").as_str().into(),
            kind: "Number".into(),
            observed,
            modified: observed + 5,
            value: value.into(),
            number: number(value),
            metadata: None,
            offset: offset as i64,
        }
    }

    fn plan(sample: Sample, period_ms: i64) -> SamplingPlan {
        let attribute = |name: &str, sample, period_ms| AttributeSampling { attribute: name.into(), sample, period_ms };
        // The first attribute keeps all points.
        vec![attribute("a0", Sample::All, None), attribute("*", sample, Some(period_ms))]
    }

    fn thinned(rows: Vec<PointRow>, plan: &SamplingPlan) -> Vec<PointRow> {
        let mut downsampler = Downsampler::new(plan.clone());
        let mut out = Vec::new();
        rows.into_iter().for_each(|row| downsampler.push(row, &mut out));
        out.extend(downsampler.finish());
        out
    }

    fn sorted(given: &[Given]) -> Vec<PointRow> {
        let row = |(offset, given): (usize, &Given)| {
            let (entity, attribute, observed, value) = given;
            row(*entity, *attribute, *observed, value, offset)
        };
        let mut rows: Vec<PointRow> = given.iter().enumerate().map(row).collect();
        rows.sort_by(|a, b| a.order().cmp(&b.order()));
        rows
    }

    /// The reference result: a row is dropped if the next row of its series is a value of the same period.
    fn slow(rows: &[PointRow], period_ms: i64) -> Vec<PointRow> {
        let goes = |at: usize| {
            let (row, next) = (&rows[at], rows.get(at + 1));
            let is_value = |row: &PointRow| row.value.data() != DELETED.as_bytes();
            next.is_some_and(|next| {
                row.order().0 == next.order().0
                    && row.order().2 == next.order().2
                    && row.attribute.data() != b"a0"
                    && row.observed.div_euclid(period_ms) == next.observed.div_euclid(period_ms)
                    && is_value(row)
                    && is_value(next)
            })
        };
        (0..rows.len()).filter(|at| !goes(*at)).map(|at| rows[at].clone()).collect()
    }

    fn texts(rows: &[PointRow]) -> Vec<String> {
        rows.iter().map(|row| format!("{row:?}")).collect()
    }

    fn given() -> impl Strategy<Value = Vec<Given>> {
        let value = prop_oneof![
            8 => (-1_000_i64..1_000).prop_map(|n| format!("{}", n as f64 / 8.0)),
            1 => Just("\"text\"".to_owned()),
            1 => Just(DELETED.to_owned()),
        ];
        // Times are often at the edges of periods, and before 1970.
        let moment =
            (-20_i64..20, prop::sample::select(vec![0_i64, 1, 30, 59])).prop_map(|(minute, ms)| minute * 60 + ms);
        prop::collection::vec((0..ENTITIES, 0_u8..3, moment, value), 0..200)
    }

    proptest! {
        #[test]
        fn sampling_keeps_the_same_points_as_a_slow_evaluator(given in given(), period in prop::sample::select(vec![60_i64, 300])) {
            let rows = sorted(&given);
            let left = thinned(rows.clone(), &plan(Sample::Last, period));
            prop_assert_eq!(texts(&left), texts(&slow(&rows, period)));
            let again = thinned(left.clone(), &plan(Sample::Last, period));
            prop_assert_eq!(texts(&again), texts(&left));
            // Sampling by shorter periods first gives the same result.
            let longer = thinned(left, &plan(Sample::Last, period * 2));
            prop_assert_eq!(texts(&longer), texts(&thinned(rows, &plan(Sample::Last, period * 2))));
        }

        #[test]
        fn means_are_those_of_all_points_also_by_way_of_shorter_periods(mut given in given()) {
            // An attribute is either numeric or not.
            for (_, attribute, _, value) in given.iter_mut().filter(|(_, _, _, value)| value != DELETED) {
                match (*attribute, number(value)) {
                    (2, Some(_)) => *value = "\"text\"".to_owned(),
                    (0 | 1, None) => *value = "7".to_owned(),
                    _ => {}
                }
            }
            let rows = sorted(&given);
            let times = |rows: &[PointRow]| rows.iter().map(|row| (row.observed, row.offset)).collect::<Vec<_>>();
            let by_way = thinned(thinned(rows.clone(), &plan(Sample::Average, 60)), &plan(Sample::Average, 300));
            let at_once = thinned(rows.clone(), &plan(Sample::Average, 300));
            prop_assert_eq!(times(&at_once), times(&slow(&rows, 300)));
            prop_assert_eq!(times(&by_way), times(&at_once));
            for (by_way, row) in by_way.iter().zip(&at_once) {
                // The earlier numbers of the same series and period, back to a deletion.
                let mut of_period: Vec<&PointRow> = rows
                    .iter()
                    .filter(|other| (other.order().0, other.order().2) == (row.order().0, row.order().2))
                    .filter(|other| other.observed.div_euclid(300) == row.observed.div_euclid(300))
                    .filter(|other| other.order() <= row.order())
                    .collect();
                of_period.reverse();
                let mut numbers: Vec<f64> = of_period.iter().map_while(|row| row.number).collect();
                if row.attribute.data() == b"a0" {
                    numbers.truncate(1);
                }
                let mean = (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64);
                for found in [row, by_way] {
                    match (found.number, mean) {
                        (Some(found), Some(mean)) => prop_assert!((found - mean).abs() < 1e-9, "{found} {mean}"),
                        (found, mean) => prop_assert_eq!(found, mean),
                    }
                    prop_assert_eq!(number(found.value.as_utf8().unwrap()), found.number);
                    if found.number.is_some() {
                        prop_assert_eq!(weight(found), numbers.len() as u64);
                    }
                }
            }
        }
    }

    #[test]
    fn a_mean_keeps_the_metadata_of_its_last_point_and_the_number_of_its_points() {
        let unit = r#"{"unitCode":{"type":"Text","value":"CEL"}}"#;
        let with_unit = |ms, value: &str| PointRow { metadata: Some(unit.into()), ..row(1, 1, ms, value, 0) };
        let out = thinned(vec![with_unit(0, "1"), with_unit(1, "2"), with_unit(70, "5")], &plan(Sample::Average, 60));
        assert_eq!(out.len(), 2);
        assert_eq!((out[0].value.as_utf8().unwrap(), out[0].number, out[0].observed), ("1.5", Some(1.5), 1));
        let expected = r#"{"averagedFrom":{"type":"Number","value":2},"unitCode":{"type":"Text","value":"CEL"}}"#;
        assert_eq!(out[0].metadata.as_ref().unwrap().as_utf8().unwrap(), expected);
        assert_eq!(format!("{:?}", out[1]), format!("{:?}", with_unit(70, "5")), "it stands for itself alone");
    }

    #[test]
    fn among_other_values_numbers_have_a_mean_if_the_last_value_is_one() {
        let of = |values: [&str; 3]| values.map(|value| row(1, 1, 0, value, 0)).to_vec();
        for (values, expected) in
            [(["1", "\"on\"", "4"], "2.5"), (["1", "4", "\"on\""], "\"on\""), (["null", "null", "4"], "4")]
        {
            let out = thinned(of(values), &plan(Sample::Average, 60));
            assert_eq!((out.len(), out[0].value.as_utf8().unwrap()), (1, expected));
        }
    }

    #[test]
    fn numbers_whose_sum_is_too_large_leave_their_last_one() {
        let rows = ["1e308", "1.5e308"].map(|value| row(1, 1, 0, value, 0)).to_vec();
        let out = thinned(rows, &plan(Sample::Average, 60));
        assert_eq!((out.len(), out[0].number), (1, Some(1.5e308)));
        assert_eq!(out[0].value.as_utf8().unwrap(), "1.5e308");
    }

    #[test]
    fn the_downsampler_holds_one_row_for_any_number_of_series() {
        let mut downsampler = Downsampler::new(plan(Sample::Last, 60));
        let mut out = Vec::new();
        for entity in 0..10_000_u32 {
            for moment in 0..3 {
                let id = format!("e{entity:05}");
                downsampler.push(PointRow { id: id.as_str().into(), ..row(0, 1, moment, "1", 0) }, &mut out);
                let settled = usize::try_from(entity).unwrap();
                assert_eq!(out.len(), settled, "all but the row that waits are out");
            }
        }
        assert!(downsampler.finish().is_some() && downsampler.finish().is_none());
    }
}
