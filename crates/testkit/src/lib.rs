//! The ground of the tests of all crates. No crate of the product depends on it but to test itself.
//!
//! - [`conformance`]: the contract of the log, as checks that every engine passes.
//! - [`TestLog`]: the log of a plane's tests, by the engine that the environment asks for.
//! - [`MemoryLog`]: an engine of the log in memory, for tests that need no disk.
//! - [`sim`]: a disk with power loss; [`small_log`]: an embedded log on it; [`CheckpointStores`]: the states in which a
//!   crash leaves checkpoints.
//! - [`eventually`]: waiting for what comes about in its own time.
//! - [`Process`]: the server's binary; [`SharedServer`]: one that many tests share, each in a tenant of its own;
//!   [`TlsServer`]: one with TLS.
//! - [`ask`], [`Events`], [`Live`] and [`Raw`] are clients of both; [`mqtt`] and [`resp`] those of any server of these
//!   protocols.
//! - [`Authority`] makes certificates. [`RealKafka`] is a cluster of Kafka brokers, and
//!   [`Relay`] a network that can be cut.
//! - [`LogLines`]: the log lines of a test's own process; [`guide`]: the commands of the docs; [`check_rows`]: a crate's
//!   table of tests.
//!
//! Not here: what only one test program needs.

mod authority;
mod checkpoint_stores;
pub mod conformance;
mod eventually;
pub mod guide;
mod http_client;
mod live;
mod log_lines;
mod memory;
pub mod mqtt;
mod process;
mod raw;
mod real_kafka;
mod relay;
pub mod resp;
mod rows;
mod server;
mod shared_server;
pub mod sim;
pub mod small_log;
mod test_log;
mod text_answer;
mod tls_server;

pub use authority::{Authority, Signed};
pub use checkpoint_stores::{CheckpointState, CheckpointStores};
pub use eventually::{PATIENCE, eventually, eventually_async, found, found_async, found_by};
pub use http_client::{Answer, Target, ask, open, read_head, status, try_ask};
pub use live::{Event, Events, Live};
pub use log_lines::LogLines;
pub use memory::{HeldAnswers, MemoryLog};
pub use process::{Process, binary, installed, millstream, own_addresses, terminate};
pub use raw::Raw;
pub use real_kafka::{RealBroker, RealKafka, xtask};
pub use relay::Relay;
pub use rows::check_rows;
pub use server::Server;
pub use shared_server::{SharedServer, TestTenant};
pub use test_log::{TestLog, environment_of_child, has_kafka_listener, kafka_arguments, runs_on_kafka};
pub use text_answer::TextAnswer;
pub use tls_server::TlsServer;
