//! The names of types, for which numbers stand (AMQP 1.0, section 1.3.3).

/// The names that stand for numbers of types.
const NAMES: [(&str, u64); 32] = [
    ("amqp:open:list", 0x10),
    ("amqp:begin:list", 0x11),
    ("amqp:attach:list", 0x12),
    ("amqp:flow:list", 0x13),
    ("amqp:transfer:list", 0x14),
    ("amqp:disposition:list", 0x15),
    ("amqp:detach:list", 0x16),
    ("amqp:end:list", 0x17),
    ("amqp:close:list", 0x18),
    ("amqp:error:list", 0x1d),
    ("amqp:received:list", 0x23),
    ("amqp:accepted:list", 0x24),
    ("amqp:rejected:list", 0x25),
    ("amqp:released:list", 0x26),
    ("amqp:modified:list", 0x27),
    ("amqp:source:list", 0x28),
    ("amqp:target:list", 0x29),
    ("amqp:coordinator:list", 0x30),
    ("amqp:sasl-mechanisms:list", 0x40),
    ("amqp:sasl-init:list", 0x41),
    ("amqp:sasl-challenge:list", 0x42),
    ("amqp:sasl-response:list", 0x43),
    ("amqp:sasl-outcome:list", 0x44),
    ("amqp:header:list", 0x70),
    ("amqp:delivery-annotations:map", 0x71),
    ("amqp:message-annotations:map", 0x72),
    ("amqp:properties:list", 0x73),
    ("amqp:application-properties:map", 0x74),
    ("amqp:data:binary", 0x75),
    ("amqp:amqp-sequence:list", 0x76),
    ("amqp:amqp-value:*", 0x77),
    ("amqp:footer:map", 0x78),
];

/// The number of the type with this name; 0 if it is not known.
pub(crate) fn descriptor_of(name: &str) -> u64 {
    NAMES.iter().find(|(known, _)| *known == name).map_or(0, |(_, number)| *number)
}
