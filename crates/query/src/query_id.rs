//! The id of a live query.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The name of a live query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct QueryId(Uuid);

impl QueryId {
    /// A name that no other query has.
    pub(crate) fn unique() -> Self {
        Self(Uuid::new_v4())
    }

    /// A hash for tables. The server chooses the ids, and they are random.
    pub(crate) fn hash(self) -> u64 {
        let (high, low) = self.0.as_u64_pair();
        high ^ low.rotate_left(32)
    }
}

impl fmt::Display for QueryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<QueryId> for String {
    fn from(id: QueryId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for QueryId {
    type Error = uuid::Error;

    fn try_from(text: String) -> Result<Self, uuid::Error> {
        text.parse()
    }
}

impl FromStr for QueryId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        Uuid::parse_str(text).map(Self)
    }
}
