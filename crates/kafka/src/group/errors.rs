//! The errors of groups: those of the log in the words of Kafka's protocol.

use kafka_protocol::error::ResponseError;
use millstream_log::Error;

/// Maps the log's errors to those that make clients try again, give up, or look up the topic.
pub(crate) fn to_client(error: &Error) -> ResponseError {
    match error {
        Error::UnknownTopic { .. } | Error::UnknownPartition { .. } | Error::Name(_) => {
            ResponseError::UnknownTopicOrPartition
        }
        Error::MetadataTooLarge { .. } => ResponseError::OffsetMetadataTooLarge,
        Error::InvalidGroup { .. } => ResponseError::InvalidGroupId,
        Error::PositionUnstable { .. } | Error::Overloaded { .. } | Error::DiskFull { .. } => {
            ResponseError::CoordinatorLoadInProgress
        }
        Error::PositionLost { .. } | Error::BeyondTail { .. } => ResponseError::OffsetOutOfRange,
        Error::AppendTooLarge { .. } => ResponseError::InvalidCommitOffsetSize,
        Error::Stopped => ResponseError::CoordinatorNotAvailable,
        _ => ResponseError::UnknownServerError,
    }
}

/// True if the error means that the client is not a member of the group or of its current generation or epoch.
pub(crate) fn is_fence(error: ResponseError) -> bool {
    matches!(
        error,
        ResponseError::IllegalGeneration
            | ResponseError::UnknownMemberId
            | ResponseError::FencedInstanceId
            | ResponseError::RebalanceInProgress
            | ResponseError::StaleMemberEpoch
    )
}
