//! Errors of the context plane outside requests.

use std::sync::Arc;

use millstream_types::ErrorCode;

/// An error when the plane is opened or a mapping is read.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A mapping of a tenant or a device breaks a rule.
    #[error("the mapping in 'ext.context' cannot be used: {what}")]
    Mapping {
        /// The refused value, the rule and the remedy.
        what: String,
    },
    /// The view of entities cannot be opened.
    #[error(transparent)]
    View(#[from] millstream_view::Error),
    /// The log refused an operation.
    #[error(transparent)]
    Log(#[from] millstream_log::Error),
    /// The system cannot start a thread.
    #[error("a thread for lists cannot be started")]
    Thread(#[source] Arc<std::io::Error>),
    /// A setting breaks a rule.
    #[error("{setting} = {value}: {rule}")]
    InvalidSetting {
        /// The name of the setting.
        setting: &'static str,
        /// The value in the configuration.
        value: String,
        /// The rule, and the remedy.
        rule: &'static str,
    },
}

impl Error {
    /// The error code; each protocol maps it to its own status.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Mapping { .. } | Self::InvalidSetting { .. } => ErrorCode::Invalid,
            Self::View(error) => error.code(),
            Self::Log(error) => error.code(),
            Self::Thread(_) => ErrorCode::Internal,
        }
    }
}
