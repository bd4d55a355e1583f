//! What the context plane promises, over real sockets and a real log of four partitions.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod administration;
mod alarms;
#[path = "../../../http/tests/rim/answer.rs"]
mod answer;
mod deliveries;
mod filip;
mod filters;
mod geo;
mod guide;
mod indexes;
mod mosquitto;
mod notifications;
mod notified;
mod operations;
mod ordering;
mod paging;
mod plain;
mod receiver;
mod reference;
mod reference_habits;
mod reference_requests;
mod reference_subscriptions;
mod reference_values;
mod refusals;
mod rows;
mod sending;
mod shell;
mod subscriptions;
mod summaries;
mod telemetry;
mod tls;
mod updates;
mod values;
mod world;
