//! The codec against packets written out byte by byte, and against packets that were tampered with.

use proptest::prelude::*;

use crate::encode::{AckKind, ack};
use crate::error::Error;
use crate::from_client::{Packet, decode};
use crate::packet::{Qos, Version};
use crate::to_client::{ConnackParts, connack, connack_refusal, disconnect, suback, unsuback};
use crate::wire::{Framed, Reader, frame, put_varint, varint_size};

const LIMIT_BYTES: usize = 64 << 10;

/// Reads the packet at the beginning.
fn read(bytes: &[u8], version: Version) -> Result<Packet<'_>, Error> {
    match frame(bytes, LIMIT_BYTES)? {
        Framed::Whole(frame) => {
            assert_eq!(frame.size, bytes.len());
            decode(frame, version)
        }
        Framed::Partial { .. } => panic!("a part of a packet: {bytes:?}"),
    }
}

#[test]
fn every_kind_of_packet_of_a_client_is_read_in_both_versions() {
    let connect_5 = b"\x10\x3f\x00\x04MQTT\x05\xc6\x00\x3c\x0b\x11\x00\x00\x00\x0a\x21\x00\x05\x22\x00\x02\x00\x01c\x05\x18\x00\x00\x00\x07\x00\x01w\x00\x03bye\x00\x08auth@ten\x00\x0cpassword-1.x";
    let Ok(Packet::Connect(connect)) = read(connect_5, Version::V311) else { panic!() };
    assert_eq!((connect.version, connect.keep_alive_s, connect.clean_start), (Version::V5, 60, true));
    assert_eq!((connect.session_expiry_s, connect.receive_max, connect.alias_max), (10, 5, 2));
    assert_eq!((connect.client_id, connect.user), ("c", Some("auth@ten")));
    assert_eq!(connect.password, Some(&b"password-1.x"[..]));
    let will = connect.will.unwrap();
    assert_eq!((will.topic, will.payload, will.delay_s, will.qos), ("w", &b"bye"[..], 7, Qos::AtMostOnce));
    let connect_311 = b"\x10\x0d\x00\x04MQTT\x04\x00\x00\x00\x00\x01c";
    let Ok(Packet::Connect(connect)) = read(connect_311, Version::V311) else { panic!() };
    assert_eq!((connect.version, connect.session_expiry_s), (Version::V311, u32::MAX), "a session to be kept");
    for (bytes, version) in [
        (&b"\x40\x02\x00\x01"[..], Version::V311),
        (b"\x50\x03\x00\x01\x10", Version::V5),
        (b"\x62\x04\x00\x01\x00\x00", Version::V5),
        (b"\x70\x02\x00\x01", Version::V5),
        (b"\x82\x06\x00\x01\x00\x01a\x02", Version::V311),
        (b"\x82\x09\x00\x01\x02\x0b\x05\x00\x01a\x2e", Version::V5),
        (b"\xa2\x05\x00\x01\x00\x01a", Version::V311),
        (b"\xc0\x00", Version::V311),
        (b"\xe0\x00", Version::V311),
        (b"\xe0\x07\x04\x05\x11\x00\x00\x00\x00", Version::V5),
        (b"\xf0\x00", Version::V5),
    ] {
        assert!(read(bytes, version).is_ok(), "{bytes:02x?}: {:?}", read(bytes, version));
    }
}

#[test]
fn packets_that_no_client_may_send_are_refused() {
    for (what, bytes, version) in [
        ("identifier 0", &b"\x40\x02\x00\x00"[..], Version::V311),
        ("no filter", b"\x82\x02\x00\x01", Version::V311),
        ("bits of version 5 behind a filter", b"\x82\x06\x00\x01\x00\x01a\x04", Version::V311),
        ("retain handling 3", b"\x82\x07\x00\x01\x00\x00\x01a\x30", Version::V5),
        ("wrong flags of SUBSCRIBE", b"\x80\x06\x00\x01\x00\x01a\x00", Version::V311),
        ("a packet of the server", b"\x20\x02\x00\x00", Version::V311),
        ("AUTH in 3.1.1", b"\xf0\x00", Version::V311),
        ("bytes behind the end", b"\xc0\x01\x00", Version::V311),
        ("a text with a null character", b"\x30\x03\x00\x01\x00", Version::V311),
        ("a text that is not UTF-8", b"\x30\x03\x00\x01\xff", Version::V311),
        ("a repeated message at most once", b"\x38\x03\x00\x01t", Version::V311),
        ("no topic and no alias", b"\x30\x03\x00\x00\x00", Version::V5),
        ("a subscription identifier of a client's message", b"\x30\x06\x00\x01t\x02\x0b\x01", Version::V5),
        ("a response topic with a wildcard", b"\x30\x08\x00\x01t\x04\x08\x00\x01#", Version::V5),
        ("flags of a will without one", b"\x10\x0d\x00\x04MQTT\x04\x20\x00\x00\x00\x01c", Version::V311),
        ("the reserved flag", b"\x10\x0d\x00\x04MQTT\x04\x01\x00\x00\x00\x01c", Version::V311),
        ("a password alone in 3.1.1", b"\x10\x10\x00\x04MQTT\x04\x42\x00\x00\x00\x01c\x00\x01p", Version::V311),
        ("data without method", b"\x10\x12\x00\x04MQTT\x05\x02\x00\x00\x04\x16\x00\x01x\x00\x01c", Version::V311),
        ("receive maximum 0", b"\x10\x11\x00\x04MQTT\x05\x02\x00\x00\x03\x21\x00\x00\x00\x01c", Version::V311),
    ] {
        assert!(read(bytes, version).is_err(), "{what}");
    }
}

#[test]
fn an_invalid_length_or_one_over_the_limit_is_refused_by_its_first_bytes() {
    assert!(matches!(frame(b"\x30\xff\xff\xff\xff", LIMIT_BYTES), Err(Error::Malformed(_))));
    assert!(matches!(frame(b"\x30\x80\x00", LIMIT_BYTES), Err(Error::Malformed(_))));
    assert!(matches!(
        frame(b"\x30\xff\xff\xff\x7f", LIMIT_BYTES),
        Err(Error::TooLarge { size_bytes: 268_435_460, .. })
    ));
    for part in [&b""[..], b"\x30", b"\x30\x80", b"\x30\x05ab"] {
        assert!(matches!(frame(part, LIMIT_BYTES), Ok(Framed::Partial { .. })), "{part:?}");
    }
}

#[test]
fn answers_are_as_the_standard_writes_them() {
    let mut out = Vec::new();
    ack(&mut out, Version::V311, AckKind::PubComp, 0x0102, 0);
    ack(&mut out, Version::V5, AckKind::PubAck, 3, 0x87);
    suback(&mut out, Version::V311, 1, &[1, 0x87]);
    suback(&mut out, Version::V5, 1, &[1, 0x87]);
    unsuback(&mut out, Version::V311, 2, &[0]);
    unsuback(&mut out, Version::V5, 2, &[0x11]);
    connack_refusal(&mut out, Version::V311, 0x9C, "full", 9);
    connack_refusal(&mut out, Version::V5, 0x86, "no", 10);
    connack_refusal(&mut out, Version::V5, 0x86, "no", 9);
    connack_refusal(&mut out, Version::V5, 0x86, "no", 4);
    disconnect(&mut out, Version::V311, 0x8B, "end", 10);
    disconnect(&mut out, Version::V5, 0x8B, "end", 10);
    disconnect(&mut out, Version::V5, 0x8B, "end", 9);
    let expected = [
        &b"\x70\x02\x01\x02\x40\x03\x00\x03\x87"[..],
        b"\x90\x04\x00\x01\x01\x80\x90\x05\x00\x01\x00\x01\x87",
        b"\xb0\x02\x00\x02\xb0\x04\x00\x02\x00\x11",
        b"\x20\x02\x00\x03\x20\x08\x00\x86\x05\x1f\x00\x02no",
        b"\x20\x03\x00\x86\x00",
        b"\xe0\x08\x8b\x06\x1f\x00\x03end",
        b"\xe0\x02\x8b\x00",
    ]
    .concat();
    assert_eq!(out, expected);
    let mut out = Vec::new();
    let told = ConnackParts {
        session_present: true,
        session_expiry_s: Some(7),
        receive_max: 9,
        packet_max_bytes: 1_024,
        alias_max: 3,
        keep_alive_s: Some(60),
        has_broker: false,
        assigned_client_id: Some("id"),
    };
    connack(&mut out, Version::V311, &told);
    connack(&mut out, Version::V5, &told);
    let expected = [
        &b"\x20\x02\x01\x00\x20\x21\x01\x00\x1e\x11\x00\x00\x00\x07\x21\x00\x09\x27\x00\x00\x04\x00\x22\x00\x03"[..],
        b"\x13\x00\x3c\x24\x01\x29\x00\x2a\x00\x12\x00\x02id",
    ]
    .concat();
    assert_eq!(out, expected);
}

fn versions() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::V311), Just(Version::V5)]
}

proptest! {
    #[test]
    fn numbers_are_read_as_they_were_written(value in 0..=crate::wire::VARINT_MAX) {
        let mut out = Vec::new();
        put_varint(&mut out, value);
        prop_assert_eq!(out.len(), varint_size(value as usize));
        let mut reader = Reader(&out);
        prop_assert_eq!(reader.varint().unwrap(), value);
        prop_assert!(reader.is_empty());
    }

    /// Nothing is read but what is there, and what is set aside is bounded by it: filters are at least three bytes each.
    #[test]
    fn any_bytes_are_a_packet_a_part_or_a_fault(version in versions(), bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(Framed::Whole(frame)) = frame(&bytes, LIMIT_BYTES) {
            match decode(frame, version) {
                Ok(Packet::Subscribe(given)) => prop_assert!(given.filters.len() * 3 <= bytes.len()),
                Ok(Packet::Unsubscribe(given)) => prop_assert!(given.filters.len() * 2 <= bytes.len()),
                _ => {}
            }
        }
    }

    #[test]
    fn tampered_packets_never_panic(
        version in versions(),
        which in 0..6_usize,
        tampering in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let whole: [&[u8]; 6] = [
            b"\x10\x3f\x00\x04MQTT\x05\xc6\x00\x3c\x0b\x11\x00\x00\x00\x0a\x21\x00\x05\x22\x00\x02\x00\x01c\x05\x18\x00\x00\x00\x07\x00\x01w\x00\x03bye\x00\x08auth@ten\x00\x0cpassword-1.x",
            b"\x32\x14\x00\x01t\x00\x07\x0d\x02\x00\x00\x00\x05\x26\x00\x01k\x00\x01vx",
            b"\x82\x09\x00\x01\x02\x0b\x05\x00\x01a\x2e",
            b"\xa2\x06\x00\x01\x00\x00\x01a",
            b"\x62\x09\x00\x01\x00\x05\x1f\x00\x02ok",
            b"\xe0\x07\x04\x05\x11\x00\x00\x00\x00",
        ];
        let mut bytes = whole[which].to_vec();
        for (at, value) in tampering {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(bytes.len() - cut.index(3));
        if let Ok(Framed::Whole(frame)) = frame(&bytes, LIMIT_BYTES) {
            let _ = decode(frame, version);
        }
    }
}
