//! The entities of the cases, and the requests about them.

use std::fmt::Write as _;
use std::io::Write as _;

pub(super) const BATCH: u64 = 400;
pub(super) const MAKERS: usize = 4;
/// Entities that share the attribute `station`.
pub(super) const OF_ONE_STATION: u64 = 20;
const STEP_DEGREES: f64 = 0.01;

/// Appends the JSON of an entity, in the form in which reads return it.
pub(super) fn push_entity(number: u64, many: u64, out: &mut String) {
    let (latitude, longitude) = location(number, many);
    let _ = write!(
        out,
        "{{\"id\":\"{}\",\"type\":\"WeatherObserved\",\
         \"temperature\":{{\"type\":\"Number\",\"value\":{},\"metadata\":{{}}}},\
         \"humidity\":{{\"type\":\"Number\",\"value\":0.5{},\"metadata\":{{}}}},\
         \"windSpeed\":{{\"type\":\"Number\",\"value\":{},\"metadata\":{{}}}},\
         \"station\":{{\"type\":\"Text\",\"value\":\"{}\",\"metadata\":{{}}}},\
         \"dateObserved\":{{\"type\":\"DateTime\",\"value\":\"2026-01-01T00:00:00.000Z\",\"metadata\":{{}}}},\
         \"location\":{{\"type\":\"geo:json\",\"value\":{{\"type\":\"Point\",\"coordinates\":[{longitude:.4},{latitude:.4}]}},\
         \"metadata\":{{}}}}}}",
        id(number),
        value(number),
        number % 90 + 1,
        number % 30,
        station(number),
    );
}

pub(super) fn id(number: u64) -> String {
    format!("urn:ngsi-ld:WeatherObserved:{number:07}")
}

pub(super) fn station(number: u64) -> String {
    format!("st{:06}", number / OF_ONE_STATION)
}

/// Returns latitude and longitude: points of a square lattice in pseudo-random order.
pub(super) fn location(number: u64, many: u64) -> (f64, f64) {
    let side = (many as f64).sqrt().ceil() as u64;
    // A step without a common factor with the number of points visits each once.
    let place = number.wrapping_mul(1_000_003) % (side * side);
    (30.0 + (place / side) as f64 * STEP_DEGREES, 2.0 + (place % side) as f64 * STEP_DEGREES)
}

/// Returns a temperature; successive updates of an entity have different ones.
fn value(number: u64) -> f64 {
    (number % 997) as f64 / 10.0
}

/// Maps `number` to a pseudo-random number below `below`.
pub(crate) fn any(number: u64, below: u64) -> u64 {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) % below
}

pub(crate) fn get(target: &str, request: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = write!(request, "GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n");
}

pub(crate) fn with_body(method: &str, target: &str, kind: &str, body: &str, request: &mut Vec<u8>) {
    let length = body.len();
    let _ = write!(
        request,
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
    );
}

/// Appends a request that sets one attribute of an entity.
pub(crate) fn update(number: u64, entities: u64, request: &mut Vec<u8>) {
    let target = format!("/v2/entities/{}/attrs", id(any(number, entities)));
    let body = format!("{{\"temperature\":{{\"type\":\"Number\",\"value\":{}}}}}", value(number));
    with_body("PATCH", &target, "application/json", &body, request);
}

/// Appends a request that sets the bare value of one attribute.
pub(super) fn set_value(number: u64, entities: u64, request: &mut Vec<u8>) {
    let target = format!("/v2/entities/{}/attrs/temperature/value", id(any(number, entities)));
    with_body("PUT", &target, "text/plain", &value(number).to_string(), request);
}

/// Appends a request that reads one entity.
pub(super) fn read(number: u64, entities: u64, request: &mut Vec<u8>) {
    get(&format!("/v2/entities/{}", id(any(number, entities))), request);
}

/// Appends an update that carries its send time, in microseconds since the start.
pub(super) fn stamp(number: u64, entities: u64, at_us: u128, request: &mut Vec<u8>) {
    let target = format!("/v2/entities/{}/attrs", id(any(number, entities)));
    with_body(
        "POST",
        &target,
        "application/json",
        &format!("{{\"stamp\":{{\"type\":\"Number\",\"value\":{at_us}}}}}"),
        request,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_are_read_as_written_and_lie_in_different_places() {
        let mut places = std::collections::BTreeSet::new();
        for number in 0..1_000 {
            let (mut json, (latitude, longitude)) = (String::new(), location(number, 1_000));
            push_entity(number, 1_000, &mut json);
            let entity: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(entity["id"], id(number));
            assert_eq!(entity["location"]["value"]["coordinates"][1].as_f64().unwrap(), (latitude * 1e4).round() / 1e4);
            places.insert(((latitude * 1e4) as i64, (longitude * 1e4) as i64));
        }
        assert_eq!(places.len(), 1_000);
    }
}
