//! The promises of the context plane, over real sockets and a real log of four partitions.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod administration;
mod alarms;
#[path = "../../../http/tests/pipeline/answer.rs"]
mod answer;
mod compression;
mod deliveries;
mod filip;
mod filters;
mod geo;
mod guide;
mod heads;
mod indexes;
mod mosquitto;
mod moves;
mod notifications;
mod notified;
mod operations;
mod ordering;
mod paging;
mod receiver;
mod reference;
mod reference_habits;
mod reference_queues;
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
mod topic_updates;
mod updates;
mod values;
mod world;
