//! Load on a Millstream from outside: simulated devices, a year of real weather, batches and readers through Kafka's
//! protocol, prepared requests and a receiver of notifications, and the form in which results are told.
//!
//! Everything here speaks the public protocols and knows nothing of the server's insides, so it measures any server that
//! speaks them. A server's refusals are figures of a result; errors are what keeps a run from being one.
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
//! Not here: starting servers and reading their memory and CPU time (the bench commands of `server` do that).

pub mod asker;
mod client;
mod cpu;
mod csv;
mod duration;
mod error;
mod failure;
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
pub mod weather;

pub use error::Error;
pub use failure::{Failure, FailureKind};
pub use latency::{Latencies, LatencyMs};
pub use receiver::Receiver;
pub use registry::SecretForm;
pub use requests::{RequestLoad, Requested, Until};
pub use table::Table;
