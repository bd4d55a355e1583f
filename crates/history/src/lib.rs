//! What entities were over time: every change of an attribute, out of the change topics into files that other tools read too.
//!
//! ```text
//!  context.<tenant> ──► follow ──► generation (memory) ──► flush ──► tenant=…/type=…/day=…/<number>.parquet ◄── merge
//!                                       │                   └─► _history: files, positions     │
//!                                       ▼                                                      ▼
//!  GET /ngsi-ld/v1/temporal/entities ◄── render ◄── read: first or last points, periods ◄──────┘
//! ```
//!
//! A point is the value of one attribute at one moment. New files and how far the change topics are in them are one append
//! to the compacted topic `_history`, so that after a crash each change is in the files once; a file that is not named
//! there does not count. A read waits for the changes that were durable when it came. Old files are rewritten with fewer points
//! where rules say so (`sampling`).
//!
//! Not here: entities as they are now (`context`), who writes changes. Not yet: object storage.

mod aggregate;
mod ask;
mod catalog;
mod catalog_record;
mod change;
mod columns;
mod config;
mod desk;
mod entities;
mod error;
mod file_reader;
mod file_writer;
mod flush;
mod follow;
mod gather;
mod generation;
mod index_cache;
mod keeper;
mod layout;
mod merge;
mod page;
mod period;
mod plane;
mod point;
mod read;
mod render;
mod request;
mod routes;
mod sampling;
mod shared;
mod thinner;
mod thinning;

pub use config::{HistoryConfig, HistoryRule, NoTenantRules, Sample, TenantRules};
pub use error::Error;
pub use plane::{Base, History, HistoryStats};
