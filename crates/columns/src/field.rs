//! What a query can name of a record: a value in its payload, or something the log knows about it.

use std::fmt;

use millstream_types::{PartitionId, RecordView};

use crate::Type;
use crate::keyword::is_reserved;
use crate::lexer::{begins_name, continues_name};
use crate::value::{Unreadable, Value};

/// One step into a payload.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// The member of an object.
    Key(String),
    /// The element of an array, from 0.
    Index(usize),
}

/// A field of a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// A value in the JSON payload, reached by these steps (at least one; the first is a key).
    Payload(Vec<Step>),
    /// `$key`: the record's key, as text.
    Key,
    /// `$timestamp`: the record's event time, milliseconds since 1970-01-01T00:00:00Z.
    Timestamp,
    /// `$offset`: its offset in its partition.
    Offset,
    /// `$partition`: the number of its partition.
    Partition,
    /// `$header['name']`: a header, as text; of several with that name the last.
    Header(String),
}

/// The names of the fields that are not in the payload.
pub(crate) const METADATA: [&str; 5] = ["$key", "$timestamp", "$offset", "$partition", "$header"];

impl Field {
    /// The type, as far as it is known.
    pub fn kind(&self) -> Type {
        match self {
            Self::Payload(_) => Type::Any,
            Self::Key | Self::Header(_) => Type::Text,
            Self::Timestamp | Self::Offset | Self::Partition => Type::Integer,
        }
    }

    /// The name, if it is a member of the payload itself.
    pub fn bare_name(&self) -> Option<&str> {
        match self {
            Self::Payload(steps) => match steps.as_slice() {
                [Step::Key(name)] => Some(name),
                _ => None,
            },
            _ => None,
        }
    }

    /// The member under which a result has it if the query gives no other: the bare name, or the path as written.
    pub fn default_name(&self) -> String {
        self.bare_name().map_or_else(|| self.to_string(), str::to_owned)
    }
}

impl Field {
    /// What the log knows of a record under this name; NULL of a field in the payload.
    ///
    /// # Errors
    /// It is a text that is not UTF-8.
    pub fn of_record<'a>(
        &self,
        record: &RecordView<'a>,
        partition: Option<PartitionId>,
    ) -> Result<Value<'a>, Unreadable> {
        match self {
            Self::Payload(_) => Ok(Value::Null),
            Self::Key => text(record.key),
            Self::Header(name) => text(record.header(name)),
            Self::Timestamp => Ok(Value::Integer(record.timestamp_ms)),
            Self::Offset => Ok(Value::Integer(i64::try_from(record.offset.0).unwrap_or(i64::MAX))),
            Self::Partition => Ok(partition.map_or(Value::Null, |partition| Value::Integer(i64::from(partition.0)))),
        }
    }
}

fn text(bytes: Option<&[u8]>) -> Result<Value<'_>, Unreadable> {
    bytes.map_or(Ok(Value::Null), |bytes| {
        std::str::from_utf8(bytes).map(|text| Value::Text(text.into())).map_err(|_| Unreadable::Text)
    })
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Payload(steps) => {
                for (depth, step) in steps.iter().enumerate() {
                    match step {
                        Step::Key(name) if depth == 0 => write!(f, "{}", Name(name))?,
                        Step::Key(name) if is_plain(name) => write!(f, ".{name}")?,
                        Step::Key(name) => write!(f, "[{}]", Text(name))?,
                        Step::Index(index) => write!(f, "[{index}]")?,
                    }
                }
                Ok(())
            }
            Self::Key => f.write_str("$key"),
            Self::Timestamp => f.write_str("$timestamp"),
            Self::Offset => f.write_str("$offset"),
            Self::Partition => f.write_str("$partition"),
            Self::Header(name) => write!(f, "$header[{}]", Text(name)),
        }
    }
}

fn is_plain(name: &str) -> bool {
    name.starts_with(begins_name) && name.chars().all(continues_name)
}

/// A name, in double quotes where it would otherwise be read as something else.
pub struct Name<'a>(pub &'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_plain(self.0) && !self.0.starts_with('$') && !is_reserved(self.0) {
            return f.write_str(self.0);
        }
        write!(f, "\"{}\"", self.0.replace('"', "\"\""))
    }
}

/// A text in single quotes.
pub(crate) struct Text<'a>(pub &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.0.replace('\'', "''"))
    }
}
