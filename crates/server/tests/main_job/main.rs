//! The main job, end to end: real devices' data over HTTP into a real process, entities and live answers out of it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use millstream_testkit::{SharedServer, TestTenant, kafka_arguments, runs_on_kafka};

mod administration;
mod audit;
mod authorisation;
mod backup;
mod backup_faults;
mod bullet;
mod commands;
mod console_files;
mod consumers;
mod context_updates;
mod demo;
mod demo_job;
mod fiware_series;
mod flights;
mod full_disk;
mod ignored_options;
mod job_commands;
mod job_events;
mod job_lookups;
mod job_parallelism;
mod job_replacing;
mod job_taps;
mod jobs;
mod kept_queries;
mod kv_command;
mod load;
mod login_failures;
mod mapping_errors;
mod memory;
mod metrics;
mod mixed_kills;
mod notifications;
mod query_command;
mod query_refusals;
mod query_requests;
mod query_shutdown;
mod query_slow;
mod query_socket;
mod query_topics;
mod readme;
mod ready;
mod repair;
mod replay;
mod secret_search;
mod secrets;
mod settings;
mod shared;
mod start;
mod store_keys;
mod stream_filters;
mod streams;
mod terminal;
mod threads;
mod tokens;
mod topic;
mod usage;
mod weather_observed;

/// `true` if the log has no files and threads on this machine that a test could damage, fill, read or back up: it is on Apache Kafka.
pub(crate) fn log_has_no_files() -> bool {
    runs_on_kafka()
}

/// The settings with which a command of the binary finds the log of a directory: none for the built-in one.
pub(crate) fn engine_arguments(dir: &std::path::Path) -> Vec<String> {
    let off = ["--set", "listen.kafka=off"].map(str::to_owned);
    if runs_on_kafka() { kafka_arguments(dir).into_iter().chain(off).collect() } else { Vec::new() }
}

/// The offsets that the end of an append takes in each of its partitions: Apache Kafka keeps it as a record that nobody reads.
pub(crate) fn end_offsets() -> u64 {
    u64::from(runs_on_kafka())
}

/// A tenant of its own for a test that needs no server of its own, on a server with the settings of [`millstream_testkit::Process::start`].
pub(crate) fn tenant() -> TestTenant {
    static SERVER: SharedServer = SharedServer::new(&[], None);
    SERVER.tenant()
}

/// The secret of a token with every role in every tenant, on the server of [`tenant_with_logins`].
pub(crate) const ROOT: &str = "0123456789abcdef";

/// The same on a server whose callers have to log in. The names of tokens differ over all tenants.
pub(crate) fn tenant_with_logins() -> TestTenant {
    static SERVER: SharedServer = SharedServer::new(
        &[
            "--set",
            "applications.tokens=[{name=\"root\",token=\"0123456789abcdef\",tenant=\"*\",roles=[\"reader\",\"writer\",\"admin\"]}]",
        ],
        Some(ROOT),
    );
    SERVER.tenant()
}
