//! The meta of a query, while it runs and after its end.

use serde::{Deserialize, Serialize};

use crate::query_id::QueryId;
use crate::{MetaNames, SketchMeta};

/// The reason for which a query has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Its lifetime is over, or its deadline has passed.
    Duration,
    /// It has seen everything up to its `until`.
    Until,
    /// It has as many rows as its limit.
    Size,
    /// A client or an operator ended it.
    Killed,
    /// It exceeded a limit, such as the bytes that may wait for a client.
    Limit,
    /// Its stream cannot be read any more, or its results cannot go where they should.
    Error,
    /// Its client has closed the connection.
    Disconnected,
    /// The server is shutting down.
    Shutdown,
}

impl Cause {
    /// All causes, in the order of the counters.
    pub(crate) const ALL: [Self; 8] = [
        Self::Duration,
        Self::Until,
        Self::Size,
        Self::Killed,
        Self::Limit,
        Self::Error,
        Self::Disconnected,
        Self::Shutdown,
    ];

    /// The name of the cause in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Duration => "duration",
            Self::Until => "until",
            Self::Size => "size",
            Self::Killed => "killed",
            Self::Limit => "limit",
            Self::Error => "error",
            Self::Disconnected => "disconnected",
            Self::Shutdown => "shutdown",
        }
    }
}

/// An error and its remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The error that occurred, in words.
    pub error: String,
    /// The remedy for the error.
    pub resolution: String,
}

/// A requested setting that exceeds its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clamped {
    /// The option that bounds it.
    pub setting: String,
    /// The requested value; `None` asks for no limit.
    pub asked: Option<u64>,
    /// The value that is used instead.
    pub given: u64,
}

/// The part of a partition that a query has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// The number of the partition.
    pub partition: u32,
    /// The first offset that it has seen.
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

/// The meta of a query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// The id of the query.
    pub id: QueryId,
    /// The text of the query, as given.
    pub text: String,
    /// The topic that the query reads.
    pub stream: String,
    /// The name of the credentials that asked a kept query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<String>,
    /// The time of its reception, milliseconds since 1970-01-01T00:00:00Z.
    pub received_ms: i64,
    /// The time of its end in the same unit; `None` while it lives.
    pub finished_ms: Option<i64>,
    /// Microseconds from its reception to its end, or to now.
    pub elapsed_us: u64,
    /// The reason for its end; `None` while it lives.
    pub cause: Option<Cause>,
    /// The number of records that it has seen.
    pub records_seen: u64,
    /// The number of matches, which became rows or parts of a result.
    pub matched: u64,
    /// The number of rows that were dropped because the client was slow.
    pub dropped: u64,
    /// The number of records that could not be evaluated. Records that the index rules out are not evaluated.
    pub evaluation_errors: u64,
    /// The number of payloads that were not JSON; payloads with an error in the middle count only if a
    /// query had to read them.
    pub not_json: u64,
    /// The number of offsets that were trimmed before they could be read.
    pub skipped: u64,
    /// The number of records that came after the windows of their event times were given.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub late: u64,
    /// Settings that were not given as asked for.
    pub clamped: Vec<Clamped>,
    /// The part of each partition that it has seen.
    pub positions: Vec<Covered>,
    /// The meta of the sketches behind the last rows of a query without window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sketches: Vec<SketchMeta>,
    /// The estimated parts of these rows, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The errors that occurred in the query; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Trouble>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}
