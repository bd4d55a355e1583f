//! Aggregates over many records: states that accept records, merge, and can be stored.
//!
//! A state is exact while it is small. Beyond that it is a sketch of the published families, and its meta states the error:
//! theta for distinct counts and tuple for groups (Dasgupta, Lang, Rhodes, Thaler: "A Framework for Estimating Stream
//! Expression Cardinalities", ICDT 2016), frequent items for the top (Anderson, Bevin, Lang, Liberty, Rhodes, Thaler: "A
//! High-Performance Algorithm for Identifying Frequent Items in Data Streams", IMC 2017), KLL for distributions (Karnin,
//! Lang, Liberty: "Optimal Quantile Approximation in Streams", FOCS 2016).
//!
//! ```text
//!   record ──► values of the inputs ──► AggregateState::add        one state for each thread
//!                                               │
//!                              AggregateState::merge, when a result is due
//!                                               │
//!                                               ▼
//!                              AggregateState::rows, AggregateState::sketches
//! ```

mod allocation;
mod collected;
mod deviation;
mod distinct;
mod distribution;
mod ends;
mod figure;
mod groups;
mod key;
mod kll;
mod number;
mod quantile;
mod shape;
mod sketch;
mod sorted_rows;
mod state;
mod top;

pub use collected::ListKind;
pub use distribution::DistributionKind;
pub(crate) use figure::Figure;
pub use figure::{FigureKind, FigureOf};
pub use key::{Nested, order_values, read_key, read_values, write_input, write_tuple};
pub use shape::{AggregateShape, SketchSizes};
pub use sketch::{Bounds, SketchMeta};
pub use state::AggregateState;
