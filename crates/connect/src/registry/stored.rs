//! A resource with its version. A client names the version that it has seen.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Changes with every change of its resource; a resource that is deleted and made again gets another one, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Version(u64);

impl Version {
    pub(crate) fn random() -> Self {
        Self(fastrand::u64(..))
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        digits.then(|| u64::from_str_radix(text, 16).ok()).flatten().map(Self)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A resource of the registry.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stored<T> {
    pub(crate) version: Version,
    /// The version at creation. It is also the version of the credentials until they are first set.
    pub(crate) born: Version,
    pub(crate) created_ms: i64,
    pub(crate) updated_ms: i64,
    /// Set if a device was registered at its first login or message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) provisioned: Option<Provisioned>,
    pub(crate) value: Arc<T>,
}

/// The state of a registration that no application has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Provisioned {
    /// True once the event that tells applications of it is in the log.
    pub(crate) is_told: bool,
}

impl<T> Clone for Stored<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), ..*self }
    }
}

impl<T> Stored<T> {
    pub(crate) fn new(value: Arc<T>, now_ms: i64) -> Self {
        let version = Version::random();
        Self { version, born: version, created_ms: now_ms, updated_ms: now_ms, provisioned: None, value }
    }

    /// The next version of this resource.
    pub(crate) fn replaced_by(&self, value: Arc<T>, now_ms: i64) -> Self {
        Self {
            version: Version::random(),
            updated_ms: now_ms,
            value,
            born: self.born,
            created_ms: self.created_ms,
            provisioned: self.provisioned,
        }
    }
}

/// The versions of a resource that a change applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VersionCondition {
    /// The change applies to every version.
    Always,
    /// The change applies to each of these versions.
    OneOf(Vec<Version>),
}

impl VersionCondition {
    pub(crate) fn holds(&self, version: Version) -> bool {
        match self {
            Self::Always => true,
            Self::OneOf(versions) => versions.contains(&version),
        }
    }
}
