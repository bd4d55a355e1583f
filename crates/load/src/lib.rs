//! Load generators for a Millstream server: simulated devices, a replay of one year of weather, Kafka producers and consumers,
//! prepared HTTP requests, a receiver of notifications and the format of the results.
//!
//! The generators use public protocols only, so they measure any server that speaks them.
//! Requests that the server refuses are counted in the result. An [`Error`] means that the run could not be carried out.
//!
//! ```no_run
//! use clap::Parser;
//! use millstream_load::sim;
//!
//! #[derive(Parser)]
//! struct Command {
//!     #[command(flatten)]
//!     args: sim::SimArgs,
//! }
//!
//! # async fn example() -> Result<(), millstream_load::Error> {
//! let command = Command::parse_from(["sim", "--devices", "2000", "--loop", "open", "--register"]);
//! let report = sim::run(command.args).await?;
//! assert_eq!(report.failed(), 0);
//! # Ok(()) }
//! ```
//!
//! Not here: starting servers and reading their memory and CPU time (`bench` does that).

mod client;
mod cpu;
mod csv;
mod duration;
mod error;
mod failure;
mod json_client;
pub mod kafka;
mod latency;
mod mqtt;
mod payload;
mod receiver;
mod registry;
pub mod replay;
pub mod report;
mod requests;
pub mod sim;
mod table;
mod target;
mod transport;
pub mod weather;
pub mod websocket;

pub use error::Error;
pub use failure::{FailureKind, RequestFailure};
pub use json_client::JsonClient;
pub use latency::{Latencies, LatencyMs};
pub use receiver::NotificationReceiver;
pub use registry::SecretForm;
pub use requests::{RequestLoad, RequestResult, StopCondition};
pub use table::TextTable;
