//! The configuration of jobs (`flow.*`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalogue::catalogue;
use crate::document::DocumentContext;
use crate::function::Functions;
use crate::hook::Hooks;

/// The settings of the section `flow`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FlowConfig {
    /// Threads that run jobs; 0 means one for each core. Default 0.
    pub threads: usize,
    /// Most jobs that run at a time, in all tenants. Default 1,000.
    pub jobs_max: usize,
    /// Most jobs of one tenant that run at a time. Default 500.
    pub jobs_per_tenant_max: usize,
    /// Times in a row that the process may go down, each within a minute of its start and not in order, before the jobs
    /// that ran each time come back paused; 0 is no bound. Default 3.
    pub crashes_max: usize,
    /// Jobs that have ended and are remembered, for each tenant; older
    /// ones are forgotten, and with them their ids. Default 1,000.
    pub ended_per_tenant_max: usize,
    /// Bytes of records that all jobs together have read and not finished; sources stop reading beyond. They count in
    /// `memory.budget_bytes`, too. Default 256 MiB.
    pub in_flight_max_bytes: u64,
    /// Bytes of records that one job has read and not finished. Default 64 MiB.
    pub job_in_flight_max_bytes: u64,
    /// Bytes of state by key and of tables that all jobs together keep in memory; a job that needs more fails. They count in
    /// `memory.budget_bytes`, too. Default 512 MiB.
    pub state_max_bytes: u64,
    /// Bytes of state by key and of tables that one job keeps in memory. Default 256 MiB.
    pub job_state_max_bytes: u64,
    /// Directory with the files that jobs may read and write, in a folder for each tenant. Without it, no job reads or
    /// writes files. Default empty: none.
    pub files_dir: PathBuf,
    /// Bytes that stay free on the disk of `files_dir`: sinks write no files beyond. Default 256 MiB.
    pub files_free_min_bytes: u64,
    /// Bytes that the files of one tenant may have together for a sink to write; 0 is no bound. Default 0.
    pub files_per_tenant_max_bytes: u64,
    /// Hosts that jobs may send HTTP requests to: names, `*.` and a domain, addresses, networks such as `10.0.0.0/8`, and
    /// the words `public` and `private`. Default empty: public addresses, and private ones while no caller logs in.
    pub http_allowed_targets: Vec<String>,
    /// File (PEM) of certificate authorities that are trusted for requests
    /// over TLS, beside the system's. Default empty: the system's only.
    pub http_ca_file: String,
    /// Parameters by node name, which override those of documents. Default none.
    pub params: BTreeMap<String, BTreeMap<String, Value>>,
    /// Bundles by name: texts that documents include with `use`. Default none.
    pub bundles: BTreeMap<String, String>,
}

impl Default for FlowConfig {
    fn default() -> Self {
        Self {
            threads: 0,
            jobs_max: 1_000,
            jobs_per_tenant_max: 500,
            crashes_max: 3,
            ended_per_tenant_max: 1_000,
            in_flight_max_bytes: 256 << 20,
            job_in_flight_max_bytes: 64 << 20,
            state_max_bytes: 512 << 20,
            job_state_max_bytes: 256 << 20,
            files_dir: PathBuf::new(),
            files_free_min_bytes: 256 << 20,
            files_per_tenant_max_bytes: 0,
            http_allowed_targets: Vec::new(),
            http_ca_file: String::new(),
            params: BTreeMap::new(),
            bundles: BTreeMap::new(),
        }
    }
}

impl FlowConfig {
    /// The surroundings in which documents are read.
    pub(crate) fn document_context(&self, functions: &Functions, hooks: &Hooks) -> DocumentContext {
        DocumentContext {
            catalogue: catalogue(),
            functions: functions.all().iter().map(|function| function.name).collect(),
            hooks: hooks.all().iter().map(|hook| hook.name).collect(),
            params: self.params.clone(),
            bundles: self.bundles.clone(),
            topics: None,
            targets: None,
            earlier: None,
        }
    }
}
