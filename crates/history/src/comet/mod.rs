//! History in the shapes of STH-Comet, FIWARE's service for short-term history: the values of one attribute, or their sums by
//! period.
//!
//! Routes, parameters and answers are those of its API in both versions, below `/STH/`, as in its manual and as NGSI Go reads
//! them. A value's time, `recvTime`, is that of its observation. Not here: `notify`, as every change is kept without it.

mod answer;
mod request;
mod routes;

pub(crate) use routes::routes;
