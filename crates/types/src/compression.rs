//! How the records of a batch are compressed.

/// A codec of the record batch (bits 0 to 2 of its attributes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// LZ4 frames: fast.
    Lz4,
    /// Zstandard: small.
    Zstd,
}

impl Compression {
    /// Its name, as in Kafka's `compression.type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}
