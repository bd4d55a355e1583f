//! The engine of queries by what it answers: each rule of the language, records in order, results to slow clients, kept queries.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;
mod computed;
mod engine;
mod expressions;
mod json;
mod kept;
mod language;
mod matching;
mod past;
mod reference;
mod results;
mod schema;
mod sorted;
mod sqlite;
mod states_memory;
mod topics;
mod windows;
mod wire;
