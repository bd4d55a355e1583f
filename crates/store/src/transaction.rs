//! A transaction: reads and writes of keys that take effect together.
//!
//! Every write of a bucket is one, whatever protocol it comes by. In a durable bucket it runs on the thread of the
//! partition's owner, which does no I/O: a value that is neither in memory nor on its way to the log is
//! [`Interrupted::NotLoaded`]. The caller then reads it and the transaction runs again from its beginning.

use std::sync::Arc;

use bytes::Bytes;

/// A value with all that is stored beside it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Value {
    /// The bytes of the value.
    pub bytes: Bytes,
    /// When the key expires: milliseconds since 1970-01-01T00:00:00Z.
    pub expires_ms: Option<i64>,
    /// Content type, metadata and tags; most values have none.
    pub attributes: Option<Arc<Attributes>>,
}

impl Value {
    /// A value that does not expire and has no attributes.
    pub fn of(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), expires_ms: None, attributes: None }
    }
}

/// The attributes that clients over HTTP store beside the bytes of a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// The media type, as the client gave it.
    pub content_type: Option<String>,
    /// Names, in lower case, and values of other headers that describe the value and are sent with it, such as
    /// `content-encoding`.
    pub headers: Vec<(String, String)>,
    /// The client's own time stamp: milliseconds since 1970-01-01T00:00:00Z.
    pub time_ms: Option<i64>,
    /// Names and values of the client's metadata, by name.
    pub metadata: Vec<(String, String)>,
    /// The tags, in the client's order.
    pub tags: Vec<String>,
}

/// A key's entry in the index: everything but its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyEntry {
    /// The version, which is the record's offset in a durable bucket; `None` while its write is on the way to the log.
    pub version: Option<u64>,
    /// Length of the value in bytes.
    pub length: u64,
    /// When the key expires: milliseconds since 1970-01-01T00:00:00Z.
    pub expires_ms: Option<i64>,
}

/// The reason why a transaction ended early; nothing of it takes effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interrupted {
    /// A value is on the disk. It has been noted which; the transaction will run again.
    NotLoaded,
    /// A quota or limit of the bucket refuses the write.
    Refused(WriteRefusal),
}

/// A write that a limit of its bucket refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteRefusal {
    /// The key is empty, too long, or begins with a zero byte.
    #[error("a key has 1 to {max_bytes} bytes and does not begin with a zero byte; this one has {length}")]
    Key {
        /// Length of the key in bytes.
        length: usize,
        /// Most bytes of a key (`store.key_max_bytes`).
        max_bytes: usize,
    },
    /// The value is larger than the bucket allows.
    #[error("the value has {length} bytes; the bucket takes at most {max_bytes} (value_max_bytes)")]
    ValueTooLarge {
        /// Length of the value in bytes.
        length: u64,
        /// The bucket's limit, `value_max_bytes`, in bytes.
        max_bytes: u64,
    },
    /// The bucket would hold more bytes than it may.
    #[error("the bucket holds {held} bytes and may hold {max_bytes} (max_bytes); deletes still work")]
    BucketFull {
        /// Bytes of the keys and values that it holds.
        held: u64,
        /// The bucket's quota, `max_bytes`, in bytes.
        max_bytes: u64,
    },
    /// The bucket would hold more keys than it may.
    #[error("the bucket holds {held} keys and may hold {max_keys} (max_keys); deletes still work")]
    TooManyKeys {
        /// Number of keys that the bucket holds.
        held: u64,
        /// The bucket's quota of keys, `max_keys`.
        max_keys: u64,
    },
    /// The bucket's rate of writes is used up.
    #[error("the bucket takes {per_second} writes a second (writes_per_second); try again in {wait_ms} ms")]
    TooManyWrites {
        /// The bucket's rate, in writes a second.
        per_second: u32,
        /// The time to wait, in milliseconds.
        wait_ms: u64,
    },
    /// The writes of the transaction do not fit one append.
    #[error("the writes of one transaction have {bytes} bytes and may have {max_bytes}; write less at once")]
    TransactionTooLarge {
        /// Bytes of the writes, with what each of them takes beside key and value.
        bytes: usize,
        /// Most bytes of a transaction's writes.
        max_bytes: usize,
    },
    /// The commands of a transaction answer too much.
    #[error("the replies of one transaction have more than {max_bytes} bytes; read less at once")]
    RepliesTooLarge {
        /// Most bytes of the replies together.
        max_bytes: usize,
    },
    /// The value lies in parts, and this command takes whole values only.
    #[error("the value has {length} bytes in parts; read it over HTTP")]
    InParts {
        /// Length of the value in bytes.
        length: u64,
    },
    /// A write in a transaction that only reads.
    #[error("this transaction only reads")]
    ReadOnly,
    /// The upload is not open.
    #[error("upload '{upload}' is not open: it has been committed, given up or removed, or never began")]
    NoUpload {
        /// The id of the upload.
        upload: String,
    },
    /// A part of an upload is there with other bytes.
    #[error("part {number} is there with CRC32C {stored:08x}; this one has {sent:08x}")]
    OtherPart {
        /// The number of the part.
        number: u32,
        /// CRC32C of the part that is there.
        stored: u32,
        /// CRC32C of the part that was sent.
        sent: u32,
    },
    /// A large value was patched or appended to too often.
    #[error("the value would consist of {pieces} pieces of {uploads} uploads, more than its manifest holds")]
    TooManyPieces {
        /// Number of pieces that the value would have.
        pieces: usize,
        /// Uploads that they come from.
        uploads: usize,
    },
    /// The manifest of a large value cannot be read.
    #[error("the manifest of the value cannot be read: {what}")]
    Manifest {
        /// The fault of the manifest, as a sentence.
        what: String,
    },
    /// A cache bucket is full and its policy evicts nothing that it holds.
    #[error("the cache holds {max_bytes} bytes (maxmemory) and its policy evicts nothing")]
    CacheFull {
        /// The byte budget of the bucket's cache.
        max_bytes: u64,
    },
}

impl WriteRefusal {
    /// `true` if the bucket holds as much as it may.
    pub(crate) fn is_of_quota(&self) -> bool {
        matches!(self, Self::BucketFull { .. } | Self::TooManyKeys { .. })
    }
}

impl From<WriteRefusal> for Interrupted {
    fn from(refusal: WriteRefusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The keys of a bucket inside a transaction. It sees its own writes, and all those decided before it.
pub trait Transaction {
    /// Wall time, milliseconds since 1970-01-01T00:00:00Z; the same for the whole transaction.
    fn now_ms(&self) -> i64;

    /// The entry of `key`; `None` if there is none, or if it has expired.
    fn entry(&mut self, key: &[u8]) -> Option<KeyEntry>;

    /// The value of `key`; `None` if there is none, or if it has expired.
    ///
    /// # Errors
    /// [`Interrupted::NotLoaded`] if it must be read from the disk first.
    fn get(&mut self, key: &[u8]) -> Result<Option<Value>, Interrupted>;

    /// Stores `value` under `key`. An expiry that has passed deletes the key.
    ///
    /// # Errors
    /// [`Interrupted::Refused`] by a limit or quota.
    fn put(&mut self, key: &[u8], value: Value) -> Result<(), Interrupted>;

    /// Deletes `key`. Returns `false` if it was not there.
    fn delete(&mut self, key: &[u8]) -> bool;

    /// Milliseconds since `key` was last used; `None` if there is no such key, or if the bucket does not note its uses.
    fn idle_ms(&mut self, _key: &[u8]) -> Option<u64> {
        None
    }

    /// The logarithmic access counter of `key`; `None` if there is no such key, or if the bucket does not count accesses.
    fn frequency(&mut self, _key: &[u8]) -> Option<u8> {
        None
    }
}
