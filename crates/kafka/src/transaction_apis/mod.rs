//! The APIs of transactions: requests of clients to the coordinator in `transaction`.

mod describe;
mod offsets;
mod requests;

pub(crate) use describe::{describe, list};
pub(crate) use offsets::commit_offsets;
pub(crate) use requests::{add_offsets, add_partitions, add_produced, end, init_producer_id, key};
