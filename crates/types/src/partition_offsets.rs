//! A place in a topic as clients write it: the next offset of each partition, such as `0:17,1:4`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::Offset;

/// The next offset to read, by the number of the partition.
///
/// ```
/// use millstream_types::{Offset, PartitionOffsets};
///
/// let offsets: PartitionOffsets = "0:17,1:4".parse()?;
/// assert_eq!(offsets.0.get(&1), Some(&Offset(4)));
/// assert_eq!(offsets.to_string(), "0:17,1:4");
/// # Ok::<(), millstream_types::InvalidPartitionOffsets>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartitionOffsets(pub BTreeMap<u32, Offset>);

/// A text that names no place in a topic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" has no partition:offset pairs such as 0:17,1:4, or names a partition twice")]
pub struct InvalidPartitionOffsets(String);

impl FromStr for PartitionOffsets {
    type Err = InvalidPartitionOffsets;

    fn from_str(text: &str) -> Result<Self, InvalidPartitionOffsets> {
        let invalid = || InvalidPartitionOffsets(text.to_owned());
        let mut offsets = BTreeMap::new();
        for pair in text.split(',') {
            let (partition, offset) = pair.split_once(':').ok_or_else(invalid)?;
            let partition = partition.parse().map_err(|_| invalid())?;
            let offset = Offset(offset.parse().map_err(|_| invalid())?);
            if offsets.insert(partition, offset).is_some() {
                return Err(invalid());
            }
        }
        Ok(Self(offsets))
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
    fn offsets_are_read_as_they_are_written() {
        let offsets = PartitionOffsets(BTreeMap::from([(0, Offset(17)), (1, Offset(4))]));
        assert_eq!(offsets.to_string(), "0:17,1:4");
        for text in ["0:17,1:4", "1:4,0:17"] {
            assert_eq!(text.parse(), Ok(offsets.clone()), "{text}");
        }
        for wrong in ["", "0", "0:x", "0:1,", "-1:0", "0:1,0:2"] {
            let told = wrong.parse::<PartitionOffsets>().unwrap_err().to_string();
            assert!(told.starts_with(&format!("\"{wrong}\" has no partition:offset pairs")), "{told}");
        }
    }
}
