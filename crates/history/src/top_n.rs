//! Selects the first or last N points of a series from many unordered sources, and keeps at most 2N in memory.

use crate::point::Point;

/// The end of time whose points are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeEnd {
    First,
    Last,
}

/// Keeps the `keep` points nearest to one end of time.
#[derive(Debug)]
pub(crate) struct TopN {
    end: TimeEnd,
    keep: usize,
    /// At most `2 * keep` points.
    points: Vec<(i64, Point)>,
    /// Time and offset of the worst point still kept; points beyond it are ignored.
    bound: Option<(i64, u64)>,
    bytes: usize,
}

impl TopN {
    pub(crate) fn new(end: TimeEnd, keep: usize) -> Self {
        Self { end, keep: keep.max(1), points: Vec::new(), bound: None, bytes: 0 }
    }

    pub(crate) fn end(&self) -> TimeEnd {
        self.end
    }

    /// Returns the approximate memory of the points.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// Tells if a point of this time and offset would be kept.
    pub(crate) fn wants(&self, ms: i64, offset: u64) -> bool {
        self.bound.is_none_or(|bound| match self.end {
            TimeEnd::First => (ms, offset) <= bound,
            TimeEnd::Last => (ms, offset) >= bound,
        })
    }

    /// Tells if a point in the closed range `first..=last` might be kept.
    pub(crate) fn wants_between(&self, first: i64, last: i64) -> bool {
        match self.end {
            TimeEnd::First => self.wants(first, 0),
            TimeEnd::Last => self.wants(last, u64::MAX),
        }
    }

    /// Adds a point if it would be kept.
    pub(crate) fn offer(&mut self, ms: i64, offset: u64, point: impl FnOnce() -> Point) {
        if !self.wants(ms, offset) {
            return;
        }
        let point = point();
        self.bytes += size_bytes(&point);
        self.points.push((ms, point));
        // As soon as there are enough, files further from the wanted end need not be opened.
        if self.points.len() == self.keep || self.points.len() >= self.keep.saturating_mul(2) {
            self.cut();
        }
    }

    /// Ignores all points beyond `ms` from now on.
    pub(crate) fn bound_by(&mut self, ms: i64) {
        let bound = (ms, if self.end == TimeEnd::First { u64::MAX } else { 0 });
        if self.wants(bound.0, bound.1) {
            self.bound = Some(bound);
        }
    }

    fn cut(&mut self) {
        if self.points.len() < self.keep {
            return;
        }
        let end = self.end;
        let key = |(ms, point): &(i64, Point)| (*ms, point.offset);
        self.points.select_nth_unstable_by(self.keep - 1, |a, b| match end {
            TimeEnd::First => key(a).cmp(&key(b)),
            TimeEnd::Last => key(b).cmp(&key(a)),
        });
        self.bound = self.points.get(self.keep - 1).map(key);
        self.points.truncate(self.keep);
        self.bytes = self.points.iter().map(|(_, point)| size_bytes(point)).sum();
    }

    /// Returns the points in time order.
    pub(crate) fn finish(mut self) -> Vec<(i64, Point)> {
        self.cut();
        self.points.sort_by_key(|(ms, point)| (*ms, point.offset));
        self.points
    }
}

fn size_bytes(point: &Point) -> usize {
    size_of::<(i64, Point)>() + point.value.len() + point.metadata.as_ref().map_or(0, |text| text.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn point(ms: i64, offset: u64) -> Point {
        let (kind, value) = ("Number".into(), "1".into());
        Point { observed_ms: ms, modified_ms: ms, offset, kind, value, number: Some(1.0), metadata: None }
    }

    proptest! {
        #[test]
        fn the_top_n_are_those_of_a_full_sort(
            times in prop::collection::vec(0_i64..30, 0..100),
            keep in 1_usize..20,
            is_first in any::<bool>(),
        ) {
            let end = if is_first { TimeEnd::First } else { TimeEnd::Last };
            let mut top_n = TopN::new(end, keep);
            for (offset, ms) in times.iter().enumerate() {
                top_n.offer(*ms, offset as u64, || point(*ms, offset as u64));
            }
            let mut all: Vec<(i64, u64)> = times.iter().enumerate().map(|(offset, ms)| (*ms, offset as u64)).collect();
            all.sort_unstable();
            let expected = match end {
                TimeEnd::First => all[..keep.min(all.len())].to_vec(),
                TimeEnd::Last => all[all.len().saturating_sub(keep)..].to_vec(),
            };
            let found: Vec<(i64, u64)> = top_n.finish().into_iter().map(|(ms, point)| (ms, point.offset)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
