//! The stored record of a transactional id: `<tenant>/<transactional id>` → version, and a transaction as JSON.

use std::collections::BTreeMap;

use millstream_log::PositionCommit;
use millstream_types::{
    Epoch, Offset, PartitionId, Position, StateTopic, TenantId, TopicId, TopicName, TopicPartition,
};
use serde::{Deserialize, Serialize};

use super::machine::{ProducerIdAndEpoch, Transaction, TransactionState};

/// The version that is written.
const VERSION: u8 = StateTopic::Transactions.version();

/// Why a stored record cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error(
        "a record of `_transactions` of version {version}, known is {VERSION}; it was written by a later Millstream"
    )]
    Version { version: u8 },
    #[error("a record of `_transactions` that cannot be read: {0}")]
    Content(String),
}

#[derive(Serialize, Deserialize)]
struct StoredTransaction {
    producer_id: i64,
    producer_epoch: i16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<(i64, i16)>,
    timeout_ms: u32,
    stage: StoredTransactionState,
    since_ms: i64,
    /// Numbers of partitions by topic.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    partitions: BTreeMap<String, Vec<u32>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    groups: BTreeMap<String, Vec<StoredPosition>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredTransactionState {
    Empty,
    Ongoing,
    CompleteCommit,
    CompleteAbort,
}

#[derive(Serialize, Deserialize)]
struct StoredPosition {
    topic: String,
    partition: u32,
    /// The topic id in hexadecimal digits.
    topic_id: String,
    epoch: u32,
    offset: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    metadata: String,
}

/// Encodes the value of the record.
pub(crate) fn encode(transaction: &Transaction) -> Vec<u8> {
    let mut partitions: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for TopicPartition { topic, partition } in &transaction.partitions {
        partitions.entry(topic.to_string()).or_default().push(partition.0);
    }
    let positions = |of: &BTreeMap<_, PositionCommit>| of.values().map(to_stored).collect();
    let stored = StoredTransaction {
        producer_id: transaction.producer.id,
        producer_epoch: transaction.producer.epoch,
        previous: transaction.previous.map(|previous| (previous.id, previous.epoch)),
        timeout_ms: transaction.timeout_ms,
        stage: match transaction.stage {
            TransactionState::Empty => StoredTransactionState::Empty,
            TransactionState::Ongoing => StoredTransactionState::Ongoing,
            TransactionState::CompleteCommit => StoredTransactionState::CompleteCommit,
            TransactionState::CompleteAbort => StoredTransactionState::CompleteAbort,
        },
        since_ms: transaction.since_ms,
        partitions,
        groups: transaction.groups.iter().map(|(group, of)| (group.clone(), positions(of))).collect(),
    };
    let mut value = vec![VERSION];
    serde_json::to_writer(&mut value, &stored).expect("numbers and text are written as JSON");
    value
}

/// Decodes the value of the record whose key belongs to `tenant`.
pub(crate) fn decode(tenant: &TenantId, value: &[u8]) -> Result<Transaction, RecordError> {
    let content = |error: &dyn std::fmt::Display| RecordError::Content(error.to_string());
    let (version, json) = value.split_first().ok_or(RecordError::Version { version: 0 })?;
    if *version != VERSION {
        return Err(RecordError::Version { version: *version });
    }
    let stored: StoredTransaction = serde_json::from_slice(json).map_err(|error| content(&error))?;
    let name = |topic: &str| TopicName::parse(topic, tenant).map_err(|error| content(&error));
    let mut transaction = Transaction::new(stored.producer_id, stored.timeout_ms, stored.since_ms);
    transaction.producer.epoch = stored.producer_epoch;
    transaction.previous = stored.previous.map(|(id, epoch)| ProducerIdAndEpoch { id, epoch });
    transaction.stage = match stored.stage {
        StoredTransactionState::Empty => TransactionState::Empty,
        StoredTransactionState::Ongoing => TransactionState::Ongoing,
        StoredTransactionState::CompleteCommit => TransactionState::CompleteCommit,
        StoredTransactionState::CompleteAbort => TransactionState::CompleteAbort,
    };
    for (topic, numbers) in stored.partitions {
        let topic = name(&topic)?;
        transaction.partitions.extend(numbers.into_iter().map(|number| TopicPartition::new(topic.clone(), number)));
    }
    for (group, positions) in stored.groups {
        let mut of_group = BTreeMap::new();
        for position in positions {
            let id = u128::from_str_radix(&position.topic_id, 16).map_err(|error| content(&error))?;
            let partition =
                TopicPartition { topic: name(&position.topic)?, partition: PartitionId(position.partition) };
            let (epoch, offset) = (Epoch(position.epoch), Offset(position.offset));
            let commit = PositionCommit {
                group: group.clone(),
                partition: partition.clone(),
                position: Position { topic: TopicId(id), epoch, offset },
                metadata: position.metadata,
            };
            of_group.insert(partition, commit);
        }
        transaction.groups.insert(group, of_group);
    }
    Ok(transaction)
}

fn to_stored(commit: &PositionCommit) -> StoredPosition {
    StoredPosition {
        topic: commit.partition.topic.to_string(),
        partition: commit.partition.partition.0,
        topic_id: commit.position.topic.to_string(),
        epoch: commit.position.epoch.0,
        offset: commit.position.offset.0,
        metadata: commit.metadata.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records as version 1 has written them; they must be read for ever.
    const VERSION_1: [&str; 2] = [
        r#"{"producer_id":12884901888,"producer_epoch":3,"timeout_ms":60000,"stage":"complete_commit","since_ms":1700000000000}"#,
        r#"{"producer_id":5,"producer_epoch":32766,"previous":[5,32765],"timeout_ms":1000,"stage":"ongoing","since_ms":7,"partitions":{"a":[0,9999],"telemetry.default":[3]},"groups":{"default/empty":[],"default/readers":[{"topic":"a","partition":0,"topic_id":"000000000000000000000000000000ff","epoch":2,"offset":9007199254740993,"metadata":"m"},{"topic":"b","partition":1,"topic_id":"0000000000000000000000000000000a","epoch":0,"offset":0}]}}"#,
    ];

    #[test]
    fn records_of_version_1_are_read_and_written_as_they_lie() {
        for json in VERSION_1 {
            let stored = [&[1], json.as_bytes()].concat();
            let transaction = decode(&TenantId::default(), &stored).unwrap();
            assert_eq!(String::from_utf8(encode(&transaction)[1..].to_vec()).unwrap(), json);
        }
        let read = decode(&TenantId::default(), &[&[1], VERSION_1[1].as_bytes()].concat()).unwrap();
        assert_eq!((read.stage, read.partitions.len(), read.positions().count()), (TransactionState::Ongoing, 3, 2));
        assert_eq!(read.previous, Some(ProducerIdAndEpoch { id: 5, epoch: 32765 }));
        assert!(read.positions().all(|position| position.group == "default/readers"));
    }

    #[test]
    fn records_of_a_later_version_or_that_cannot_be_read_are_refused() {
        let table: [(&[u8], &str); 4] = [
            (b"\x02{}", "version 2, known is 1"),
            (b"", "version 0"),
            (b"\x01{", "cannot be read"),
            (b"\x01{\"producer_id\":1,\"producer_epoch\":0,\"timeout_ms\":1,\"stage\":\"empty\",\"since_ms\":0,\"partitions\":{\"a b\":[0]}}", "not a topic name"),
        ];
        for (value, told) in table {
            let refusal = decode(&TenantId::default(), value).unwrap_err().to_string();
            assert!(refusal.contains(told), "{refusal}");
        }
    }
}
