//! Frames and messages are read as they are written, and nothing that comes makes the reader fail otherwise than by an error.

use proptest::prelude::*;

use crate::*;

fn read(bytes: &[u8]) -> Body<'_> {
    let Framed::Whole(whole) = frame(bytes, usize::MAX).unwrap() else { panic!("a part of a frame") };
    assert_eq!(whole.size, bytes.len());
    whole.body().unwrap()
}

/// Writes a performative, reads it again, and returns the bytes.
fn round_trip(performative: Performative<'_>, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_frame(&mut out, 7, &performative, payload);
    assert_eq!(read(&out), Body::Amqp { channel: 7, performative, payload });
    out
}

#[test]
fn a_frame_is_written_as_the_specification_draws_it() {
    let open = Open { container_id: "c", max_frame_size: 512, channel_max: 1, ..Open::default() };
    let expected = [
        &[0, 0, 0, 26, 2, 0, 0, 7][..],
        &[0x00, 0x53, 0x10, 0xC0, 13, 4, 0xA1, 1, b'c', 0x40, 0x70, 0, 0, 2, 0, 0x60, 0, 1],
    ]
    .concat();
    assert_eq!(round_trip(Performative::Open(open), &[]), expected);
    // Without a value a list has no fields.
    assert_eq!(round_trip(Performative::End(End::default()), &[]), [0, 0, 0, 12, 2, 0, 0, 7, 0x00, 0x53, 0x17, 0x45]);
    let transfer = Transfer { handle: 0, delivery_id: Some(1), delivery_tag: Some(b"t"), ..Transfer::default() };
    assert_eq!(
        round_trip(Performative::Transfer(transfer), b"xy")[8..],
        [0x00, 0x53, 0x14, 0xC0, 7, 3, 0x43, 0x52, 1, 0xA0, 1, b't', b'x', b'y']
    );
}

#[test]
fn values_of_every_encoding_are_read() {
    let rows: [(&[u8], Value<'_>); 40] = [
        (&[0x40], Value::Null),
        (&[0x41], Value::Bool(true)),
        (&[0x42], Value::Bool(false)),
        (&[0x56, 1], Value::Bool(true)),
        (&[0x56, 0], Value::Bool(false)),
        (&[0x50, 255], Value::Ubyte(255)),
        (&[0x60, 1, 0], Value::Ushort(256)),
        (&[0x43], Value::Uint(0)),
        (&[0x52, 255], Value::Uint(255)),
        (&[0x70, 0, 0, 1, 0], Value::Uint(256)),
        (&[0x44], Value::Ulong(0)),
        (&[0x53, 9], Value::Ulong(9)),
        (&[0x80, 1, 0, 0, 0, 0, 0, 0, 0], Value::Ulong(1 << 56)),
        (&[0x51, 0xFF], Value::Byte(-1)),
        (&[0x61, 0xFF, 0xFE], Value::Short(-2)),
        (&[0x54, 0xFD], Value::Int(-3)),
        (&[0x71, 0x80, 0, 0, 0], Value::Int(i32::MIN)),
        (&[0x55, 0xFC], Value::Long(-4)),
        (&[0x81, 0x80, 0, 0, 0, 0, 0, 0, 0], Value::Long(i64::MIN)),
        (&[0x72, 0x3F, 0x80, 0, 0], Value::Float(1.0)),
        (&[0x82, 0x3F, 0xF0, 0, 0, 0, 0, 0, 0], Value::Double(1.0)),
        (&[0x74, 1, 2, 3, 4], Value::Decimal(&[1, 2, 3, 4])),
        (&[0x84, 1, 2, 3, 4, 5, 6, 7, 8], Value::Decimal(&[1, 2, 3, 4, 5, 6, 7, 8])),
        (&[0x73, 0, 1, 0xF6, 0], Value::Char('\u{1F600}')),
        (&[0x83, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], Value::Timestamp(Timestamp(-1))),
        (&[0x98, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], Value::Uuid([1; 16])),
        (&[0xA0, 2, 0, 255], Value::Binary(&[0, 255])),
        (&[0xB0, 0, 0, 0, 1, 7], Value::Binary(&[7])),
        (&[0xA1, 2, 0xC3, 0xA9], Value::String("é")),
        (&[0xB1, 0, 0, 0, 1, b'a'], Value::String("a")),
        (&[0xA3, 1, b's'], Value::Symbol(Symbol("s"))),
        (&[0xB3, 0, 0, 0, 1, b's'], Value::Symbol(Symbol("s"))),
        (&[0x45], Value::List(Items::default())),
        (&[0xC0, 1, 0], Value::List(Items::default())),
        (&[0xD0, 0, 0, 0, 4, 0, 0, 0, 0], Value::List(Items::default())),
        (&[0xC0, 3, 2, 0x41, 0x42], Value::List(Items::new(2, &[0x41, 0x42]))),
        (&[0xD0, 0, 0, 0, 5, 0, 0, 0, 1, 0x41], Value::List(Items::new(1, &[0x41]))),
        (&[0xC1, 3, 2, 0x41, 0x42], Value::Map(Items::new(2, &[0x41, 0x42]))),
        (&[0xD1, 0, 0, 0, 4, 0, 0, 0, 0], Value::Map(Items::default())),
        (&[0x00, 0x53, 0x24, 0x45], Value::Described(Described { descriptor: 0x24, encoded: &[0x45] })),
    ];
    for (encoded, expected) in rows {
        let mut reader = value::Reader::new(encoded);
        assert_eq!((reader.value(), reader.is_empty()), (Ok(expected), true), "{encoded:?}");
        let mut reader = value::Reader::new(encoded);
        assert_eq!((reader.skip(), reader.is_empty()), (Ok(()), true), "{encoded:?}");
        for cut in 0..encoded.len() {
            assert!(value::Reader::new(&encoded[..cut]).value().is_err(), "{encoded:?} up to {cut}");
        }
    }
}

#[test]
fn bytes_that_break_a_rule_are_refused_with_it() {
    let rows: [(&[u8], &str); 17] = [
        (&[0x56, 2], "a truth value"),
        (&[0x73, 0, 0x11, 0, 0], "no character"),
        (&[0xA1, 1, 0xFF], "not UTF-8"),
        (&[0xA3, 2, 0xC3, 0xA9], "not ASCII"),
        (&[0x3F], "unknown constructor"),
        (&[0x5F, 0], "unknown constructor"),
        (&[0xC0, 2, 2, 0x40], "more elements than bytes"),
        (&[0xD0, 0, 0, 0, 5, 0xFF, 0xFF, 0xFF, 0xFF, 0x40], "more elements than bytes"),
        (&[0xC1, 2, 1, 0x40], "no value"),
        (&[0xE0, 2, 2, 0x50], "more elements than bytes"),
        (&[0xF0, 0, 0, 0, 5, 0xFF, 0xFF, 0xFF, 0xFF, 0x40], "more elements than bytes"),
        (&[0x00, 0x40, 0x40], "neither a number nor a name"),
        (&[0x00, 0x00, 0x53, 1, 0x40], "neither a number nor a name"),
        (&[0x00, 0x53, 1], "before its bytes do"),
        (&[0xA0, 3, 1], "before its bytes do"),
        (&[0xC0, 0], "before its bytes do"),
        (&[], "before its bytes do"),
    ];
    for (encoded, rule) in rows {
        let refused = value::Reader::new(encoded).value().unwrap_err().to_string();
        assert!(refused.contains(rule), "{encoded:?}: {refused}");
    }
}

#[test]
fn a_value_that_is_nested_without_end_costs_neither_stack_nor_time() {
    // A million descriptors, one inside of the other, and as many lists.
    let described = [0x00, 0x53, 0x24].repeat(1_000_000);
    assert!(value::Reader::new(&described).value().is_err());
    let mut lists = [0xD0, 0x10, 0, 0, 0, 0, 0, 0, 1].repeat(100_000);
    lists[1..5].copy_from_slice(&(900_000_u32 - 5).to_be_bytes());
    let mut reader = value::Reader::new(&lists);
    assert!(matches!(reader.value(), Ok(Value::List(items)) if items.len() == 1));
}

#[test]
fn frames_that_break_a_rule_are_refused_before_their_content_is_there() {
    let rows: [(&[u8], &str); 6] = [
        (&[0, 0, 0, 7], "smaller than its header"),
        (&[0, 0, 2, 1], "a frame of 513 bytes is over the limit of 512"),
        (b"GET ", "over the limit"),
        (&[0, 0, 0, 8, 1, 0, 0, 0], "begins outside of it"),
        (&[0, 0, 0, 8, 3, 0, 0, 0], "begins outside of it"),
        (&[0, 0, 0, 8, 2, 2, 0, 0], "unknown type"),
    ];
    for (bytes, rule) in rows {
        let refused = frame(bytes, 512).unwrap_err().to_string();
        assert!(refused.contains(rule), "{bytes:?}: {refused}");
    }
    assert_eq!(frame(&[0, 0], 512), Ok(Framed::Partial { size: None }));
    assert_eq!(frame(&[0, 0, 2, 0, 2], 512), Ok(Framed::Partial { size: Some(512) }));
    let mut empty = Vec::new();
    heartbeat(&mut empty);
    assert_eq!((read(&empty), empty.len()), (Body::Empty, 8));
    // An extended header is skipped.
    let extended = [0, 0, 0, 16, 3, 0, 0, 7, 9, 9, 9, 9, 0x00, 0x53, 0x18, 0x45];
    let close = Body::Amqp { channel: 7, performative: Performative::Close(Close::default()), payload: &[] };
    assert_eq!(read(&extended), close);
}

#[test]
fn performatives_without_their_fields_are_refused_by_name() {
    let rows: [(&[u8], &str); 7] = [
        (&[0x00, 0x53, 0x10, 0x45], "Open has no container_id"),
        (&[0x00, 0x53, 0x10, 0xC0, 3, 1, 0x52, 1], "container_id of Open has another type"),
        (&[0x00, 0x53, 0x11, 0xC0, 2, 1, 0x40], "Begin has no next_outgoing_id"),
        (&[0x00, 0x53, 0x14, 0x45], "Transfer has no handle"),
        (&[0x00, 0x53, 0x19, 0x45], "descriptor 0x19"),
        (&[0x00, 0x53, 0x10, 0x40], "no list"),
        (&[0x40], "does not begin with a performative"),
    ];
    for (content, rule) in rows {
        let bytes = [&[0, 0, 0, 8 + content.len() as u8, 2, 0, 0, 0], content].concat();
        let Ok(Framed::Whole(whole)) = frame(&bytes, 512) else { panic!("{bytes:?}") };
        let refused = whole.body().unwrap_err().to_string();
        assert!(refused.contains(rule), "{content:?}: {refused}");
    }
}

#[test]
fn the_header_of_a_protocol_is_told_by_its_first_wrong_byte() {
    for header in [ProtocolHeader::Amqp, ProtocolHeader::Tls, ProtocolHeader::Sasl] {
        let bytes = header.bytes();
        assert_eq!(protocol_header(&[&bytes[..], b"more"].concat()), Ok(Some(header)));
        for cut in 0..bytes.len() {
            assert_eq!(protocol_header(&bytes[..cut]), Ok(None), "{cut}");
        }
    }
    for foreign in [&b"GET / HTTP/1.1"[..], b"AMQP\x00\x00\x09\x01", b"AMQP\x01", b"\x16\x03\x01", b"AMQP\x03\x02"] {
        assert!(protocol_header(foreign).is_err(), "{foreign:?}");
    }
}

#[test]
fn names_of_types_stand_for_their_numbers() {
    let name = "amqp:close:list";
    let content = [&[0x00, 0xA3, name.len() as u8][..], name.as_bytes(), &[0x45]].concat();
    let bytes = [&[0, 0, 0, 8 + content.len() as u8, 2, 0, 0, 0], &content[..]].concat();
    assert!(matches!(read(&bytes), Body::Amqp { performative: Performative::Close(_), .. }));
}

#[test]
fn termini_outcomes_and_capabilities_come_back_as_they_were_sent() {
    let (outcomes, capabilities) =
        (SymbolsBuilder::of(&["amqp:accepted:list", "amqp:rejected:list"]), SymbolsBuilder::of(&["queue"]));
    let mut properties = MapBuilder::default();
    properties.symbol("subscription-name", Value::String("s"));
    properties.symbol("count", Value::Uint(3));
    let error = ErrorInfo { info: Some(properties.as_map()), ..ErrorInfo::new(condition::NOT_FOUND, "no such node") };
    let source = Source {
        address: Some(Value::String("telemetry/acme")),
        outcomes: outcomes.as_multiple(),
        capabilities: capabilities.as_multiple(),
        default_outcome: Some(DeliveryState::Modified(Modified {
            delivery_failed: true,
            undeliverable_here: false,
            message_annotations: None,
        })),
        ..Source::default()
    };
    let attach = Attach {
        name: "link",
        handle: 4,
        role: true,
        source: Some(source),
        target: Some(TargetTerminus::Node(Target { address: Some(Value::String("x")), ..Target::default() })),
        properties: Some(properties.as_map()),
        ..Attach::default()
    };
    let bytes = round_trip(Performative::Attach(attach), &[]);
    let Body::Amqp { performative: Performative::Attach(read), .. } = read(&bytes) else { panic!() };
    let read = read.source.unwrap();
    assert_eq!(read.outcomes.symbols().collect::<Vec<_>>(), ["amqp:accepted:list", "amqp:rejected:list"]);
    assert!(read.capabilities.has("queue") && !read.capabilities.has("topic"));
    let coordinator = Some(TargetTerminus::Coordinator(Coordinator::default()));
    round_trip(Performative::Attach(Attach { target: coordinator, ..attach }), &[]);
    for state in [
        DeliveryState::Accepted,
        DeliveryState::Released,
        DeliveryState::Rejected(Some(error)),
        DeliveryState::Rejected(None),
        DeliveryState::Received(Received { section_number: 1, section_offset: 1 << 40 }),
        DeliveryState::Other(Described { descriptor: 0x34, encoded: &[0x45] }),
    ] {
        round_trip(
            Performative::Disposition(Disposition { first: 1, state: Some(state), ..Disposition::default() }),
            &[],
        );
    }
    let map = properties.as_map();
    assert_eq!(
        (map.get("subscription-name"), map.get("count"), map.get("other")),
        (Some(Value::String("s")), Some(Value::Uint(3)), None)
    );
    // One symbol stands for an array of one (section 1.4).
    assert_eq!(Multiple::One(Symbol("queue")).symbols().collect::<Vec<_>>(), ["queue"]);
}

#[test]
fn the_steps_of_a_login_come_back_as_they_were_sent() {
    let names = SymbolsBuilder::of(&["PLAIN", "EXTERNAL"]);
    for step in [
        Sasl::Mechanisms(SaslMechanisms { mechanisms: names.as_multiple() }),
        Sasl::Init(SaslInit { mechanism: Symbol("PLAIN"), initial_response: Some(b"\0u\0p"), hostname: Some("h") }),
        Sasl::Challenge(SaslChallenge { challenge: b"c" }),
        Sasl::Response(SaslResponse { response: b"" }),
        Sasl::Outcome(SaslOutcome { code: 1, additional_data: None }),
    ] {
        let mut out = Vec::new();
        write_sasl(&mut out, &step);
        assert_eq!(read(&out), Body::Sasl(step));
    }
}

#[test]
fn a_message_is_read_as_it_is_written() {
    let mut application_properties = MapBuilder::default();
    application_properties.string("device_id", Value::String("d-1"));
    application_properties.string("ttd", Value::Int(-1));
    let mut annotations = MapBuilder::default();
    annotations.symbol("x-opt-retain", Value::Bool(true));
    let draft = MessageDraft {
        header: Header { durable: true, ttl: Some(5_000), delivery_count: 2, ..Header::default() },
        annotations: annotations.as_map(),
        properties: Properties {
            to: Some(Value::String("telemetry/acme")),
            correlation_id: Some(Value::Ulong(7)),
            content_type: Some(Symbol("application/json")),
            creation_time: Some(Timestamp(1_700_000_000_000)),
            ..Properties::default()
        },
        application_properties: application_properties.as_map(),
        data: &[b'x'; 300],
    };
    let mut bytes = Vec::new();
    draft.write(&mut bytes);
    let message = Message::read(&bytes).unwrap();
    assert_eq!((message.header, message.properties), (draft.header, draft.properties));
    assert_eq!(
        (message.annotations, message.application_properties),
        (draft.annotations, draft.application_properties)
    );
    assert_eq!(message.content.bytes(), Some(draft.data));
    for cut in 1..bytes.len() {
        // A cut between sections leaves a shorter message.
        if let Ok(short) = Message::read(&bytes[..cut]) {
            assert_ne!(short, message, "{cut}");
        }
    }
}

#[test]
fn content_of_every_kind_is_read_and_sections_stand_in_order() {
    let section = |descriptor: u8, value: &[u8]| [&[0x00, 0x53, descriptor], value].concat();
    let data = section(0x75, &[0xA0, 1, b'a']);
    let rows: [(Vec<u8>, Option<&[u8]>); 7] = [
        (Vec::new(), Some(b"")),
        (data.clone(), Some(b"a")),
        ([&data[..], &data, &data].concat(), Some(b"aaa")),
        (section(0x77, &[0xA1, 1, b't']), Some(b"t")),
        (section(0x77, &[0x40]), Some(b"")),
        (section(0x77, &[0x52, 1]), None),
        (section(0x76, &[0x45]), None),
    ];
    for (bytes, expected) in rows {
        assert_eq!(Message::read(&bytes).unwrap().content.bytes(), expected, "{bytes:?}");
    }
    let properties = section(0x74, &[0xC1, 1, 0]);
    for (bytes, rule) in [
        ([&data[..], &properties].concat(), "in another order"),
        ([&properties[..], &properties].concat(), "in another order"),
        ([&data[..], &section(0x77, &[0x40])].concat(), "do not go together"),
        (section(0x75, &[0xA1, 1, b'a']), "do not go together"),
        (section(0x74, &[0x45]), "no map"),
        (section(0x7F, &[0x45]), "descriptor 0x7f"),
        (vec![0x40], "without its name"),
    ] {
        let refused = Message::read(&bytes).unwrap_err().to_string();
        assert!(refused.contains(rule), "{bytes:?}: {refused}");
    }
}

/// Reads everything that a frame and a message have, to the last element.
fn read_all(bytes: &[u8]) {
    fn walk(value: Value<'_>, depth: usize) {
        if depth == 0 {
            return;
        }
        match value {
            Value::List(items) | Value::Map(items) => {
                items.values().map_while(Result::ok).for_each(|inner| walk(inner, depth - 1));
            }
            Value::Array(array) => array.values().map_while(Result::ok).for_each(|inner| walk(inner, depth - 1)),
            Value::Described(described) => described.value().into_iter().for_each(|inner| walk(inner, depth - 1)),
            _ => {}
        }
    }
    if let Ok(Framed::Whole(whole)) = frame(bytes, 1 << 20)
        && let Ok(Body::Amqp { performative: Performative::Attach(attach), .. }) = whole.body()
    {
        attach.desired_capabilities.symbols().for_each(drop);
    }
    if let Ok(message) = Message::read(bytes) {
        message.application_properties.entries().for_each(drop);
    }
    if let Ok(value) = value::Reader::new(bytes).value() {
        walk(value, 8);
    }
}

fn value() -> impl Strategy<Value = OwnedValue> {
    let leaf = prop_oneof![
        Just(OwnedValue::Null),
        any::<bool>().prop_map(OwnedValue::Bool),
        any::<u32>().prop_map(OwnedValue::Uint),
        any::<u64>().prop_map(OwnedValue::Ulong),
        any::<i32>().prop_map(OwnedValue::Int),
        any::<i64>().prop_map(OwnedValue::Long),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(OwnedValue::Binary),
        "\\PC{0,100}".prop_map(OwnedValue::String),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| prop::collection::vec(inner, 0..8).prop_map(OwnedValue::List))
}

/// A value that owns its content.
#[derive(Debug, Clone, PartialEq)]
enum OwnedValue {
    Null,
    Bool(bool),
    Uint(u32),
    Ulong(u64),
    Int(i32),
    Long(i64),
    Binary(Vec<u8>),
    String(String),
    List(Vec<OwnedValue>),
}

impl OwnedValue {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => write::value(out, Value::Null),
            Self::Bool(inner) => write::value(out, Value::Bool(*inner)),
            Self::Uint(inner) => write::value(out, Value::Uint(*inner)),
            Self::Ulong(inner) => write::value(out, Value::Ulong(*inner)),
            Self::Int(inner) => write::value(out, Value::Int(*inner)),
            Self::Long(inner) => write::value(out, Value::Long(*inner)),
            Self::Binary(inner) => write::value(out, Value::Binary(inner)),
            Self::String(inner) => write::value(out, Value::String(inner)),
            Self::List(inner) => {
                let mut bytes = Vec::new();
                inner.iter().for_each(|one| one.write(&mut bytes));
                write::value(out, Value::List(Items::new(inner.len(), &bytes)));
            }
        }
    }

    fn of(value: Value<'_>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(inner) => Self::Bool(inner),
            Value::Uint(inner) => Self::Uint(inner),
            Value::Ulong(inner) => Self::Ulong(inner),
            Value::Int(inner) => Self::Int(inner),
            Value::Long(inner) => Self::Long(inner),
            Value::Binary(inner) => Self::Binary(inner.to_vec()),
            Value::String(inner) => Self::String(inner.to_owned()),
            Value::List(items) => Self::List(items.values().map(|inner| Self::of(inner.unwrap())).collect()),
            other => panic!("{other:?}"),
        }
    }
}

proptest! {
    #[test]
    fn any_value_comes_back(written in value()) {
        let mut bytes = Vec::new();
        written.write(&mut bytes);
        let mut reader = value::Reader::new(&bytes);
        prop_assert_eq!(OwnedValue::of(reader.value().unwrap()), written);
        prop_assert!(reader.is_empty());
    }

    #[test]
    fn any_flow_disposition_and_transfer_come_back(
        numbers: [Option<u32>; 5],
        windows: [u32; 3],
        flags: [bool; 4],
        tag in prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
        payload in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let [a, b, c, d, e] = numbers;
        round_trip(Performative::Flow(Flow {
            next_incoming_id: a,
            incoming_window: windows[0],
            next_outgoing_id: windows[1],
            outgoing_window: windows[2],
            handle: b,
            delivery_count: c,
            link_credit: d,
            available: e,
            drain: flags[0],
            echo: flags[1],
            properties: None,
        }), &[]);
        round_trip(Performative::Disposition(Disposition {
            role: flags[0],
            first: windows[0],
            last: a,
            settled: flags[1],
            state: flags[2].then_some(DeliveryState::Accepted),
            batchable: flags[3],
        }), &[]);
        round_trip(Performative::Transfer(Transfer {
            handle: windows[0],
            delivery_id: a,
            delivery_tag: tag.as_deref(),
            message_format: b,
            settled: c.map(|number| number % 2 == 0),
            more: flags[0],
            resume: flags[1],
            aborted: flags[2],
            batchable: flags[3],
            ..Transfer::default()
        }), &payload);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read_all(&bytes);
    }

    #[test]
    fn frames_and_messages_with_a_wrong_byte_or_end_are_read_or_refused(at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        let mut properties = MapBuilder::default();
        properties.string("device_id", Value::String("d"));
        let draft = MessageDraft {
            properties: Properties { subject: Some("on"), message_id: Some(Value::Uuid([1; 16])), ..Properties::default() },
            application_properties: properties.as_map(),
            data: b"payload",
            ..MessageDraft::default()
        };
        let mut message = Vec::new();
        draft.write(&mut message);
        let mut bytes = Vec::new();
        let source = Some(Source { address: Some(Value::String("event/acme")), ..Source::default() });
        let attach = Attach { name: "l", source, properties: Some(properties.as_map()), ..Attach::default() };
        write_frame(&mut bytes, 0, &Performative::Attach(attach), &[]);
        for mut whole in [message, bytes] {
            let index = at.index(whole.len());
            whole[index] = byte;
            read_all(&whole);
            whole.truncate(cut.index(whole.len()));
            read_all(&whole);
        }
    }
}
