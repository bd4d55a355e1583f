//! What is told about a query, while it lives and when it has ended.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{MetaNames, SketchMeta};

/// The name of a live query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct QueryId(Uuid);

impl QueryId {
    /// A name that no other query has.
    pub(crate) fn unique() -> Self {
        Self(Uuid::new_v4())
    }

    /// For tables: nobody else chooses names, and they are random.
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

/// Why a query has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Its time is over.
    Duration,
    /// It has as many rows as it asked for.
    Size,
    /// Somebody ended it.
    Killed,
    /// It broke a limit, such as what may wait for a client.
    Limit,
    /// Its stream cannot be read any more, or its results cannot go where they should.
    Error,
    /// Its client is gone.
    Disconnected,
    /// The server stops.
    Shutdown,
}

/// Something that went wrong, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// What.
    pub error: String,
    /// The remedy.
    pub resolution: String,
}

/// A setting that was asked for beyond what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clamped {
    /// The option that bounds it.
    pub setting: String,
    /// What was asked for; `None` is no bound at all.
    pub asked: Option<u64>,
    /// What was given.
    pub given: u64,
}

/// Which part of a partition a query has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// The partition.
    pub partition: u32,
    /// From this offset on.
    pub first: u64,
    /// Up to this one; `None` if nothing has arrived.
    pub last: Option<u64>,
}

impl Meta {
    /// `{"records": [], "meta": {…}}`, as the last result of a query, with these names of the meta's members.
    pub fn to_json_called(&self, names: &MetaNames) -> Vec<u8> {
        let mut json = b"{\"records\":[],\"meta\":".to_vec();
        names.write(self, &mut json);
        json.push(b'}');
        json
    }
}

/// What is told about a query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Its name.
    pub id: QueryId,
    /// Its text, as given.
    pub text: String,
    /// The topic it reads.
    pub stream: String,
    /// When it was received, milliseconds since 1970-01-01T00:00:00Z.
    pub received_ms: i64,
    /// When it ended; `None` while it lives.
    pub finished_ms: Option<i64>,
    /// Microseconds from its reception to its end, or to now.
    pub elapsed_us: u64,
    /// Why it ended; `None` while it lives.
    pub cause: Option<Cause>,
    /// How many records it has seen.
    pub records_seen: u64,
    /// How many of them matched: became rows, or part of a result.
    pub matched: u64,
    /// How many rows were dropped because the client was slow.
    pub dropped: u64,
    /// How many records could not be evaluated. Records that the index rules out by their value are not evaluated.
    pub evaluation_errors: u64,
    /// How many payloads were not JSON, as far as any query of the stream had to look.
    pub not_json: u64,
    /// How many offsets were gone before they could be read.
    pub skipped: u64,
    /// Settings that were not given as asked for.
    pub clamped: Vec<Clamped>,
    /// What it has seen of each partition.
    pub positions: Vec<Covered>,
    /// What is told about the sketches behind the last rows of a query without window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sketches: Vec<SketchMeta>,
    /// What went wrong.
    pub errors: Vec<Trouble>,
}
