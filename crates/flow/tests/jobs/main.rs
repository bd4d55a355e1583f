//! Jobs that run over an embedded log in a temporary directory.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on has failed")]

mod acks;
mod alarms;
mod damaged_state;
mod dead_letters;
mod delivery;
mod entities;
mod epochs;
mod events;
mod examples;
mod files;
mod flights;
mod http;
mod joins;
mod lifecycle;
mod lives;
mod looking_back;
mod lookup;
mod lookup_buckets;
mod lookup_entities;
mod node;
mod observing;
mod positions;
mod random_jobs;
mod reasons;
mod replacing;
mod rescaling;
mod restored_examples;
mod resuming;
mod routes;
mod stored_state;
mod test_runs;
mod triggers;
mod values;
mod windows;
