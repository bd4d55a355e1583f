//! The temporal history of entities: stores every change of an attribute in Parquet files
//! and answers queries in the shapes of NGSI-LD, QuantumLeap and STH-Comet.
//!
//! ```text
//!  context.<tenant> ──► follow ──► memtable (memory) ────► flush ──► tenant=…/type=…/day=…/<number>.parquet ◄── merge
//!                                       │                   └─► _history: files, positions     │
//!                                       ▼                                                      ▼
//!  GET /ngsi-ld/v1/temporal/entities ◄── render ◄── read: first or last points, periods ◄──────┘
//! ```
//!
//! A point is the value of one attribute at one moment. One append to the compacted topic `_history` names the new
//! files and the positions of the change topics that they cover, so each change is in the files exactly once after a
//! crash. A file that `_history` does not name does not count and is removed at start. A read waits for the changes
//! that were durable when the request arrived. Sampling rules reduce old files to fewer points (`sampling`). With the log on
//! other machines, each file has a copy there, from which another process fetches it (`file_copies`).
//!
//! Not here: the current state of entities (`context`, which writes the changes). Not yet: object storage.

mod aggregate;
mod block_checksums;
mod catalog;
mod catalog_content;
mod catalog_record;
mod change;
mod columns;
mod comet;
mod compactor;
mod config;
mod downsampler;
mod entities;
mod error;
mod file_copies;
mod file_period;
mod file_reader;
mod file_table;
mod file_writer;
mod flush;
mod follow;
mod held_files;
mod index_cache;
mod layout;
mod memtable;
mod merge;
mod page;
mod period;
mod plane;
mod point;
mod quantumleap;
mod query;
mod read;
mod render;
mod repair;
mod replaced_files;
mod request;
mod roll_up;
mod routes;
mod rules;
mod sampling;
mod sampling_job;
mod sampling_plan;
mod service;
mod state;
mod top_n;
mod topics;

pub use block_checksums::BlockChecksums;
pub use config::{HistoryConfig, HistoryRule, Sample};
pub use error::Error;
pub use held_files::{HeldFile, HeldFiles};
pub use plane::{Dependencies, History, HistoryStats};
pub use repair::{LostFile, repair};
pub use rules::{NoTenantRules, TenantRules};
