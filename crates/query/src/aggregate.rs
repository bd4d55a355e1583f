//! What is computed of many records: states that grow by a record, merge, and can be kept.
//!
//! A state is exact while it is small. Beyond that it is a sketch of the published families, and says in its meta by
//! how much it may err: theta for distinct counts and tuple for groups (Dasgupta, Lang, Rhodes, Thaler: "A Framework
//! for Estimating Stream Expression Cardinalities", ICDT 2016), frequent items for the top (Anderson, Bevin, Lang,
//! Liberty, Rhodes, Thaler: "A High-Performance Algorithm for Identifying Frequent Items in Data Streams", IMC 2017),
//! KLL for distributions (Karnin, Lang, Liberty: "Optimal Quantile Approximation in Streams", FOCS 2016).
//!
//! ```text
//!   record ──► values of the inputs ──► State::add        one state for each thread
//!                                          │
//!                              State::merge, when a result is due
//!                                          │
//!                                          ▼
//!                              State::rows, State::sketches
//! ```

mod distinct;
mod distribution;
mod figure;
mod groups;
mod key;
mod number;
mod shape;
mod sketch;
mod state;
mod top;

pub(crate) use distribution::Kind as DistributionKind;
pub(crate) use figure::{FigureKind, FigureOf};
pub(crate) use key::{order, write_input};
pub(crate) use shape::{Shape, SketchSizes};
pub use sketch::{Bounds, SketchMeta};
pub(crate) use state::State;
