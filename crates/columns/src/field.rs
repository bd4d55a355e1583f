//! The fields of a record: values in its payload, and its metadata in the log.

use std::fmt;

use millstream_types::{PartitionId, RecordView};

use crate::Type;
use crate::keyword::is_reserved;
use crate::lexer::{begins_name, continues_name};
use crate::record::{InputRecord, Metadata};
use crate::value::{Unreadable, Value};

/// One step of a path into a payload.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathStep {
    /// The member of an object.
    Key(String),
    /// The element of an array, from 0.
    Index(usize),
}

/// A field of a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// A value in the JSON payload at this path; the path has at least one step, and the first is a key.
    Payload(Vec<PathStep>),
    /// `$key`: the record's key, as text.
    Key,
    /// `$timestamp`: the record's event time, milliseconds since 1970-01-01T00:00:00Z.
    Timestamp,
    /// `$offset`: its offset in its partition.
    Offset,
    /// `$partition`: the number of its partition.
    Partition,
    /// `$header['name']` or `$headers['name']`: the last header with that name, as text.
    Header(String),
    /// The whole payload, written `*` in ARRAY_AGG; in jobs only.
    Record,
    /// `$topic`: the topic of the record; in jobs only, because a query reads one stream and names it.
    Topic,
}

/// The names of the metadata fields of jobs.
const METADATA: [&str; 6] = ["$key", "$timestamp", "$offset", "$partition", "$header", "$topic"];

/// The names of the metadata fields; `with_topic` in jobs.
pub(crate) fn metadata_names(with_topic: bool) -> &'static [&'static str] {
    if with_topic { &METADATA } else { &METADATA[..METADATA.len() - 1] }
}

impl Field {
    /// The type, as far as it is known.
    pub fn kind(&self) -> Type {
        match self {
            Self::Payload(_) | Self::Record => Type::Any,
            Self::Key | Self::Header(_) | Self::Topic => Type::Text,
            Self::Timestamp | Self::Offset | Self::Partition => Type::Integer,
        }
    }

    /// The name, if the field is a direct member of the payload.
    pub fn bare_name(&self) -> Option<&str> {
        match self {
            Self::Payload(steps) => match steps.as_slice() {
                [PathStep::Key(name)] => Some(name),
                _ => None,
            },
            _ => None,
        }
    }

    /// The member name in a result without an alias: the bare name, or the path as written.
    pub fn default_name(&self) -> String {
        self.bare_name().map_or_else(|| self.to_string(), str::to_owned)
    }
}

impl Field {
    /// The value of a metadata field of a stored record; NULL for a field in the payload and for `$topic`.
    ///
    /// # Errors
    /// [`Unreadable`] if the text is not UTF-8.
    #[inline]
    pub fn of_record<'a>(
        &self,
        record: &RecordView<'a>,
        partition: Option<PartitionId>,
    ) -> Result<Value<'a>, Unreadable> {
        self.of_metadata(&InputRecord::stored(record, None, partition).metadata)
    }

    /// The value of a metadata field; NULL for a field in the payload.
    ///
    /// # Errors
    /// [`Unreadable`] if the text is not UTF-8.
    #[inline]
    pub fn of_metadata<'a>(&self, metadata: &Metadata<'a>) -> Result<Value<'a>, Unreadable> {
        let integer = |number: Option<i64>| Ok(number.map_or(Value::Null, Value::Integer));
        match self {
            Self::Payload(_) | Self::Record => Ok(Value::Null),
            Self::Key => text(metadata.key),
            Self::Header(name) => text(metadata.headers.get(name)),
            Self::Topic => Ok(metadata.topic.map_or(Value::Null, |topic| Value::Text(topic.into()))),
            Self::Timestamp => integer(metadata.timestamp_ms),
            Self::Offset => integer(metadata.offset.map(|offset| i64::try_from(offset.0).unwrap_or(i64::MAX))),
            Self::Partition => integer(metadata.partition.map(|partition| i64::from(partition.0))),
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
                        PathStep::Key(name) if depth == 0 => write!(f, "{}", Name(name))?,
                        PathStep::Key(name) if is_plain(name) => write!(f, ".{name}")?,
                        PathStep::Key(name) => write!(f, "[{}]", Text(name))?,
                        PathStep::Index(index) => write!(f, "[{index}]")?,
                    }
                }
                Ok(())
            }
            Self::Record => f.write_str("*"),
            Self::Key => f.write_str("$key"),
            Self::Timestamp => f.write_str("$timestamp"),
            Self::Offset => f.write_str("$offset"),
            Self::Partition => f.write_str("$partition"),
            Self::Topic => f.write_str("$topic"),
            Self::Header(name) => write!(f, "$header[{}]", Text(name)),
        }
    }
}

fn is_plain(name: &str) -> bool {
    name.starts_with(begins_name) && name.chars().all(continues_name)
}

/// A name, in double quotes if it would otherwise be read as something else.
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
