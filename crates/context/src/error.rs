//! Why the context plane cannot be opened, or a mapping not be used.

use std::sync::Arc;

use millstream_types::ErrorCode;

/// What can go wrong outside a request.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A mapping of a tenant or a device breaks a rule.
    #[error("the mapping in 'ext.context' cannot be used: {what}")]
    Mapping {
        /// Value, rule and remedy.
        what: String,
    },
    /// The view of entities cannot be opened.
    #[error(transparent)]
    View(#[from] millstream_view::Error),
    /// The log refused.
    #[error(transparent)]
    Log(#[from] millstream_log::Error),
    /// The system refuses a thread.
    #[error("a thread for lists cannot be started")]
    Thread(#[source] Arc<std::io::Error>),
    /// A setting that cannot be.
    #[error("{setting} = {value}: {rule}")]
    InvalidSetting {
        /// The setting.
        setting: &'static str,
        /// What was given.
        value: String,
        /// The rule, and the remedy.
        rule: &'static str,
    },
}

impl Error {
    /// The kind of failure, from which every door takes its own code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Mapping { .. } | Self::InvalidSetting { .. } => ErrorCode::Invalid,
            Self::View(error) => error.code(),
            Self::Log(error) => error.code(),
            Self::Thread(_) => ErrorCode::Internal,
        }
    }
}
