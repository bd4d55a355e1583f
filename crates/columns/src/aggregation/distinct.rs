//! The number of distinct values: exact up to the nominal size, then an estimate with bounds.

use datasketches::codec::{SketchBytes, SketchSlice};
use datasketches::common::NumStdDev;
use datasketches::error::Error;
use datasketches::theta::{CompactThetaSketch, ThetaSketch, ThetaSketchBuilder, ThetaUnionBuilder};

use super::allocation::{ALLOCATION_BYTES, allocated, table_places};
use super::key::{cut, read_bytes};
use super::sketch::{Bounds, SketchMeta};

/// A theta sketch of the values added here, and one of those merged or read.
#[derive(Debug)]
pub(crate) struct Distinct {
    lg_size: u8,
    live: ThetaSketch,
    merged: Option<CompactThetaSketch>,
}

impl Distinct {
    /// An empty one of 2^`lg_size` nominal entries.
    pub(crate) fn new(lg_size: u8) -> Self {
        let live = ThetaSketchBuilder::default().lg_k(lg_size).build();
        Self { lg_size, live: live.expect("the size of a sketch is within its family's bounds"), merged: None }
    }

    pub(crate) fn add(&mut self, thing: &[u8]) {
        self.live.update(thing);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        if !other.live.is_empty() {
            self.merge_sketch(&other.live.compact(true));
        }
        if let Some(merged) = &other.merged {
            self.merge_sketch(merged);
        }
    }

    fn merge_sketch(&mut self, other: &CompactThetaSketch) {
        self.merged = Some(match &self.merged {
            None => other.clone(),
            Some(merged) => union(self.lg_size, [merged, other]),
        });
    }

    /// The union of both sketches.
    fn result(&self) -> CompactThetaSketch {
        let live = self.live.compact(true);
        match &self.merged {
            None => live,
            Some(merged) => union(self.lg_size, [merged, &live]),
        }
    }

    /// The number of distinct values, rounded.
    pub(crate) fn count(&self) -> u64 {
        self.result().estimate().round() as u64
    }

    pub(crate) fn meta(&self, of: &str) -> SketchMeta {
        let result = self.result();
        SketchMeta {
            theta: Some(result.theta()),
            uniques_estimate: Some(result.estimate()),
            standard_deviations: Some(Bounds::by_deviations(|deviations| {
                (result.lower_bound(deviations), result.upper_bound(deviations))
            })),
            ..SketchMeta::new(of, "theta", self.size_bytes(), result.is_estimation_mode())
        }
    }

    /// Three standard deviations relative to the estimate, if it is one.
    pub(crate) fn relative_error(&self) -> Option<f64> {
        let result = self.result();
        let estimate = result.estimate();
        result.is_estimation_mode().then(|| (result.upper_bound(NumStdDev::Three) - estimate) / estimate)
    }

    pub(crate) fn size_bytes(&self) -> usize {
        let merged = self.merged.as_ref().map_or(0, |merged| allocated(merged.estimated_size()));
        self.live.estimated_size() + merged + ALLOCATION_BYTES
    }

    /// The bytes that a union of all values and its result take beside the state.
    pub(crate) fn working_bytes(&self) -> usize {
        let entries = self.live.num_retained() + self.merged.as_ref().map_or(0, CompactThetaSketch::num_retained);
        (2 * table_places(self.lg_size, entries) + 3 * entries) * size_of::<u64>()
    }

    pub(crate) fn write(&self, out: &mut SketchBytes) {
        let bytes = self.result().serialize();
        out.write_u8(self.lg_size);
        out.write_u64_le(bytes.len() as u64);
        out.write(&bytes);
    }

    pub(crate) fn read(input: &mut SketchSlice<'_>) -> Result<Self, Error> {
        let lg_size = input.read_u8().map_err(cut)?;
        let length = input.read_u64_le().map_err(cut)?;
        let merged = CompactThetaSketch::deserialize(&read_bytes(input, length)?)?;
        let live = ThetaSketchBuilder::default().lg_k(lg_size).build()?;
        Ok(Self { lg_size, live, merged: Some(merged) })
    }
}

fn union(lg_size: u8, sketches: [&CompactThetaSketch; 2]) -> CompactThetaSketch {
    let union = ThetaUnionBuilder::default().lg_k(lg_size).build();
    let mut union = union.expect("the size of a sketch is within its family's bounds");
    for sketch in sketches {
        union.update(sketch).expect("all sketches are made with the one seed");
    }
    union.to_sketch(true)
}

impl Clone for Distinct {
    fn clone(&self) -> Self {
        let mut clone = Self::new(self.lg_size);
        clone.merge(self);
        clone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(range: std::ops::Range<u64>) -> Distinct {
        let mut distinct = Distinct::new(14);
        range.for_each(|n| distinct.add(&n.to_le_bytes()));
        distinct
    }

    #[test]
    fn ten_thousand_sent_three_times_are_exactly_ten_thousand() {
        let mut parts = of(0..10_000);
        for _ in 0..2 {
            parts.merge(&of(0..10_000));
        }
        assert_eq!(parts.count(), 10_000);
        let meta = parts.meta("c");
        assert!(!meta.was_estimated);
        assert_eq!((meta.theta, meta.uniques_estimate), (Some(1.0), Some(10_000.0)));
    }

    #[test]
    fn a_million_values_are_estimated_within_bounds_whether_merged_or_not() {
        let mut parts = of(0..600_000);
        parts.merge(&of(400_000..1_000_000));
        for distinct in [of(0..1_000_000), parts] {
            let meta = distinct.meta("c");
            assert!(meta.was_estimated);
            let bounds = meta.standard_deviations.unwrap();
            assert!(bounds[2].lower <= 1_000_000.0 && bounds[2].upper >= 1_000_000.0, "{bounds:?}");
            assert!(distinct.count().abs_diff(1_000_000) <= 23_400, "{}", distinct.count());
            assert!(distinct.relative_error().unwrap() < 0.0240);
            assert!(distinct.size_bytes() <= 512 << 10, "{}", distinct.size_bytes());
        }
    }

    #[test]
    fn a_written_distinct_count_is_read_back_and_goes_on() {
        let mut whole = of(0..5_000);
        whole.merge(&of(2_000..9_000));
        let mut bytes = SketchBytes::with_capacity(0);
        whole.write(&mut bytes);
        let bytes = bytes.into_bytes();
        let mut read = Distinct::read(&mut SketchSlice::new(&bytes)).unwrap();
        assert_eq!(read.count(), 9_000);
        (8_999..12_000_u64).for_each(|n| read.add(&n.to_le_bytes()));
        assert_eq!((read.count(), read.clone().count()), (12_000, 12_000));
        for length in [0, 1, 8, 9, 40, bytes.len() - 1] {
            assert!(Distinct::read(&mut SketchSlice::new(&bytes[..length])).is_err());
        }
    }
}
