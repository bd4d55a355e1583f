//! Load on a log through Kafka's protocol: batches sent as fast as they are answered or to a timetable, and a reader that
//! keeps to a pace. What is measured is whatever listens, Millstream or a broker of Apache Kafka.
//!
//! ```no_run
//! use millstream_load::kafka::{Acks, Client, ProduceLoad};
//!
//! # fn example() -> Result<(), millstream_load::kafka::KafkaError> {
//! let address = "127.0.0.1:9092".parse().expect("an address");
//! Client::connect(address)?.create_topic("load", 4)?;
//! let load = ProduceLoad { acks: Acks::All, ..ProduceLoad::to(address, "load", 4) };
//! println!("{:.0} records/s", load.run()?.rate_per_s());
//! # Ok(()) }
//! ```
//!
//! The batches are built before the clock starts and sent again and again: a generator that would build each record
//! anew would measure itself.

mod client;
mod error;
mod pool;
mod produce;
mod read;
mod stream;

pub use client::Client;
pub use error::KafkaError;
pub use pool::{Planted, render};
pub use produce::{Acks, ProduceLoad, Produced};
pub use read::{Read, ReadLoad};
pub use stream::{Plant, StreamLoad, Streamed, Streaming, stamp_us};
