//! The log over Apache Kafka: the contract of `log`, kept by a cluster of brokers.
//!
//! ```text
//!   Partition::append ─► queue of the partition ─► one task ─► a request for each leader ─► acknowledged by all in-sync replicas
//!   Partition::read   ◄─ newest batches in memory ◄─ a task for each leader that waits for records
//!                     ◄─ copies on the disk of this machine, for topics whose values are read one by one
//!                     ◄─ a fetch, if they are older
//! ```
//!
//! Replication, elections, transactions and retention are Kafka's. Ours: how records become batches and requests, what is sent
//! again and when an outcome is unknown, which batches a reader sees, and the catalogue of topics.
//!
//! Not here: who owns which partition (`view` and `server`), and Kafka's protocol for clients of the built-in log (`kafka`).

mod active;
mod activity;
mod catalogue;
mod clocks;
mod cluster;
mod config;
mod connection;
mod contact;
mod coordinator;
mod core;
mod engine;
mod fetching;
mod figures;
mod fitness;
mod followed;
mod following;
mod health;
mod local_copies;
mod local_disk;
mod lost_records;
mod migrated;
mod migration;
mod names;
mod offset_map;
mod outbox;
mod partition;
mod partition_state;
mod pauses;
mod pending;
mod positions;
mod producing;
mod queue;
mod removing;
mod replicas;
mod security;
mod survey;
mod tail;
mod topic_admin;
mod topic_info;
mod topic_settings;
mod topic_state;
mod topic_watch;
mod transaction;
mod visible;
mod writer;

pub use activity::ActiveProcess;
pub use engine::OnKafka;
pub use health::{BrokerHealth, ClusterHealth, Trouble, TroubleKind};
pub use migration::{GroupRefusal, LogSource, Migration, MigrationStep};
