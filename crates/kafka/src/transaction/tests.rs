//! The tests of a transactional id as a state machine.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod machine;
mod random;

use kafka_protocol::error::ResponseError;
use millstream_log::PositionCommit;
use millstream_types::{Epoch, Offset, Position, TenantId, TopicId, TopicName, TopicPartition};

use super::machine::{ProducerIdAndEpoch, Transaction, TransactionLimits, TransactionState, Transition};

const TIMEOUT_MS: u32 = 1_000;
const LIMITS: TransactionLimits = TransactionLimits { partitions_max: 4 };

fn partition(number: u32) -> TopicPartition {
    TopicPartition::new(TopicName::user("orders", &TenantId::default()).unwrap(), number)
}

fn position(group: &str, number: u32, offset: u64) -> PositionCommit {
    let position = Position { topic: TopicId(1), epoch: Epoch(1), offset: Offset(offset) };
    PositionCommit { group: group.to_owned(), partition: partition(number), position, metadata: String::new() }
}

/// A transactional id of producer 7 that nothing was done with.
fn fresh() -> Transaction {
    Transaction::new(7, TIMEOUT_MS, 0)
}

/// With an open transaction since `now_ms` = 10 in partitions 0 and 1, and a position of group `g`.
fn open() -> Transaction {
    let who = fresh().producer;
    let of = fresh().add_partitions(who, [partition(0), partition(1)], LIMITS, 10).unwrap().unwrap();
    let of = of.add_group(who, "g", LIMITS, 11).unwrap().unwrap();
    of.add_positions(who, "g", [position("g", 3, 5)], LIMITS, None).unwrap().unwrap()
}
