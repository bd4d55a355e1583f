//! Names that all adapters for devices share: of callers, and of the headers that adapters write.

use millstream_types::header;

/// The caller name of a device that sends without login. It is not a valid device id.
pub(crate) const UNAUTHENTICATED: &str = "(unauthenticated)";
/// The type of the adapter for devices over HTTP, in tenants' settings and in records.
pub(crate) const HTTP_ADAPTER: &str = "hono-http";
/// The type of the adapter for LoRaWAN network servers, in tenants' settings and in records.
pub(crate) const LORA_ADAPTER: &str = "hono-lora";
/// Says that an MQTT client asked for the message to be retained.
pub(crate) const OPT_RETAIN: &str = "x-opt-retain";
/// Says that the message is in telemetry or events as well.
pub(crate) const MAPPED: &str = "mqtt_mapped";

/// Headers that the adapter writes where the message has them.
const OF_THE_ADAPTER: [&str; 14] = [
    header::CONTENT_ENCODING,
    header::CONTENT_TYPE,
    header::CORRELATION_ID,
    header::CREATION_TIME,
    header::DEVICE_ID,
    header::ORIG_ADAPTER,
    header::ORIG_ADDRESS,
    header::QOS,
    header::STATUS,
    header::TENANT_ID,
    header::TRACEPARENT,
    header::TTD,
    header::TTL,
    OPT_RETAIN,
];
/// True if an adapter itself writes the header of this name.
pub(crate) fn is_of_the_adapter(name: &str) -> bool {
    OF_THE_ADAPTER.contains(&name)
}
