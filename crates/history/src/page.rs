//! The points of an answer, cut where it would have too many: at one moment for all series, so that the next read can go on
//! from there.

use millstream_http::Problem;

use crate::aggregate::Sums;
use crate::gather::End;
use crate::point::Point;
use crate::read::too_large;

/// What a read has found.
#[derive(Debug)]
pub(crate) enum Found {
    Points(Points),
    /// Which entity, which attribute, and its periods with their beginnings and ends.
    Periods(Vec<PeriodSeries>),
}

/// Entity, attribute, periods.
pub(crate) type PeriodSeries = (usize, String, Vec<(Option<(i64, i64)>, Sums)>);

/// Entity, attribute, points by time.
pub(crate) type PointSeries = (usize, String, Vec<(i64, Point)>);

/// Points of an answer.
#[derive(Debug)]
pub(crate) struct Points {
    pub(crate) series: Vec<PointSeries>,
    /// If there were more: the first and the last moment that is in the answer, wholly.
    pub(crate) cut: Option<(i64, i64)>,
}

/// An answer's points while they are gathered.
#[derive(Debug)]
pub(crate) struct PointPage {
    end: End,
    max: usize,
    series: Vec<PointSeries>,
    total: usize,
    /// The first moment that is not in the answer any more.
    cut_ms: Option<i64>,
}

impl End {
    /// Leaves the points that are on this side of `cut_ms`.
    fn keep(self, points: &mut Vec<(i64, Point)>, cut_ms: i64) {
        points.retain(|(ms, _)| if self == Self::First { *ms < cut_ms } else { *ms > cut_ms });
    }
}

impl PointPage {
    pub(crate) fn new(end: End, max: usize) -> Self {
        Self { end, max, series: Vec::new(), total: 0, cut_ms: None }
    }

    /// Beyond which moment no points are wanted any more.
    pub(crate) fn bound_ms(&self) -> Option<i64> {
        let step = if self.end == End::First { -1 } else { 1 };
        self.cut_ms.map(|ms| ms.saturating_add(step))
    }

    /// Bytes that it takes, about.
    pub(crate) fn size_bytes(&self) -> usize {
        let points = self.series.iter().flat_map(|(_, _, points)| points);
        points.map(|(_, point)| size_of::<(i64, Point)>() + point.value.len()).sum()
    }

    /// Adds a series, as far as it is in the answer.
    pub(crate) fn add(
        &mut self,
        entity: usize,
        attribute: String,
        mut points: Vec<(i64, Point)>,
    ) -> Result<(), Problem> {
        if let Some(cut_ms) = self.cut_ms {
            self.end.keep(&mut points, cut_ms);
        }
        self.total += points.len();
        self.series.push((entity, attribute, points));
        if self.total > self.max { self.cut() } else { Ok(()) }
    }

    fn cut(&mut self) -> Result<(), Problem> {
        let mut times: Vec<i64> =
            self.series.iter().flat_map(|(_, _, points)| points.iter().map(|(ms, _)| *ms)).collect();
        let at = if self.end == End::First { self.max } else { times.len() - 1 - self.max };
        let (_, cut_ms, _) = times.select_nth_unstable(at);
        let (cut_ms, end) = (*cut_ms, self.end);
        for (_, _, points) in &mut self.series {
            end.keep(points, cut_ms);
        }
        self.cut_ms = Some(cut_ms);
        self.total = self.series.iter().map(|(_, _, points)| points.len()).sum();
        if self.total > 0 {
            return Ok(());
        }
        Err(too_large(format!("there are more than {} points of one moment", self.max))
            .value(millstream_types::iso_time(cut_ms))
            .rule(format!("history.page_max_points = {}", self.max))
            .remedy("ask for fewer entities with limit, or for fewer attributes with attrs"))
    }

    pub(crate) fn finish(self) -> Points {
        let times = || self.series.iter().flat_map(|(_, _, points)| points.iter().map(|(ms, _)| *ms));
        let cut = self.cut_ms.and_then(|_| times().min().zip(times().max()));
        Points { series: self.series, cut }
    }
}
