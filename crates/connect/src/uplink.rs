//! Messages on their way from a device's connection into the log: one part for all adapters.
//!
//! A connection appends what its device sends and goes on reading; [`InFlight`] keeps what the log has not answered for yet, in
//! the order in which it came, says when the connection has to stop reading, and how long the oldest may still take.
//!
//! Not here: admission (`ingest`); packets and acknowledgements (the adapters).

mod in_flight;

pub(crate) use in_flight::{InFlight, Kept, Settled, Waits};
