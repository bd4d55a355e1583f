//! What is told about how sure a result is.

use datasketches::common::NumStdDev;
use serde::{Deserialize, Serialize};

/// What is told about a sketch behind a result. What does not apply to its family is left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SketchMeta {
    /// What it is of: `groups`, or the name of an aggregate.
    pub of: String,
    /// `theta`, `tuple`, `frequent items` or `KLL quantiles`.
    pub family: String,
    /// What it takes.
    pub size_bytes: u64,
    /// Whether the result is an estimate; otherwise it is exact.
    pub was_estimated: bool,
    /// Which share of all different things is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theta: Option<f64>,
    /// How many different things there are, about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uniques_estimate: Option<f64>,
    /// Between which bounds that lies with 1, 2 and 3 standard deviations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standard_deviations: Option<[Bounds; 3]>,
    /// The largest share by which one of several estimates may err, at 3 standard deviations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_error: Option<f64>,
    /// The least value seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The greatest value seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// How many values it has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items_seen: Option<u64>,
    /// By which share of all values a rank may err, with 99 % confidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank_error: Option<f64>,
    /// By how much a count may be too high.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_error: Option<u64>,
    /// How many different things are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_items: Option<u64>,
}

/// An interval around an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// Hardly less.
    pub lower: f64,
    /// Hardly more.
    pub upper: f64,
}

impl Bounds {
    /// Those with 1, 2 and 3 standard deviations.
    pub(crate) fn by_deviations(bounds: impl Fn(NumStdDev) -> (f64, f64)) -> [Self; 3] {
        [NumStdDev::One, NumStdDev::Two, NumStdDev::Three].map(|deviations| {
            let (lower, upper) = bounds(deviations);
            Self { lower, upper }
        })
    }
}

impl SketchMeta {
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
