//! A record, as it is handed to the log and as it is read from a batch. Nothing here owns bytes.

/// One header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// The header's name.
    pub key: &'a str,
    /// The header's value; `None` is Kafka's null.
    pub value: Option<&'a [u8]>,
}

/// A record to be appended: borrowed parts, copied once into the batch that carries it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Record<'a> {
    /// Event time, milliseconds since 1970-01-01T00:00:00Z.
    pub timestamp_ms: i64,
    /// Chooses the partition and is what compaction keeps one record of.
    pub key: Option<&'a [u8]>,
    /// The payload; `None` deletes the key in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// Headers in order; names may repeat.
    pub headers: &'a [Header<'a>],
}

/// A record within a batch that has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// Where it stands in its partition.
    pub offset: crate::Offset,
    /// Event time, milliseconds since 1970-01-01T00:00:00Z.
    pub timestamp_ms: i64,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The payload.
    pub value: Option<&'a [u8]>,
    /// The headers, still encoded; [`RecordView::headers`] walks them.
    pub(crate) encoded_headers: &'a [u8],
    pub(crate) header_count: usize,
}

/// Names of the headers that records of devices, of commands to them and of changes of entities carry (the reference's
/// names).
pub mod header {
    /// The device that sent it.
    pub const DEVICE_ID: &str = "device_id";
    /// The adapter that took it, such as `hono-http`.
    pub const ORIG_ADAPTER: &str = "orig_adapter";
    /// The URI or topic it was sent to.
    pub const ORIG_ADDRESS: &str = "orig_address";
    /// `0` or `1`.
    pub const QOS: &str = "qos";
    /// Media type of the payload.
    pub const CONTENT_TYPE: &str = "content-type";
    /// How the payload is packed, such as `gzip`.
    pub const CONTENT_ENCODING: &str = "content-encoding";
    /// Milliseconds since 1970-01-01T00:00:00Z at which the adapter took it.
    pub const CREATION_TIME: &str = "creation-time";
    /// Seconds the device waits for a command.
    pub const TTD: &str = "ttd";
    /// Milliseconds after which an event is void.
    pub const TTL: &str = "ttl";
    /// The tenant that an answer to a command is of.
    pub const TENANT_ID: &str = "tenant_id";
    /// What a command and its answer have in common.
    pub const CORRELATION_ID: &str = "correlation-id";
    /// How a device answers a command: a status as of HTTP.
    pub const STATUS: &str = "status";
    /// What has happened to an entity; see the change topics of `context`.
    pub const ALTERATION_TYPE: &str = "alteration-type";
    /// Names of an entity's attributes that differ, separated by commas; a comma in a name is `%2C`, a percent sign `%25`.
    pub const CHANGED_ATTRIBUTES: &str = "changed-attributes";
    /// An entity's service path.
    pub const SERVICE_PATH: &str = "fiware-servicepath";
    /// W3C trace context of the request that caused the record.
    pub const TRACEPARENT: &str = "traceparent";
}
