//! The precision of a result, for its meta.

use datasketches::common::NumStdDev;
use serde::{Deserialize, Serialize};

/// The meta of a sketch behind a result. Members that do not apply to its family are left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SketchMeta {
    /// Its subject: `groups`, or the name of an aggregate.
    pub of: String,
    /// `theta`, `tuple`, `frequent items` or `KLL quantiles`.
    pub family: String,
    /// Size of the sketch in bytes.
    pub size_bytes: u64,
    /// True if the result is an estimate, false if it is exact.
    pub was_estimated: bool,
    /// The share of distinct values that the sketch holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theta: Option<f64>,
    /// The estimated number of distinct values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uniques_estimate: Option<f64>,
    /// Between which bounds that lies with 1, 2 and 3 standard deviations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standard_deviations: Option<[Bounds; 3]>,
    /// The largest share by which one of several estimates may err, at 3 standard deviations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_error: Option<f64>,
    /// The least value in the sketch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The greatest value in the sketch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// The number of values it has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items_seen: Option<u64>,
    /// The share of all values by which a rank may err, with 99 % confidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank_error: Option<f64>,
    /// The number by which a count may be too high.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_error: Option<u64>,
    /// The number of distinct values that are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_items: Option<u64>,
}

/// An interval around an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// The lower bound of the true value.
    pub lower: f64,
    /// The upper bound of the true value.
    pub upper: f64,
}

impl Bounds {
    /// The bounds with 1, 2 and 3 standard deviations.
    pub(crate) fn by_deviations(bounds: impl Fn(NumStdDev) -> (f64, f64)) -> [Self; 3] {
        [NumStdDev::One, NumStdDev::Two, NumStdDev::Three].map(|deviations| {
            let (lower, upper) = bounds(deviations);
            Self { lower, upper }
        })
    }
}

impl SketchMeta {
    /// In words, if the result is an estimate.
    pub fn note(&self) -> Option<String> {
        if !self.was_estimated {
            return None;
        }
        Some(match (self.family.as_str(), self.relative_error) {
            ("tuple", _) => format!(
                "there are about {:.0} groups, more than query.groups_max: these are a uniform sample of {} of them, each with \
                 exact figures, and HAVING, ORDER BY and LIMIT chose among these only; ask for fewer groups with WHERE, or raise \
                 the limit",
                self.uniques_estimate.unwrap_or_default(),
                self.active_items.unwrap_or_default()
            ),
            ("theta", Some(error)) => {
                format!("{} is an estimate: a group's may be off by {:.1} %", self.of, 100.0 * error)
            }
            ("theta", None) => {
                let bounds = self.standard_deviations.map(|bounds| bounds[2]);
                let (lower, upper) = bounds.map_or((0.0, f64::INFINITY), |bounds| (bounds.lower, bounds.upper));
                format!("{} is an estimate: it lies between {lower:.0} and {upper:.0}", self.of)
            }
            ("frequent items", _) => format!(
                "counts are upper bounds: each may be too high by up to {}, and whatever occurs less often may be missing",
                self.count_error.unwrap_or_default()
            ),
            _ => {
                let percent = 100.0 * self.rank_error.unwrap_or_default();
                format!("{} is an estimate: ranks may be off by {percent:.1} % of all values", self.of)
            }
        })
    }

    pub(crate) fn new(of: &str, family: &str, size_bytes: usize, was_estimated: bool) -> Self {
        Self {
            of: of.to_owned(),
            family: family.to_owned(),
            size_bytes: size_bytes as u64,
            was_estimated,
            theta: None,
            uniques_estimate: None,
            standard_deviations: None,
            relative_error: None,
            min: None,
            max: None,
            items_seen: None,
            rank_error: None,
            count_error: None,
            active_items: None,
        }
    }
}
