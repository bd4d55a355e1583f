//! Every packet is read by the other side as it was written, in both versions; what cannot be written or read is refused.

use proptest::prelude::*;

use crate::encode::{AckKind, Outgoing, ack, publish, publish_size};
use crate::from_server::{ConnAck, FiltersAck};
use crate::property::{put_text, subscription_ids, user_properties};
use crate::to_client::ConnackParts;
use crate::{
    Ack, Connect, Disconnect, Error, Framed, Publish, PublishProperties, Qos, RetainHandling, Subscribe,
    SubscribeOptions, Unsubscribe, Version, Will, WriteError, frame, from_client, from_server, reason, to_client,
    to_server,
};

const LIMIT_BYTES: usize = 1 << 20;

fn from_client(bytes: &[u8], version: Version) -> Result<from_client::Packet<'_>, Error> {
    from_client::decode(whole(bytes), version)
}

fn from_server(bytes: &[u8], version: Version) -> Result<from_server::Packet<'_>, Error> {
    from_server::decode(whole(bytes), version)
}

fn whole(bytes: &[u8]) -> crate::Frame<'_> {
    let Ok(Framed::Whole(frame)) = frame(bytes, LIMIT_BYTES) else { panic!("no whole packet: {bytes:02x?}") };
    assert_eq!(frame.size, bytes.len());
    frame
}

fn versions() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::V311), Just(Version::V5)]
}

fn qos() -> impl Strategy<Value = Qos> {
    prop_oneof![Just(Qos::AtMostOnce), Just(Qos::AtLeastOnce), Just(Qos::ExactlyOnce)]
}

fn options() -> impl Strategy<Value = SubscribeOptions> {
    let handling = [RetainHandling::Send, RetainHandling::SendIfNew, RetainHandling::DoNotSend];
    (qos(), any::<bool>(), any::<bool>(), prop::sample::select(handling.to_vec())).prop_map(
        |(qos, no_local, retain_as_published, retain_handling)| SubscribeOptions {
            qos,
            no_local,
            retain_as_published,
            retain_handling,
        },
    )
}

const TEXT: &str = "[a-zA-Z0-9/ü€]{0,40}";
const TOPIC: &str = "[a-zA-Z0-9/ü€]{1,40}";
const FILTER: &str = "[a-z/+#$]{1,20}";

prop_compose! {
    /// Limits of a client; those of MQTT 5 have the standard's defaults in 3.1.1.
    fn limits()(
        version in versions(),
        clean_start in any::<bool>(),
        keep_alive_s in any::<u16>(),
        session_expiry_s in any::<u32>(),
        receive_max in 1..=u16::MAX,
        packet_max_bytes in 1..=u32::MAX,
        alias_max in any::<u16>(),
        wants_problems in any::<bool>(),
    ) -> Connect<'static> {
        let plain = Connect { clean_start, keep_alive_s, ..Connect::new(version, "") };
        match version {
            Version::V311 => Connect { session_expiry_s: if clean_start { 0 } else { u32::MAX }, ..plain },
            Version::V5 => {
                Connect { session_expiry_s, receive_max, packet_max_bytes, alias_max, wants_problems, ..plain }
            }
        }
    }
}

proptest! {
    #[test]
    fn a_connect_is_read_as_it_was_written(
        limits in limits(),
        client_id in TEXT,
        login in (any::<Option<bool>>(), TEXT, prop::collection::vec(any::<u8>(), 0..20)),
        method in (prop::option::of(TEXT), prop::option::of(prop::collection::vec(any::<u8>(), 0..20))),
        has_will in any::<bool>(),
        will in (qos(), any::<bool>(), any::<u32>(), TOPIC, any::<Option<u32>>(), prop::option::of(TEXT)),
        payload in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let is_5 = limits.version == Version::V5;
        let (user, password) = match login.0 {
            None => (None, None),
            Some(has_password) => (Some(&*login.1), has_password.then_some(&login.2[..])),
        };
        let (qos, retain, delay_s, topic, expiry_s, content_type) = &will;
                let mut properties = PublishProperties::default();
        if is_5 {
            (properties.expiry_s, properties.content_type) = (*expiry_s, content_type.as_deref());
            properties.bytes = b"\x01\x01\x26\x00\x01k\x00\x01v";
        }
        let delay_s = if is_5 { *delay_s } else { 0 };
        let will = Will { qos: *qos, retain: *retain, delay_s, topic, properties, payload: &payload };
        let authentication_method = method.0.as_deref().filter(|_| is_5);
        let authentication_data = method.1.as_deref().filter(|_| authentication_method.is_some());
        let will = has_will.then_some(will);
        let written =
            Connect { client_id: &client_id, user, password, will, authentication_method, authentication_data, ..limits };
        let mut out = Vec::new();
        to_server::connect(&mut out, &written).unwrap();
        // The version is read from the packet.
        let Ok(from_client::Packet::Connect(mut read)) = from_client(&out, Version::V311) else {
            panic!("{:?}", from_client(&out, Version::V311))
        };
        let mut again = Vec::new();
        to_server::connect(&mut again, &read).unwrap();
        prop_assert_eq!(&again, &out, "what was read is written as it was");
        if let (Some(read), Some(will)) = (&mut read.will, &written.will) {
            prop_assert!(read.properties.bytes.ends_with(will.properties.bytes));
            read.properties.bytes = will.properties.bytes;
        }
        prop_assert_eq!(&*read, &written);
    }

    #[test]
    fn a_message_is_read_by_either_side_as_it_was_written(
        version in versions(),
        qos in qos(),
        flags in any::<(bool, bool)>(),
        id in 1..=u16::MAX,
        topic in TOPIC,
        given in (any::<u16>(), any::<Option<u32>>(), prop::option::of(TEXT)),
        ids in prop::collection::vec(1..=crate::wire::VARINT_MAX, 0..4),
        payload in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let (alias, expiry_s, content_type) = (given.0, given.1, given.2.as_deref());
        let mut properties = b"\x26\x00\x01k\x00\x01v\x26\x00\x01k\x00\x01w".to_vec();
        if let Some(content_type) = content_type {
            properties.push(crate::property::CONTENT_TYPE);
            put_text(&mut properties, content_type.as_bytes());
        }
        let (dup, retain) = (flags.0 && qos != Qos::AtMostOnce, flags.1);
        let id = if qos == Qos::AtMostOnce { 0 } else { id };
        let mut written =
            Outgoing { dup, retain, topic: &topic, alias, expiry_s, properties: &properties, payload: &payload, ..Outgoing::at(qos, id) };
        let check = |read: Publish<'_>, ids: &[u32]| {
            let Publish { properties, .. } = read;
            let plain = Publish { properties: PublishProperties::default(), ..read };
            assert_eq!(plain, Publish { dup, retain, qos, topic: &topic, id, properties: PublishProperties::default(), payload: &payload });
            if version == Version::V5 {
                assert_eq!((properties.alias, properties.expiry_s, properties.content_type), (alias, expiry_s, content_type));
                assert_eq!(user_properties(properties.bytes).collect::<Vec<_>>(), [("k", "v"), ("k", "w")]);
                assert_eq!(subscription_ids(properties.bytes).collect::<Vec<_>>(), ids);
            }
        };
        let mut out = Vec::new();
        publish(&mut out, version, &written);
        prop_assert_eq!(out.len(), publish_size(version, &written));
        let Ok(from_client::Packet::Publish(read)) = from_client(&out, version) else { panic!() };
        check(read, &[]);
        written.subscription_ids = &ids;
        out.clear();
        publish(&mut out, version, &written);
        prop_assert_eq!(out.len(), publish_size(version, &written));
        let Ok(from_server::Packet::Publish(read)) = from_server(&out, version) else { panic!() };
        check(read, &ids);
    }

    #[test]
    fn an_acknowledgement_is_read_by_either_side_as_it_was_written(
        version in versions(),
        id in 1..=u16::MAX,
        code in any::<u8>(),
    ) {
        use {from_client::Packet as Client, from_server::Packet as Server};
        let told = Ack { id, reason: if version == Version::V5 { code } else { 0 } };
        for (kind, client, server) in [
            (AckKind::PubAck, Client::PubAck(told), Server::PubAck(told)),
            (AckKind::PubRec, Client::PubRec(told), Server::PubRec(told)),
            (AckKind::PubRel, Client::PubRel(told), Server::PubRel(told)),
            (AckKind::PubComp, Client::PubComp(told), Server::PubComp(told)),
        ] {
            let mut out = Vec::new();
            ack(&mut out, version, kind, id, code);
            prop_assert_eq!(from_client(&out, version), Ok(client));
            prop_assert_eq!(from_server(&out, version), Ok(server));
        }
    }

    #[test]
    fn subscriptions_and_their_answers_are_read_as_they_were_written(
        version in versions(),
        id in 1..=u16::MAX,
        subscription_id in 0..=crate::wire::VARINT_MAX,
        filters in prop::collection::vec((FILTER, options()), 1..6),
        codes in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, 0x80, 0x87, 0x97]), 1..6),
    ) {
        let is_5 = version == Version::V5;
        let filters = filters.iter().map(|(filter, options)| (&**filter, *options)).collect();
        let mut written = Subscribe { id, subscription_id, filters };
        let mut out = Vec::new();
        to_server::subscribe(&mut out, version, &written).unwrap();
        if !is_5 {
            written.subscription_id = 0;
            for (_, options) in &mut written.filters {
                *options = SubscribeOptions::of(options.qos as u8, version).unwrap();
            }
        }
        prop_assert_eq!(from_client(&out, version), Ok(from_client::Packet::Subscribe(written)));
        out.clear();
        to_client::suback(&mut out, version, id, &codes);
        let told: Vec<u8> = codes.iter().map(|code| if is_5 { *code } else { (*code).min(0x80) }).collect();
        prop_assert_eq!(from_server(&out, version), Ok(from_server::Packet::SubAck(FiltersAck { id, codes: &told })));
    }

    #[test]
    fn unsubscriptions_and_their_answers_are_read_as_they_were_written(
        version in versions(),
        id in 1..=u16::MAX,
        filters in prop::collection::vec(FILTER, 1..6),
        codes in prop::collection::vec(prop::sample::select(vec![0_u8, 0x11, 0x80, 0x87]), 1..6),
    ) {
        let written = Unsubscribe { id, filters: filters.iter().map(|filter| &**filter).collect() };
        let mut out = Vec::new();
        to_server::unsubscribe(&mut out, version, &written).unwrap();
        prop_assert_eq!(from_client(&out, version), Ok(from_client::Packet::Unsubscribe(written)));
        out.clear();
        to_client::unsuback(&mut out, version, id, &codes);
        let codes = if version == Version::V5 { &codes[..] } else { &[] };
        prop_assert_eq!(from_server(&out, version), Ok(from_server::Packet::UnsubAck(FiltersAck { id, codes })));
    }

    #[test]
    fn the_answer_to_connect_is_read_as_it_was_written(
        version in versions(),
        session_present in any::<bool>(),
        expiry in any::<(Option<u32>, Option<u16>)>(),
        limits in (1..=u16::MAX, 1..=u32::MAX, any::<u16>()),
        has_broker in any::<bool>(),
        client_id in prop::option::of(TEXT),
        refusal in prop::sample::select(vec![0x80_u8, 0x84, 0x85, 0x86, 0x87, 0x8C, 0x97, 0x9F]),
        why in TEXT,
    ) {
        let ((session_expiry_s, keep_alive_s), (receive_max, packet_max_bytes, alias_max)) = (expiry, limits);
        let assigned_client_id = client_id.as_deref();
        let mut out = Vec::new();
        let parts = ConnackParts { session_present, session_expiry_s, receive_max, packet_max_bytes, alias_max, keep_alive_s, has_broker, assigned_client_id };
        to_client::connack(&mut out, version, &parts);
        let Ok(from_server::Packet::ConnAck(read)) = from_server(&out, version) else { panic!() };
        let plain = ConnAck::new(session_present, reason::SUCCESS);
        let expected = match version {
            Version::V311 => plain,
            Version::V5 => ConnAck {
                session_expiry_s, receive_max, packet_max_bytes, alias_max, keep_alive_s, assigned_client_id,
                qos_max: if has_broker { Qos::ExactlyOnce } else { Qos::AtLeastOnce },
                has_subscription_ids: has_broker,
                has_shared_subscriptions: has_broker,
                ..plain
            },
        };
        prop_assert_eq!(read, expected);
        out.clear();
        to_client::connack_refusal(&mut out, version, refusal, &why, usize::MAX);
        let Ok(from_server::Packet::ConnAck(read)) = from_server(&out, version) else { panic!() };
        match version {
            Version::V311 => prop_assert!((1..=5).contains(&read.code)),
            Version::V5 => prop_assert_eq!(read, ConnAck { reason_text: Some(&why), ..ConnAck::new(false, refusal) }),
        }
    }

    #[test]
    fn either_side_ends_the_connection_as_the_other_reads_it(
        version in versions(),
        code in prop::sample::select(vec![0_u8, 0x04, 0x80, 0x82, 0x93]),
        session_expiry_s in any::<Option<u32>>(),
        why in TEXT,
    ) {
        let written = Disconnect { reason: code, session_expiry_s };
        let mut out = Vec::new();
        to_server::disconnect(&mut out, version, written);
        let expected = if version == Version::V5 { written } else { Disconnect::default() };
        prop_assert_eq!(from_client(&out, version), Ok(from_client::Packet::Disconnect(expected)));
        out.clear();
        to_client::disconnect(&mut out, version, reason::BUSY, &why, usize::MAX);
        if version == Version::V5 {
            let expected = from_server::Disconnect { reason: reason::BUSY, reason_text: Some(&why) };
            prop_assert_eq!(from_server(&out, version), Ok(from_server::Packet::Disconnect(expected)));
        } else {
            prop_assert!(out.is_empty(), "a server of MQTT 3.1.1 closes the connection");
        }
    }

    #[test]
    fn any_bytes_of_a_server_are_a_packet_a_part_or_a_fault(
        version in versions(),
        kind in 0..16_u8,
        body in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        let flags = if matches!(kind, 6 | 8 | 10) { 2 } else { 0 };
        let bytes = [&[kind << 4 | flags, body.len() as u8][..], &body].concat();
        if let Ok(Framed::Whole(frame)) = frame(&bytes, LIMIT_BYTES) {
            let _ = from_server::decode(frame, version);
        }
    }
}

#[test]
fn pings_and_their_answers_are_read_as_they_were_written() {
    for version in [Version::V311, Version::V5] {
        let (mut ping, mut pong) = (Vec::new(), Vec::new());
        to_server::ping(&mut ping);
        to_client::pong(&mut pong);
        assert_eq!(from_client(&ping, version), Ok(from_client::Packet::PingReq));
        assert_eq!(from_server(&pong, version), Ok(from_server::Packet::PingResp));
    }
}

#[test]
fn client_packets_are_written_as_the_standard_says() {
    let mut out = Vec::new();
    let login =
        Connect { keep_alive_s: 60, user: Some("d1@t"), password: Some(b"pw"), ..Connect::new(Version::V311, "d1") };
    to_server::connect(&mut out, &login).unwrap();
    to_server::connect(&mut out, &Connect { receive_max: 5, ..Connect::new(Version::V5, "d1") }).unwrap();
    let options = |bits, version| SubscribeOptions::of(bits, version).unwrap();
    for (version, bits) in [(Version::V311, 2), (Version::V5, 0x2E)] {
        let filters = vec![("a", options(bits, version))];
        to_server::subscribe(&mut out, version, &Subscribe { id: 1, subscription_id: 5, filters }).unwrap();
        to_server::unsubscribe(&mut out, version, &Unsubscribe { id: 1, filters: vec!["a"] }).unwrap();
    }
    to_server::ping(&mut out);
    to_server::disconnect(&mut out, Version::V311, Disconnect { reason: 4, session_expiry_s: Some(0) });
    to_server::disconnect(&mut out, Version::V5, Disconnect { reason: 4, session_expiry_s: None });
    to_server::disconnect(&mut out, Version::V5, Disconnect { reason: 4, session_expiry_s: Some(0) });
    let expected = [
        &b"\x10\x18\x00\x04MQTT\x04\xC2\x00\x3C\x00\x02d1\x00\x04d1@t\x00\x02pw"[..],
        b"\x10\x12\x00\x04MQTT\x05\x02\x00\x00\x03\x21\x00\x05\x00\x02d1",
        b"\x82\x06\x00\x01\x00\x01a\x02\xa2\x05\x00\x01\x00\x01a",
        b"\x82\x09\x00\x01\x02\x0b\x05\x00\x01a\x2e\xa2\x06\x00\x01\x00\x00\x01a",
        b"\xc0\x00\xe0\x00\xe0\x01\x04\xe0\x07\x04\x05\x11\x00\x00\x00\x00",
    ]
    .concat();
    assert_eq!(out, expected);
}

#[test]
fn packets_that_no_server_may_send_are_refused() {
    for (what, bytes, version) in [
        ("a packet of a client", &b"\x82\x06\x00\x01\x00\x01a\x02"[..], Version::V311),
        ("CONNECT", b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c", Version::V311),
        ("PINGREQ", b"\xc0\x00", Version::V5),
        ("kind 0", b"\x00\x00", Version::V5),
        ("DISCONNECT in 3.1.1", b"\xe0\x00", Version::V311),
        ("AUTH in 3.1.1", b"\xf0\x00", Version::V311),
        ("reserved flags of PUBACK", b"\x41\x02\x00\x01", Version::V311),
        ("reserved flags of PUBREL", b"\x60\x02\x00\x01", Version::V311),
        ("reserved flags of CONNACK", b"\x20\x02\x02\x00", Version::V311),
        ("a CONNACK that ends too early", b"\x20\x01\x00", Version::V311),
        ("a CONNACK of MQTT 5 without properties", b"\x20\x02\x00\x00", Version::V5),
        ("return code 6", b"\x20\x02\x00\x06", Version::V311),
        ("a return code of 3.1.1 in MQTT 5", b"\x20\x03\x00\x05\x00", Version::V5),
        ("a session for a client that is refused", b"\x20\x02\x01\x05", Version::V311),
        ("bytes behind a CONNACK", b"\x20\x03\x00\x00\x00", Version::V311),
        ("a will delay in CONNACK", b"\x20\x08\x00\x00\x05\x18\x00\x00\x00\x07", Version::V5),
        ("a receive maximum twice", b"\x20\x09\x00\x00\x06\x21\x00\x01\x21\x00\x01", Version::V5),
        ("maximum QoS 2", b"\x20\x05\x00\x00\x02\x24\x02", Version::V5),
        ("receive maximum 0", b"\x20\x06\x00\x00\x03\x21\x00\x00", Version::V5),
        ("an unknown property", b"\x20\x05\x00\x00\x02\x7f\x00", Version::V5),
        ("identifier 0", b"\x40\x02\x00\x00", Version::V311),
        ("bytes behind a PUBACK", b"\x40\x03\x00\x01\x00", Version::V311),
        ("half a PUBCOMP", b"\x70\x01\x00", Version::V311),
        ("quality of service 3", b"\x36\x05\x00\x01t\x00\x01", Version::V311),
        ("a topic with a wildcard", b"\x30\x03\x00\x01#", Version::V311),
        ("a message without topic", b"\x30\x03\x00\x00\x00", Version::V5),
        ("subscription identifier 0", b"\x30\x06\x00\x01t\x02\x0b\x00", Version::V5),
        ("a content type twice", b"\x30\x0c\x00\x01t\x08\x03\x00\x01a\x03\x00\x01a", Version::V5),
        ("a SUBACK without a code", b"\x90\x02\x00\x01", Version::V311),
        ("a SUBACK with an unknown code", b"\x90\x03\x00\x01\x03", Version::V311),
        ("a code of MQTT 5 in 3.1.1", b"\x90\x03\x00\x01\x87", Version::V311),
        ("an UNSUBACK with codes in 3.1.1", b"\xb0\x03\x00\x01\x00", Version::V311),
        ("an UNSUBACK without codes in MQTT 5", b"\xb0\x03\x00\x01\x00", Version::V5),
        ("a PINGRESP with a body", b"\xd0\x01\x00", Version::V311),
        ("a reason of a client", b"\xe0\x01\x04", Version::V5),
        ("a session expiry of a server", b"\xe0\x07\x00\x05\x11\x00\x00\x00\x00", Version::V5),
    ] {
        assert!(from_server(bytes, version).is_err(), "{what}: {:?}", from_server(bytes, version));
    }
    let older = from_server(b"\x20\x02\x00\x01", Version::V5);
    let refusal = ConnAck::new(false, reason::UNSUPPORTED_VERSION);
    assert_eq!(older, Ok(from_server::Packet::ConnAck(refusal)), "a server of 3.1.1 refuses in its own form");
}

#[test]
fn an_oversized_packet_is_refused_with_its_size_and_leaves_the_buffer_unchanged() {
    let long = "x".repeat(65_536);
    let options = SubscribeOptions::of(0, Version::V311).unwrap();
    let mut out = Vec::new();
    let too_long = |what| WriteError::TooLong { what, size_bytes: 65_536, limit_bytes: 65_535 };
    let hello = Connect::new(Version::V5, "c");
    let properties = PublishProperties::default();
    let will = Will { qos: Qos::AtMostOnce, retain: false, delay_s: 0, topic: &long, properties, payload: b"" };
    for (connect, error) in [
        (Connect::new(Version::V311, &long), too_long("the client id")),
        (Connect { user: Some(&long), ..hello.clone() }, too_long("the user name")),
        (Connect { password: Some(long.as_bytes()), ..hello.clone() }, too_long("the password")),
        (Connect { authentication_method: Some(&long), ..hello.clone() }, too_long("the authentication method")),
        (Connect { will: Some(will), ..hello.clone() }, too_long("the topic of the will")),
        (Connect { password: Some(b"p"), ..Connect::new(Version::V311, "c") }, WriteError::PasswordWithoutUser),
    ] {
        assert_eq!(to_server::connect(&mut out, &connect), Err(error));
    }
    for (subscription_id, filters, error) in [
        (0, vec![], WriteError::NoFilter),
        (0, vec![(&*long, options)], too_long("a filter")),
        (1 << 28, vec![("a", options)], WriteError::SubscriptionId(1 << 28)),
    ] {
        let given = Subscribe { id: 1, subscription_id, filters };
        assert_eq!(to_server::subscribe(&mut out, Version::V5, &given), Err(error));
    }
    for (filters, error) in [(vec![], WriteError::NoFilter), (vec![&*long], too_long("a filter"))] {
        assert_eq!(to_server::unsubscribe(&mut out, Version::V5, &Unsubscribe { id: 1, filters }), Err(error));
    }
    assert_eq!(too_long("a filter").to_string(), "a filter has 65536 bytes; MQTT allows at most 65535");
    assert!(out.is_empty());
}
