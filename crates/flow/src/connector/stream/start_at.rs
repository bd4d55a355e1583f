//! The offset at which a source begins or ends, as a document says it.

use std::collections::BTreeMap;

use millstream_log::Partition;
use millstream_types::Offset;
use serde_json::Value;

/// A place in a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StartAt {
    Earliest,
    Latest,
    /// The first record at or after this time, in milliseconds since 1970.
    Time(i64),
    /// Offsets by partition; other partitions are read from their beginning.
    Offsets(BTreeMap<u32, u64>),
}

impl StartAt {
    pub(super) fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::String(word) if word == "earliest" => Ok(Self::Earliest),
            Value::String(word) if word == "latest" || word == "end" => Ok(Self::Latest),
            Value::String(time) => match time.parse::<jiff::Timestamp>() {
                Ok(time) => Ok(Self::Time(time.as_millisecond())),
                Err(_) => Err(format!(
                    "'{time}' is no place in a topic; write earliest, latest, a time such as 2026-01-01T00:00:00Z, or {{partition: offset}}"
                )),
            },
            Value::Number(number) => number.as_i64().map(Self::Time).ok_or_else(|| format!("{number} is no time")),
            Value::Object(offsets) => offsets
                .iter()
                .map(|(partition, offset)| {
                    let fault = || format!("{partition}: {offset} is no partition and offset, such as 0: 120");
                    Ok((partition.parse().map_err(|_| fault())?, offset.as_u64().ok_or_else(fault)?))
                })
                .collect::<Result<_, String>>()
                .map(Self::Offsets),
            other => {
                Err(format!("{other} is no place in a topic; write earliest, latest, a time or {{partition: offset}}"))
            }
        }
    }

    /// The offset of the place in a partition.
    pub(super) fn offset(&self, partition: &dyn Partition) -> Result<Offset, millstream_log::Error> {
        let offsets = partition.offsets();
        Ok(match self {
            Self::Earliest => offsets.first,
            Self::Latest => offsets.stable,
            Self::Time(ms) => partition.offset_at(*ms)?.unwrap_or(offsets.stable),
            Self::Offsets(by_partition) => {
                let wanted = by_partition.get(&partition.id().partition.0).copied().map(Offset);
                wanted.unwrap_or(offsets.first).clamp(offsets.first, offsets.stable)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn places_are_words_times_and_offsets() {
        for (value, expected) in [
            (json!("earliest"), StartAt::Earliest),
            (json!("end"), StartAt::Latest),
            (json!(7), StartAt::Time(7)),
            (json!("1970-01-01T00:00:01Z"), StartAt::Time(1000)),
            (json!({"1": 5}), StartAt::Offsets(BTreeMap::from([(1, 5)]))),
        ] {
            assert_eq!(StartAt::read(&value), Ok(expected), "{value}");
        }
        for value in [json!("sometime"), json!({"a": 5}), json!({"1": -5}), json!([])] {
            assert!(StartAt::read(&value).is_err(), "{value}");
        }
    }
}
