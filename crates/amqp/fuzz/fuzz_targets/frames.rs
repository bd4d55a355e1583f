//! Any bytes at all, read as frames and as a message, to the last nested value. A frame that was read is written again, and
//! that frame says the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millstream_amqp::{Body, Framed, Map, Message, Value, frame, write_frame, write_sasl};

/// Nested values that are looked into.
const DEPTH: usize = 8;

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

fn walk_map(map: Map<'_>) {
    for (key, value) in map.entries().map_while(Result::ok) {
        walk(key, DEPTH);
        walk(value, DEPTH);
    }
}

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Ok(Framed::Whole(whole)) = frame(rest, 1 << 16) {
        rest = &rest[whole.size..];
        let Ok(body) = whole.body() else { continue };
        let mut out = Vec::new();
        match body {
            Body::Empty => continue,
            Body::Amqp { channel, performative, payload } => write_frame(&mut out, channel, &performative, payload),
            Body::Sasl(step) => write_sasl(&mut out, &step),
        }
        let Ok(Framed::Whole(again)) = frame(&out, usize::MAX) else { panic!("it is a frame") };
        // As text, since a number that is none does not equal itself.
        assert_eq!(format!("{body:?}"), format!("{:?}", again.body().expect("it was read before")));
    }
    if let Ok(message) = Message::read(data) {
        let _ = message.content.bytes();
        walk_map(message.annotations);
        walk_map(message.application_properties);
    }
});
