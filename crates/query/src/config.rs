//! What the operator sets (`query.*`).

use std::collections::BTreeMap;

use millstream_columns::Limits;
use serde::{Deserialize, Serialize};

use crate::SchemaConfig;

/// Configuration of live queries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Threads that read streams and match records; 0 means one for each core. Default 0.
    pub threads: usize,
    /// How long a query lives, milliseconds, that asks for one answer and names no duration. Default 30,000.
    pub duration_default_ms: u64,
    /// Longest life of any query, milliseconds; 0 sets no bound. Default 0.
    pub duration_max_ms: u64,
    /// After how many rows a query ends that asks for one answer and names no limit. Default 500.
    pub rows_default: u64,
    /// Most rows of one answer. Rows that are sent as they come have no such bound. Default 500.
    pub rows_max: u64,
    /// Most rows that one query gives in a second; 0 sets no bound. Default 0.
    pub rows_per_second_max: u64,
    /// Most bytes of rows that one query gives in a second; 0 sets no bound. Default 0.
    pub bytes_per_second_max: u64,
    /// Most rows that all queries of one tenant together give in a second; 0 sets no bound. Default 0.
    pub rows_per_second_per_tenant_max: u64,
    /// Most bytes of rows that all queries of one tenant together give in a second; 0 sets no bound. Default 0.
    pub bytes_per_second_per_tenant_max: u64,
    /// Most live queries. Default 100,000.
    pub live_max: usize,
    /// Most live queries of one tenant. Default 100,000.
    pub live_per_tenant_max: usize,
    /// Most queries at once that read what was appended before they were asked (`from`). Default 4.
    pub reading_past_max: usize,
    /// Most queries of one tenant that are kept over a restart; those whose end nobody has read yet count. Default 1,000.
    pub kept_per_tenant_max: usize,
    /// How often it is kept what such queries have come to, milliseconds: so much is read again after a crash. Default 1,000.
    pub keep_every_ms: u64,
    /// How long the end of such a query waits for somebody who reads it, milliseconds. Default one day.
    pub kept_end_max_ms: u64,
    /// How long a client whose connection breaks as the end is sent can ask for it again, milliseconds. Default 30,000.
    pub kept_end_again_ms: u64,
    /// How much of what such a query has sent stays until its client is known to have it, bytes; the last result always does.
    /// Default 256 KiB.
    pub kept_sent_max_bytes: usize,
    /// Largest state of such a query, bytes; with a larger one it ends. Default 16 MiB.
    pub kept_state_max_bytes: usize,
    /// Most nanoseconds that a record may take, by an estimate, for conditions that no index finds; of all live queries of its
    /// stream. Default 20,000.
    pub residual_ns_per_record_max: u64,
    /// Most bytes of rows that wait for one client. Default 16 MiB.
    pub queue_max_bytes: usize,
    /// Most bytes of rows that wait for all clients. Default 256 MiB.
    pub queues_max_bytes: usize,
    /// Most bytes of what the records of all queries have come to: counts, groups, sketches. Default 256 MiB.
    pub states_max_bytes: usize,
    /// Shortest window by time, milliseconds; shorter ones are made so long, which is told. Default 100.
    pub window_min_ms: u64,
    /// Most groups of a result, rounded up to a power of two; of more it has a sample. Default 512.
    pub groups_max: usize,
    /// Up to how many different things COUNT(DISTINCT …) is exact, rounded up to a power of two. Default 16,384.
    pub distinct_exact_max: usize,
    /// How much of a partition is read and matched at once, bytes. Default 256 KiB.
    pub read_max_bytes: usize,
    /// First word of the topics in which queries are asked by records: each tenant's is `<word>.<tenant>`, if it has one.
    /// Empty: none are read. Default `queries`.
    pub requests_topic: String,
    /// What those who come from Bullet may want otherwise.
    pub bullet: BulletConfig,
    /// Bounds of a query's text.
    pub limits: Limits,
    /// How closely streams are looked at for their fields.
    pub schema: SchemaConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            threads: 0,
            duration_default_ms: 30_000,
            duration_max_ms: 0,
            rows_default: 500,
            rows_max: 500,
            rows_per_second_max: 0,
            bytes_per_second_max: 0,
            rows_per_second_per_tenant_max: 0,
            bytes_per_second_per_tenant_max: 0,
            live_max: 100_000,
            live_per_tenant_max: 100_000,
            reading_past_max: 4,
            kept_per_tenant_max: 1000,
            keep_every_ms: 1000,
            kept_end_max_ms: 24 * 3600 * 1000,
            kept_end_again_ms: 30_000,
            kept_sent_max_bytes: 256 << 10,
            kept_state_max_bytes: 16 << 20,
            residual_ns_per_record_max: 20_000,
            queue_max_bytes: 16 << 20,
            queues_max_bytes: 256 << 20,
            states_max_bytes: 256 << 20,
            window_min_ms: 100,
            groups_max: 512,
            distinct_exact_max: 16_384,
            read_max_bytes: 256 << 10,
            requests_topic: "queries".to_owned(),
            bullet: BulletConfig::default(),
            limits: Limits::default(),
            schema: SchemaConfig::default(),
        }
    }
}

/// What those who come from Bullet may want otherwise (`query.bullet`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BulletConfig {
    /// The topic that `STREAM()` is; of each tenant its own of this name. Empty: the tenant's telemetry. Default empty.
    pub stream: String,
    /// Whether results on Bullet's paths have the values by which records are grouped as texts, NULL as `null`. Default
    /// false.
    pub group_values_as_text: bool,
    /// Whether rows of records on Bullet's paths have a member `__receive_timestamp`: when the record was received, milliseconds
    /// since 1970-01-01T00:00:00Z. Default false.
    pub receive_timestamp: bool,
    /// What members of the meta are called on Bullet's paths, at whatever depth they stand, such as `finished_ms = "Finish
    /// Time"`. Those of refusals keep their names. Default empty: as everywhere.
    pub meta_names: BTreeMap<String, String>,
}
