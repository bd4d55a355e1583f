//! The place of a watch or an iteration: the next offset of each partition, as `0:17,1:4`.

use std::fmt;
use std::str::FromStr;

const RULE: &str = "it is partition:offset pairs such as 0:17,1:4, as an event's id has them";

/// The next offset to read, by partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PartitionOffsets(pub(super) Vec<(u32, u64)>);

impl PartitionOffsets {
    /// The next offset of a partition, if the position names it.
    pub(super) fn offset(&self, partition: u32) -> Option<u64> {
        self.0.iter().find(|(number, _)| *number == partition).map(|(_, offset)| *offset)
    }
}

impl FromStr for PartitionOffsets {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let mut position = Self::default();
        for pair in text.split(',') {
            let (partition, offset) = pair.split_once(':').ok_or(RULE)?;
            let (partition, offset) = (partition.parse().map_err(|_| RULE)?, offset.parse().map_err(|_| RULE)?);
            if position.offset(partition).is_some() {
                return Err("it names a partition twice");
            }
            position.0.push((partition, offset));
        }
        Ok(position)
    }
}

impl fmt::Display for PartitionOffsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (partition, offset) in &self.0 {
            write!(f, "{separator}{partition}:{offset}")?;
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_read_as_they_are_written() {
        let position = PartitionOffsets(vec![(0, 17), (1, 4)]);
        assert_eq!(position.to_string(), "0:17,1:4");
        assert_eq!("0:17,1:4".parse(), Ok(position.clone()));
        assert_eq!((position.offset(1), position.offset(2)), (Some(4), None));
        for wrong in ["", "0", "0:x", "0:1,", "-1:0", "0:1,0:2"] {
            assert!(wrong.parse::<PartitionOffsets>().is_err(), "{wrong}");
        }
    }
}
