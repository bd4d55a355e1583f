//! The start or end of a read of a topic.

use std::str::FromStr;

use crate::PartitionOffsets;

const RULE: &str =
    "use earliest, latest, an ISO time such as 2026-01-31T12:00:00Z, or partition:offset pairs such as 0:17,1:4";

/// Most partitions that one tail reads.
pub const TAIL_PARTITIONS_MAX: u32 = 128;

/// The start or end of a read: an end of the topic, a time, or an offset per partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The oldest record that is there.
    Earliest,
    /// Behind the newest record.
    Latest,
    /// The first records with an event time at or after this, in milliseconds since 1970.
    Time(i64),
    /// These offsets, each in its partition.
    At(PartitionOffsets),
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "earliest" => return Ok(Self::Earliest),
            "latest" => return Ok(Self::Latest),
            _ => {}
        }
        if let Ok(position) = text.parse() {
            return Ok(Self::At(position));
        }
        let time: jiff::Timestamp = text.parse().map_err(|_| RULE)?;
        Ok(Self::Time(time.as_millisecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_as_they_are_written() {
        for (text, place) in [
            ("earliest", Place::Earliest),
            ("latest", Place::Latest),
            ("2000-02-29T12:00:00.120Z", Place::Time(951_825_600_120)),
            ("2000-02-29T14:00:00+02:00", Place::Time(951_825_600_000)),
            ("0:17,1:4", Place::At("0:17,1:4".parse().unwrap())),
        ] {
            assert_eq!(text.parse(), Ok(place), "{text}");
        }
        for wrong in ["", "first", "0", "0:x", "0:1,", "-1:0", "2000-02-30T00:00:00Z", "0:1,0:2"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }
}
