//! The first or the last points of a series, out of many sources in any order: no more are kept than are asked for.

use crate::point::Point;

/// From which end points are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    First,
    Last,
}

/// Keeps the `keep` points nearest to one end of time.
#[derive(Debug)]
pub(crate) struct Gather {
    end: End,
    keep: usize,
    /// Up to twice as many as are to be kept.
    points: Vec<(i64, Point)>,
    /// Time and offset beyond which a point is not kept any more.
    bound: Option<(i64, u64)>,
    bytes: usize,
}

impl Gather {
    pub(crate) fn new(end: End, keep: usize) -> Self {
        Self { end, keep: keep.max(1), points: Vec::new(), bound: None, bytes: 0 }
    }

    pub(crate) fn end(&self) -> End {
        self.end
    }

    /// Bytes that the points take, about.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a point of this time and offset would be kept.
    pub(crate) fn wants(&self, ms: i64, offset: u64) -> bool {
        self.bound.is_none_or(|bound| match self.end {
            End::First => (ms, offset) <= bound,
            End::Last => (ms, offset) >= bound,
        })
    }

    /// Whether any point between two moments, both included, might be kept.
    pub(crate) fn wants_between(&self, (first, last): (i64, i64)) -> bool {
        match self.end {
            End::First => self.wants(first, 0),
            End::Last => self.wants(last, u64::MAX),
        }
    }

    /// Takes a point, if it would be kept.
    pub(crate) fn offer(&mut self, ms: i64, offset: u64, point: impl FnOnce() -> Point) {
        if !self.wants(ms, offset) {
            return;
        }
        let point = point();
        self.bytes += size_bytes(&point);
        self.points.push((ms, point));
        if self.points.len() >= self.keep.saturating_mul(2) {
            self.cut();
        }
    }

    /// From now on nothing beyond `ms` is kept.
    pub(crate) fn bound_by(&mut self, ms: i64) {
        let bound = (ms, if self.end == End::First { u64::MAX } else { 0 });
        if self.wants(bound.0, bound.1) {
            self.bound = Some(bound);
        }
    }

    fn cut(&mut self) {
        if self.points.len() <= self.keep {
            return;
        }
        let end = self.end;
        let key = |(ms, point): &(i64, Point)| (*ms, point.offset);
        self.points.select_nth_unstable_by(self.keep - 1, |a, b| match end {
            End::First => key(a).cmp(&key(b)),
            End::Last => key(b).cmp(&key(a)),
        });
        self.bound = self.points.get(self.keep - 1).map(key);
        self.points.truncate(self.keep);
        self.bytes = self.points.iter().map(|(_, point)| size_bytes(point)).sum();
    }

    /// The points in the order of time.
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
        fn what_is_kept_is_what_sorting_all_of_them_finds(
            times in prop::collection::vec(0_i64..30, 0..100),
            keep in 1_usize..20,
            is_first in any::<bool>(),
        ) {
            let end = if is_first { End::First } else { End::Last };
            let mut gather = Gather::new(end, keep);
            for (offset, ms) in times.iter().enumerate() {
                gather.offer(*ms, offset as u64, || point(*ms, offset as u64));
            }
            let mut all: Vec<(i64, u64)> = times.iter().enumerate().map(|(offset, ms)| (*ms, offset as u64)).collect();
            all.sort_unstable();
            let expected = match end {
                End::First => all[..keep.min(all.len())].to_vec(),
                End::Last => all[all.len().saturating_sub(keep)..].to_vec(),
            };
            let found: Vec<(i64, u64)> = gather.finish().into_iter().map(|(ms, point)| (ms, point.offset)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
