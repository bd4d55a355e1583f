//! History in the shape of QuantumLeap, FIWARE's service for time series: a table of rows for each entity, in columns.
//!
//! Routes, parameters and answers are those of its API (specification/quantumleap.yml, version 0.8), below
//! `/quantumleap/`, because its paths are NGSI-v2's own. Not here: `notify` and `subscribe`, as every change is kept without
//! them; geographical queries, which are answered 501.

mod answer;
mod request;
mod routes;
mod rows;

pub(crate) use routes::routes;
