//! Builds one page of points. A page with too many points is truncated at the same time stamp for all series, so the
//! next read can continue from there.

use millstream_http::Problem;

use crate::aggregate::Sums;
use crate::error::too_large;
use crate::point::Point;
use crate::top_n::TimeEnd;

/// The result of a read.
#[derive(Debug)]
pub(crate) enum TemporalResult {
    Points(PointPage),
    /// The aggregated periods, each with its start and end.
    Periods(Vec<PeriodSeries>),
}

/// Index of the entity, name of the attribute, and the sums of its periods.
pub(crate) type PeriodSeries = (usize, String, Vec<(Option<(i64, i64)>, Sums)>);

/// Entity index, attribute, points in time order.
pub(crate) type PointSeries = (usize, String, Vec<(i64, Point)>);

/// The points of one answer.
#[derive(Debug)]
pub(crate) struct PointPage {
    pub(crate) series: Vec<PointSeries>,
    /// The first and last complete time stamp, if the page was truncated.
    pub(crate) cut: Option<(i64, i64)>,
}

/// Collects the points of one answer.
#[derive(Debug)]
pub(crate) struct PointPageBuilder {
    end: TimeEnd,
    max: usize,
    series: Vec<PointSeries>,
    total: usize,
    /// Approximate memory of the points.
    bytes: usize,
    /// The first time stamp outside the page.
    cut_ms: Option<i64>,
}

impl TimeEnd {
    /// Drops the points at or beyond `cut_ms`.
    fn keep(self, points: &mut Vec<(i64, Point)>, cut_ms: i64) {
        points.retain(|(ms, _)| if self == Self::First { *ms < cut_ms } else { *ms > cut_ms });
    }
}

impl PointPageBuilder {
    pub(crate) fn new(end: TimeEnd, max: usize) -> Self {
        Self { end, max, series: Vec::new(), total: 0, bytes: 0, cut_ms: None }
    }

    /// The last time stamp of which more points are accepted.
    pub(crate) fn bound_ms(&self) -> Option<i64> {
        let step = if self.end == TimeEnd::First { -1 } else { 1 };
        self.cut_ms.map(|ms| ms.saturating_add(step))
    }

    /// Returns the approximate memory of the points.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the points of a series that are within the page.
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
        self.bytes += size_bytes(&points);
        self.series.push((entity, attribute, points));
        if self.total > self.max { self.cut() } else { Ok(()) }
    }

    fn cut(&mut self) -> Result<(), Problem> {
        let mut times: Vec<i64> =
            self.series.iter().flat_map(|(_, _, points)| points.iter().map(|(ms, _)| *ms)).collect();
        let at = if self.end == TimeEnd::First { self.max } else { times.len() - 1 - self.max };
        let (_, cut_ms, _) = times.select_nth_unstable(at);
        let (cut_ms, end) = (*cut_ms, self.end);
        for (_, _, points) in &mut self.series {
            end.keep(points, cut_ms);
        }
        self.cut_ms = Some(cut_ms);
        self.total = self.series.iter().map(|(_, _, points)| points.len()).sum();
        self.bytes = self.series.iter().map(|(_, _, points)| size_bytes(points)).sum();
        if self.total > 0 {
            return Ok(());
        }
        Err(too_large(format!("more than {} points have the same time stamp", self.max))
            .value(millstream_types::iso_time(cut_ms))
            .rule(format!("history.page_max_points = {}", self.max))
            .remedy("ask for fewer entities with limit, or for fewer attributes with attrs"))
    }

    pub(crate) fn finish(self) -> PointPage {
        let times = || self.series.iter().flat_map(|(_, _, points)| points.iter().map(|(ms, _)| *ms));
        let cut = self.cut_ms.and_then(|_| times().min().zip(times().max()));
        PointPage { series: self.series, cut }
    }
}

fn size_bytes(points: &[(i64, Point)]) -> usize {
    points.iter().map(|(_, point)| size_of::<(i64, Point)>() + point.value.len()).sum()
}
