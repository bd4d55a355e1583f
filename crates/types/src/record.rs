//! Records, as appended to the log and as read from a batch. All types here borrow their bytes.

/// One header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// The name of the header.
    pub key: &'a str,
    /// The value of the header; `None` is Kafka's null.
    pub value: Option<&'a [u8]>,
}

/// A record to append. Its parts are borrowed and copied once, into the batch.
#[derive(Debug, Clone, Copy, Default)]
pub struct Record<'a> {
    /// Event time, milliseconds since 1970-01-01T00:00:00Z.
    pub timestamp_ms: i64,
    /// The key: it selects the partition, and compaction keeps one record for each key.
    pub key: Option<&'a [u8]>,
    /// The payload; `None` deletes the key in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// The headers in order; names may repeat.
    pub headers: &'a [Header<'a>],
}

/// A record of a batch that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// The offset of the record in its partition.
    pub offset: crate::Offset,
    /// Event time, milliseconds since 1970-01-01T00:00:00Z.
    pub timestamp_ms: i64,
    /// The key, if the record has one.
    pub key: Option<&'a [u8]>,
    /// The payload; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// The encoded headers; [`RecordView::headers`] decodes them.
    pub(crate) encoded_headers: &'a [u8],
    pub(crate) header_count: usize,
}

/// Names of record headers: of device messages, of commands to devices, of changes of entities, and of the values of
/// buckets. Most names come from Hono and NGSI.
pub mod header {
    /// The id of the sending device.
    pub const DEVICE_ID: &str = "device_id";
    /// The adapter that accepted the message, such as `hono-http`.
    pub const ORIG_ADAPTER: &str = "orig_adapter";
    /// The URI or topic of the message.
    pub const ORIG_ADDRESS: &str = "orig_address";
    /// The quality of service: `0` or `1`.
    pub const QOS: &str = "qos";
    /// The media type of the payload.
    pub const CONTENT_TYPE: &str = "content-type";
    /// The encoding of the payload, such as `gzip`.
    pub const CONTENT_ENCODING: &str = "content-encoding";
    /// The time of acceptance: milliseconds since 1970-01-01T00:00:00Z.
    pub const CREATION_TIME: &str = "creation-time";
    /// Seconds that the device waits for a command.
    pub const TTD: &str = "ttd";
    /// Milliseconds after which an event is void.
    pub const TTL: &str = "ttl";
    /// The tenant of an answer to a command.
    pub const TENANT_ID: &str = "tenant_id";
    /// The id that a command shares with its answer.
    pub const CORRELATION_ID: &str = "correlation-id";
    /// The status of a command's answer, as in HTTP.
    pub const STATUS: &str = "status";
    /// The expiry of a bucket's key: milliseconds since 1970-01-01T00:00:00Z.
    pub const KEY_EXPIRES: &str = "ms-expires";
    /// The bytes of a bucket's value that lies in parts; the payload is the list of them.
    pub const VALUE_SIZE: &str = "ms-size";
    /// The kind of change of an entity; see the change topics of `context`.
    pub const ALTERATION_TYPE: &str = "alteration-type";
    /// Names of the changed attributes, separated by commas; a comma in a name is `%2C`, a percent sign `%25`.
    pub const CHANGED_ATTRIBUTES: &str = "changed-attributes";
    /// The changed attributes, in the same form, with a new value and an unchanged observation time.
    pub const KEPT_OBSERVATION_TIMES: &str = "kept-observation-times";
    /// The service path of an entity.
    pub const SERVICE_PATH: &str = "fiware-servicepath";
    /// The W3C trace context of the request that caused the record.
    pub const TRACEPARENT: &str = "traceparent";
}
