//! The error of one part of a request: a Kafka error code and a message.

use kafka_protocol::ResponseError;
use kafka_protocol::protocol::StrBytes;
use millstream_log::Error as LogError;
use millstream_types::{BatchError, ErrorCode};

/// A Kafka error code and a message for people.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub(crate) error: ResponseError,
    pub(crate) why: String,
    /// The record of the batch that is at fault, counted from 0, if it is one.
    pub(crate) record: Option<usize>,
}

impl ApiError {
    pub(crate) fn new(error: ResponseError, why: impl Into<String>) -> Self {
        Self { error, why: why.into(), record: None }
    }

    /// The same error, of one record of a batch.
    pub(crate) fn of_record(self, index: usize) -> Self {
        Self { record: Some(index), ..self }
    }

    pub(crate) fn unknown_topic(name: &str) -> Self {
        Self::new(ResponseError::UnknownTopicOrPartition, format!("topic '{name}' does not exist; create it first"))
    }

    /// The task that was to do the work has ended without a result.
    pub(crate) fn failed(error: &tokio::task::JoinError) -> Self {
        Self::new(ResponseError::UnknownServerError, error.to_string())
    }

    pub(crate) fn code(&self) -> i16 {
        self.error.code()
    }

    pub(crate) fn message(&self) -> Option<StrBytes> {
        Some(StrBytes::from_string(self.why.clone()))
    }
}

impl From<&LogError> for ApiError {
    fn from(error: &LogError) -> Self {
        let code = match error {
            LogError::UnknownTopic { .. } | LogError::UnknownPartition { .. } => ResponseError::UnknownTopicOrPartition,
            LogError::TopicExists { .. } => ResponseError::TopicAlreadyExists,
            LogError::InvalidConfig { setting: "partitions", .. } => ResponseError::InvalidPartitions,
            LogError::InvalidConfig { .. } => ResponseError::InvalidConfig,
            LogError::Name(_) => ResponseError::InvalidTopicException,
            LogError::Trimmed { .. } | LogError::BeyondTail { .. } | LogError::BeyondStable { .. } => {
                ResponseError::OffsetOutOfRange
            }
            LogError::NotTrimmable { .. } | LogError::TooManyPartitions { .. } => ResponseError::PolicyViolation,
            LogError::Batch { source, .. } => return Self::from(source),
            LogError::Corrupt { .. } => ResponseError::CorruptMessage,
            LogError::OutOfOrderSequence { .. } => ResponseError::OutOfOrderSequenceNumber,
            LogError::DuplicateSequence { .. } => ResponseError::DuplicateSequenceNumber,
            LogError::FencedProducer { .. } => ResponseError::InvalidProducerEpoch,
            LogError::UnsupportedBatch { .. } | LogError::InvalidTransaction { .. } => ResponseError::InvalidTxnState,
            LogError::EmptyAppend { .. } | LogError::MissingKey { .. } => ResponseError::InvalidRecord,
            // Clients retry on this error, and know that the records may be there.
            LogError::WaitsForDisk { .. } => ResponseError::NotEnoughReplicasAfterAppend,
            other => match other.code() {
                ErrorCode::TooLarge => ResponseError::MessageTooLarge,
                // Clients retry on this error, and know that nothing was appended.
                ErrorCode::Overloaded => ResponseError::NotEnoughReplicas,
                ErrorCode::Invalid => ResponseError::InvalidRequest,
                _ => ResponseError::KafkaStorageError,
            },
        };
        let refused = Self::new(code, error.to_string());
        match error {
            LogError::MissingKey { index, .. } => refused.of_record(*index),
            _ => refused,
        }
    }
}

impl From<&BatchError> for ApiError {
    fn from(error: &BatchError) -> Self {
        let code = match error {
            BatchError::Checksum { .. } => ResponseError::CorruptMessage,
            BatchError::TooLarge { .. } | BatchError::InflatedTooLarge { .. } => ResponseError::MessageTooLarge,
            BatchError::Magic { .. } => ResponseError::UnsupportedForMessageFormat,
            BatchError::UnknownCodec { .. } => ResponseError::UnsupportedCompressionType,
            _ => ResponseError::InvalidRecord,
        };
        Self::new(code, error.to_string())
    }
}
