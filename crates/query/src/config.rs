//! The configuration of live queries (`query.*`).

use std::collections::BTreeMap;

use millstream_columns::ParserLimits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The configuration of live queries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Threads that read streams and match records; 0 means one for each core. Default 0.
    pub threads: usize,
    /// Duration of a query that asks for one answer and names no duration, in milliseconds. Default 30,000.
    pub duration_default_ms: u64,
    /// Longest duration of any query, in milliseconds; 0 sets no bound. Default 0.
    pub duration_max_ms: u64,
    /// Number of rows after which a query ends that asks for one answer and names no limit. Default 500.
    pub rows_default: u64,
    /// Most rows of one answer; rows that are streamed have no such bound. Default 500.
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
    /// Most queries at once that read records from before their start (`from`). Default 4.
    pub reading_past_max: usize,
    /// Most queries of one tenant that survive a restart, including those that have ended and whose end
    /// nobody has read. Default 1,000.
    pub kept_per_tenant_max: usize,
    /// Times in a row that the process may go down, each within a minute of its start and not in order, before the queries that
    /// ran each time end with that reason; 0 is no bound. Jobs are paused sooner (`flow.crashes_max`). Default 6.
    pub crashes_max: usize,
    /// Time between saves of the state of queries that survive a restart, in milliseconds; after a crash records since
    /// the last save are read again. Default 1,000.
    pub keep_every_ms: u64,
    /// Time that the end of a query that survives a restart waits to be read, in milliseconds. Default one day.
    pub kept_end_max_ms: u64,
    /// Time that a client may ask again for the end of a query that survives a restart if its connection broke during
    /// the answer, in milliseconds. Default 30,000.
    pub kept_end_again_ms: u64,
    /// Bytes of sent rows that a query that survives a restart keeps until its client confirms them; the last result
    /// always stays. Default 256 KiB.
    pub kept_sent_max_bytes: usize,
    /// Largest state of a query that survives a restart, in bytes; a query whose state is larger ends. Default 16 MiB.
    pub kept_state_max_bytes: usize,
    /// Most time that all live queries of a stream may spend on one record, by an estimate, in conditions that no index
    /// serves, in nanoseconds. Default 20,000.
    pub residual_ns_per_record_max: u64,
    /// Most bytes of rows that wait for one client. Default 16 MiB.
    pub queue_max_bytes: usize,
    /// Most bytes of rows that wait for all clients. Default 256 MiB.
    pub queues_max_bytes: usize,
    /// Most bytes of the aggregates of all queries: counts, groups, sketches, and the memory in which their results are
    /// made. Default 256 MiB.
    pub states_max_bytes: usize,
    /// Shortest time window, in milliseconds; shorter ones are lengthened to it, and the answer says so. Default 100.
    pub window_min_ms: u64,
    /// Most groups of a result, rounded up to a power of two; a result with more groups shows a sample of them. Their
    /// memory counts towards `query.states_max_bytes`. Default 131,072.
    pub groups_max: usize,
    /// Number of distinct values up to which COUNT(DISTINCT …) is exact, rounded up to a power of two. Default 16,384.
    pub distinct_exact_max: usize,
    /// Bytes of a partition that are read and matched at once. Default 256 KiB.
    pub read_max_bytes: usize,
    /// First part of the name of the topics whose records are queries: `<word>.<tenant>` of each tenant that has such a
    /// topic, to which its administrators alone append. Empty: none are read. Default `queries`.
    pub requests_topic: String,
    /// Settings for clients that come from Bullet.
    pub bullet: BulletConfig,
    /// Bounds of a query's text.
    pub limits: ParserLimits,
    /// Limits of the search for a stream's fields.
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
            crashes_max: 6,
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
            groups_max: 131_072,
            distinct_exact_max: 16_384,
            read_max_bytes: 256 << 10,
            requests_topic: "queries".to_owned(),
            bullet: BulletConfig::default(),
            limits: ParserLimits::default(),
            schema: SchemaConfig::default(),
        }
    }
}

/// Options for clients that come from Bullet (`query.bullet`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BulletConfig {
    /// Topic that `STREAM()` reads, in the tenant of the query. Default empty: the tenant's telemetry.
    pub stream: String,
    /// If `true`, results on Bullet's paths show the values of grouping columns as text, and
    /// NULL as `null`. Default false.
    pub group_values_as_text: bool,
    /// Adds a member `__receive_timestamp` to rows of records on Bullet's paths: the time at which the record was received,
    /// milliseconds since 1970-01-01T00:00:00Z. Default false.
    pub receive_timestamp: bool,
    /// Names of members of the meta object on Bullet's paths, at any depth, such as `finished_ms = "Finish Time"`.
    /// Refusals keep the usual names. Default empty: the usual names.
    pub meta_names: BTreeMap<String, String>,
    /// The origin whose pages may call Bullet's paths, also with credentials that the browser knows, such as
    /// `https://ui.example:8443`; `__ALL` for any, without credentials. Default empty: the server's own only.
    pub cors_origin: String,
}

/// Limits of the search for the fields of a stream (`query.schema`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SchemaConfig {
    /// Most records that are read to find the fields of a stream. Default 1,000.
    pub records_max: usize,
    /// Most bytes, as they are stored, that are read to find the fields of a stream. Default 8 MiB.
    pub read_max_bytes: usize,
    /// Most fields of a stream that are listed; the first ones found are. Default 1,000.
    pub fields_max: usize,
    /// Deepest nesting of objects and lists in which fields of a stream are listed. Default 8.
    pub depth_max: usize,
    /// Longest text shown as an example of a field's value, in bytes; longer ones are cut. Default 64.
    pub example_max_bytes: usize,
}

impl Default for SchemaConfig {
    fn default() -> Self {
        Self { records_max: 1000, read_max_bytes: 8 << 20, fields_max: 1000, depth_max: 8, example_max_bytes: 64 }
    }
}
