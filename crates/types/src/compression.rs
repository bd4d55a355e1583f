//! Compression of the records of a batch.

/// A compression codec of the record batch (bits 0 to 2 of its attributes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// No compression of the records.
    #[default]
    None,
    /// Deflate, which every client can read.
    Gzip,
    /// Snappy blocks: fast to compress and read.
    Snappy,
    /// LZ4 frames: fast to compress and read.
    Lz4,
    /// Zstandard: compresses to the smallest size.
    Zstd,
}

impl Compression {
    /// All codecs, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The name of the codec in Kafka's `compression.type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Finds the codec with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.as_str() == name)
    }

    /// The number of the codec in batches and files.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Finds the codec with that number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_codec_is_found_by_the_number_that_batches_carry_and_by_its_name() {
        let numbered = [(0, "none"), (1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")];
        for (number, name) in numbered {
            let codec = Compression::from_number(number).unwrap();
            assert_eq!((codec.number(), codec.as_str(), Compression::from_name(name)), (number, name, Some(codec)));
        }
        assert_eq!((Compression::from_number(5), Compression::from_name("brotli")), (None, None));
    }
}
