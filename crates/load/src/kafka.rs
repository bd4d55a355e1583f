//! Load generators over Kafka's protocol: a producer with or without a target rate, a consumer with a byte rate, a
//! stream with marked records, and a producer of transactions. They measure Millstream or a broker of Apache Kafka.
//!
//! ```no_run
//! use millstream_load::kafka::{Acks, KafkaClient, ProduceLoad};
//!
//! # fn example() -> Result<(), millstream_load::kafka::KafkaError> {
//! let address = "127.0.0.1:9092".parse().expect("an address");
//! KafkaClient::connect(address)?.create_topic("load", 4)?;
//! let load = ProduceLoad { acks: Acks::All, ..ProduceLoad::to(address, "load", 4) };
//! println!("{:.0} records/s", load.run()?.rate_per_s());
//! # Ok(()) }
//! ```
//!
//! The batches are built before the measurement and sent repeatedly, because a generator that builds
//! each record would measure itself.

mod client;
mod error;
mod produce;
mod read;
mod record_pool;
mod stream;
mod transactions;

pub use client::KafkaClient;
pub use error::KafkaError;
pub use produce::{Acks, ProduceLoad, ProduceResult};
pub use read::{ReadLoad, ReadResult};
pub use record_pool::{MarkerField, render};
pub use stream::{Marker, RunningStream, StreamLoad, StreamResult, stamp_us};
pub use transactions::{TransactionLoad, TransactionResult};
